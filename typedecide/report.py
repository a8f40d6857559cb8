"""An evaluation's result for people: a table on the terminal, and one HTML page that needs nothing else.

Knows the result's JSON form, and how figures are drawn; measures nothing. Plots need matplotlib.
"""

from __future__ import annotations

import html
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from typedecide.errors import UnsupportedError
from typedecide.terminal import rich

Row = Mapping[str, Any]

WIDTH = 200
"""Of tables that are not written to a terminal."""


@dataclass(frozen=True)
class Column:
    """One column of a table: what it shows of a row, its heading, and what that means."""

    heading: str
    about: str
    show: Callable[[Row], str]


def _number(value: float | None, places: int = 3) -> str:
    return "–" if value is None else f"{value:.{places}f}".replace("-", "−")


def _between(value: float | None, interval: Sequence[float] | None, places: int = 3) -> str:
    if value is None or interval is None:
        return _number(value, places)
    return f"{_number(value, places)} [{_number(interval[0], places)}, {_number(interval[1], places)}]"


def _plain(name: str, heading: str, about: str, places: int = 3) -> Column:
    return Column(heading, about, lambda row: _number(row[name], places))


def _spread(name: str, heading: str, about: str) -> Column:
    return Column(heading, about, lambda row: _between(row[name], row["intervals"].get(name)))


SHORT = (
    Column("n", "decisions", lambda row: str(row["n"])),
    _spread("accuracy", "accuracy", "share of right answers; a tie of k options counts 1/k"),
    _plain("chance", "chance", "accuracy of guessing"),
    _plain("hidden_evidence_accuracy", "hidden", "accuracy with the evidence hidden"),
    _spread("margin_over_hidden", "over hidden", "accuracy less that with the evidence hidden"),
    _plain(
        "flip_rate",
        "flips",
        "share of answers that change when the options are listed backwards (a sample, where no order is read)",
    ),
    _plain("ece", "ECE", "expected calibration error, 15 bins of equal mass"),
)

LONG = (
    *SHORT[:3],
    _plain("majority", "majority", "accuracy of always giving the most frequent true answer"),
    *SHORT[3:5],
    _spread("margin_over_chance", "over chance", "accuracy less chance"),
    _spread("macro_f1", "macro-F1", "mean F1 of all answers"),
    _spread("flip_rate", "flips", SHORT[5].about),
    _plain("between_orders", "orders", "share of a question's own orders that disagree with its answer"),
    Column(
        "first",
        "share of answers that are the option listed first",
        lambda row: _number(row["position"]["first"]),
    ),
    Column("true first", "the same of the true ones", lambda row: _number(row["position"]["true_first"])),
    _spread("nll", "NLL", "mean negative log-likelihood of the true option, in nats"),
    _spread("brier", "Brier", "mean squared distance of the probabilities from the truth, 0 to 2"),
    _spread("ece", "ECE", SHORT[6].about),
    _plain("ece_equal_width", "ECE, width", "the same with 15 bins of equal width"),
    _plain("aurc", "AURC", "area under the risk–coverage curve"),
    _spread("kendall_tau", "tau", "Kendall's tau-b of expected and true level, for scores"),
)

GROUPS = ("family", "domain", "kind", "options")
"""The result's further tables, by the name of the field that tells their rows apart."""


# -- the terminal ---------------------------------------------------------------------------------------------------


def show(result: Mapping[str, Any]) -> None:
    """Print the table of tasks, and below it what else is to be known."""
    tty = rich().console.Console()
    console = tty if tty.is_terminal else rich().console.Console(width=WIDTH)
    escape = rich().markup.escape
    names = [*result["baselines"]]
    table = rich().table.Table("task", "split", "model", caption_justify="left")
    for column in SHORT:
        table.add_column(column.heading, justify="right")
    for name in names:
        table.add_column(name, justify="right")
    for row in [*result["rows"], *result["totals"]]:
        cells = [column.show(row) for column in SHORT]
        guesses = [_number(row["baselines"][name]["accuracy"]) for name in names]
        table.add_row(escape(row["task"]), escape(row["split"] or "–"), escape(label(row)), *cells, *guesses)
    console.print(table)
    for line in notes(result):
        console.print(escape(line), highlight=False, soft_wrap=True)


def label(row: Row) -> str:
    """How a model is named beside others: with its weight format and readout."""
    return f"{row['model']}, {row['format']}, {row['readout']}"


def notes(result: Mapping[str, Any]) -> list[str]:
    """What is to be known besides figures: agreement, latency, what was left out."""
    data = result["data"]
    lines = [
        f"{data['decisions']} decisions about {data['texts']} texts; questions without a true answer, left out:"
        f" {data['unlabelled']}. Intervals: 95 %, bootstrap by text."
    ]
    for one in result["models"]:
        name, agreement, latency = label(one), one["agreement"], one["latency"]
        if agreement["agree"] is not None:
            verdict = "agree" if agreement["agree"] else "DO NOT AGREE"
            lines.append(
                f"{name}: complete prompts and the prefix-sharing engine {verdict} on {agreement['decisions']}"
                f" decisions: probabilities differ by {agreement['max_difference']:.1e} at most (allowed:"
                f" {agreement['tolerance']:.0e}), {agreement['changed_answers']} answers change."
            )
        if latency:
            lines.append(
                f"{name}, {one['device']}: a text is read in {latency['prefill_ms']['median']:.0f} ms (median; 90th"
                f" percentile {latency['prefill_ms']['p90']:.0f}), a decision takes"
                f" {latency['decision_ms']['median']:.0f} ms ({latency['decision_ms']['p90']:.0f})."
            )
        lines += [
            f"{name}: not answered: {failure['source']}, {failure['question']}: {failure['message']}"
            for failure in one["failures"]
        ]
    lines += [f"Baseline {name}: {about}" for name, about in result["baselines"].items()]
    lines += [f"Baseline {name} is missing: {reason}" for name, reason in result["baselines_missing"].items()]
    return lines


# -- the page -------------------------------------------------------------------------------------------------------

INK, FAINT = "#010203", "#010204"
SERIES = ("#010210", "#010211", "#010212", "#010213", "#010214", "#010215")
"""Colours that stand for those of the page's style sheet, which knows whether the page is light or dark."""

_VARIABLES = {INK: "--ink", FAINT: "--faint", **{name: f"--series-{i}" for i, name in enumerate(SERIES)}}

_STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1f24; --faint: #8a9199; --rule: #d6dade;
  --series-0: #0b62c4; --series-1: #c2410c; --series-2: #15803d; --series-3: #9333ea; --series-4: #be185d;
  --series-5: #0f766e; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171a; --ink: #e6e8ea; --faint: #8a9199; --rule: #363b41;
  --series-0: #6cb0ff; --series-1: #ff9a5c; --series-2: #5fd38a; --series-3: #c79bff; --series-4: #ff8abf;
  --series-5: #5fd6c8; } }
body { background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto;
  max-width: 90rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.5rem; }
.scroll { overflow-x: auto; } .scroll:focus-visible { outline: 2px solid var(--series-0); }
table { border-collapse: collapse; font-size: 0.85rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: 0.5rem; }
th, td { border-bottom: 1px solid var(--rule); padding: 0.25rem 0.6rem; text-align: right; white-space: nowrap; }
th[scope=row], th.text, td.text { text-align: left; }
figure { margin: 1rem 0; } svg { max-width: 100%; height: auto; } figcaption { color: var(--ink); }
"""


def page(result: Mapping[str, Any]) -> str:
    """The report as one HTML page: tables, and plots as inline SVG in the colours of the reader's theme."""
    title = f"Evaluation of {', '.join(dict.fromkeys(label(one) for one in result['models']))}"
    parts = [f"<h1>{_escape(title)}</h1>", *(f"<p>{_escape(line)}</p>" for line in notes(result))]
    parts += [
        "<h2>Accuracy by task</h2>",
        _figure(
            draw_accuracy(result),
            "Accuracy of each task with its 95 % interval, against chance, hidden evidence and baselines.",
        ),
        _table(
            result["rows"] + result["totals"],
            ("task", "split"),
            "Tasks, and the sums of each split and of all",
        ),
        "<h2>Calibration</h2>",
        _figure(
            draw_reliability(result),
            "Accuracy against confidence in 15 bins of equal mass; on the diagonal a model is calibrated.",
        ),
        _figure(
            draw_risk(result),
            "Error among the answers that are kept when the least confident ones are left out.",
        ),
    ]
    for name in GROUPS:
        if result["groups"][name]:
            parts += [
                f"<h2>By {name}</h2>",
                _table(result["groups"][name], (name,), f"The figures by {name}"),
            ]
    parts += ["<h2>What the columns mean</h2><dl>"]
    parts += [f"<dt>{_escape(one.heading)}</dt><dd>{_escape(one.about)}</dd>" for one in LONG]
    run = ", ".join(f"{name} {value}" for name, value in result["run"].items())
    parts += [f"</dl><p><small>{_escape(run)}</small></p>"]
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
        "</body>\n</html>\n"
    )


def _escape(text: str) -> str:
    return html.escape(text)


def _table(rows: Sequence[Row], keys: Sequence[str], caption: str) -> str:
    names = [*rows[0]["baselines"]] if rows else []
    words = (*keys, "model")
    heads = [*words, *(column.heading for column in LONG), *names]
    titles = {column.heading: column.about for column in LONG}
    head = "".join(
        f'<th scope="col" title="{_escape(titles.get(one, ""))}"{place}>{_escape(one)}</th>'
        for one, place in zip(heads, [' class="text"'] * len(words) + [""] * len(heads), strict=False)
    )
    lines = []
    for row in rows:
        first, *others = (str(row[key]) or "–" for key in keys)
        cells = [f'<th scope="row">{_escape(first)}</th>']
        cells += [f'<td class="text">{_escape(text)}</td>' for text in (*others, label(row))]
        cells += [f"<td>{_escape(column.show(row))}</td>" for column in LONG]
        cells += [
            f"<td>{_between(row['baselines'][name]['accuracy'], row['baselines'][name]['ci'])}</td>"
            for name in names
        ]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{_escape(caption)}"><table>'
        f"<caption>{_escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _figure(svg: str, caption: str) -> str:
    start = svg.index("<svg")
    named = svg[start:].replace("<svg", f'<svg role="img" aria-label="{_escape(caption)}"', 1)
    for colour, variable in _VARIABLES.items():
        named = named.replace(colour, f"var({variable})")
    return f"<figure>{named}<figcaption>{_escape(caption)}</figcaption></figure>"


# -- plots ----------------------------------------------------------------------------------------------------------


def require_plots() -> Any:
    """matplotlib; UnsupportedError where it is not installed."""
    try:
        import matplotlib
        import matplotlib.backends.backend_svg
        import matplotlib.figure
    except ImportError as error:
        raise UnsupportedError(
            "A report needs `pip install typedecide[evaluate]`.", package=error.name
        ) from error
    return matplotlib


def _plot(width: float, height: float, draw: Callable[[Any], None]) -> str:
    """The SVG of one pair of axes; the same figures give the same text."""
    matplotlib = require_plots()
    settings = {
        "svg.fonttype": "none",
        "svg.hashsalt": "typedecide",
        "text.color": INK,
        "axes.edgecolor": FAINT,
        "axes.labelcolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "axes.facecolor": "none",
        "legend.frameon": False,
        "font.family": "sans-serif",
    }
    with matplotlib.rc_context(settings):
        figure = matplotlib.figure.Figure(figsize=(width, height), layout="constrained", facecolor="none")
        matplotlib.backends.backend_svg.FigureCanvasSVG(figure)
        axes = figure.subplots()
        axes.spines[["top", "right"]].set_visible(False)
        draw(axes)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def _colours(result: Mapping[str, Any]) -> dict[str, str]:
    models = [label(one) for one in result["models"]]
    return {name: SERIES[i % len(SERIES)] for i, name in enumerate(models)}


def draw_accuracy(result: Mapping[str, Any]) -> str:
    """A line for each task: each model's accuracy with its interval, and what it is compared with."""
    rows = [*result["rows"], *result["totals"]]
    tasks = list(dict.fromkeys((row["task"], row["split"]) for row in rows))
    colours = _colours(result)
    place = {task: len(tasks) - 1 - i for i, task in enumerate(tasks)}
    step = 0.6 / len(colours)

    def draw(axes: Any) -> None:
        for number, (name, colour) in enumerate(colours.items()):
            own = [row for row in rows if label(row) == name]
            ys = [place[row["task"], row["split"]] + 0.3 - step * (number + 0.5) for row in own]
            xs = [row["accuracy"] for row in own]
            ends = [
                [row["accuracy"] - row["ci"][0] for row in own],
                [row["ci"][1] - row["accuracy"] for row in own],
            ]
            axes.errorbar(xs, ys, xerr=ends, fmt="o", ms=5, color=colour, capsize=3, label=name)
            hidden = [row["hidden_evidence_accuracy"] for row in own]
            axes.plot(hidden, ys, "x", color=colour, ms=6, label=f"{name}: hidden evidence")
        seen = {(row["task"], row["split"]): row for row in rows}
        ys = [place[key] for key in seen]
        axes.plot([row["chance"] for row in seen.values()], ys, "|", color=INK, ms=14, label="chance")
        for name, mark in zip(result["baselines"], cycle("Ds^v*"), strict=False):
            xs = [row["baselines"][name]["accuracy"] for row in seen.values()]
            axes.plot(xs, ys, mark, color=FAINT, ms=5, mfc="none", label=name)
        names = [f"{task} ({split})" if split else task for task, split in tasks]
        axes.set_yticks([place[task] for task in tasks], names)
        axes.set_ylim(-0.7, len(tasks) - 0.3)
        axes.set_xlim(-0.02, 1.02)
        axes.set_xlabel("accuracy")
        axes.figure.legend(loc="outside lower center", ncols=2)

    return _plot(9, 1.6 + 0.45 * len(tasks) + 0.25 * len(colours), draw)


def draw_reliability(result: Mapping[str, Any]) -> str:
    """Accuracy against confidence, a line for each model."""
    colours = _colours(result)

    def draw(axes: Any) -> None:
        axes.plot([0, 1], [0, 1], ":", color=FAINT)
        for one in result["models"]:
            bins = one["curves"]["reliability"]["equal_mass"]
            xs, ys = [b["confidence"] for b in bins], [b["accuracy"] for b in bins]
            axes.plot(xs, ys, "o-", ms=4, color=colours[label(one)], label=label(one))
        axes.set(xlim=(0, 1.02), ylim=(-0.02, 1.02), xlabel="confidence", ylabel="accuracy")
        axes.figure.legend(loc="outside lower center")

    return _plot(6, 4.5, draw)


def draw_risk(result: Mapping[str, Any]) -> str:
    """Error against the share of answers kept, a line for each model."""
    colours = _colours(result)

    def draw(axes: Any) -> None:
        for one in result["models"]:
            points = one["curves"]["risk_coverage"]
            xs, ys = [p["coverage"] for p in points], [p["risk"] for p in points]
            axes.plot(xs, ys, color=colours[label(one)], label=label(one))
        axes.set(
            xlim=(0, 1.02), ylim=(-0.02, 1.02), xlabel="share of answers kept", ylabel="error among them"
        )
        axes.figure.legend(loc="outside lower center")

    return _plot(6, 4.5, draw)
