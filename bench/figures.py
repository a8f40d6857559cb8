"""The README's plots, drawn from bench/results: cost of a question, time with peers, quality against cost.

Each is an SVG that follows its reader's choice of light or dark, and carries a hash of what it was drawn from, so that
one that is stale is found without drawing it again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import common
from pybuild.sources import DEFAULT_MODEL

FOLDER = common.ROOT / "docs" / "figures"

Results = Mapping[str, Mapping[str, Any]]
Data = Mapping[str, Any]

# Set as plain colours while drawing, and replaced by variables in the file.
_THEME = {"#1f2328": "ink", "#ffffff": "paper", "#d0d7de": "faint"}
_DARK = {"ink": "#e6edf3", "paper": "#0d1117", "faint": "#30363d"}
_INK, _PAPER, _FAINT = _THEME

OURS, STOCK, OTHER, THIRD = "#2f81f7", "#8b949e", "#db6d28", "#2da44e"
"""Colours of lines that can be told from both backgrounds."""

AXES_POINTS = 210
"""About how high the axes are."""

LABEL_SHARE = 0.055
"""Of the axes' height, for a line of words."""


@dataclass(frozen=True)
class Figure:
    """One plot.

    name: of its file. title: in a few words. data: what is drawn, None where there is nothing to draw. draw: onto
    pyplot's current figure. caption: the plot in a sentence. missing: what it will show besides, once a command has
    measured it.
    """

    name: str
    title: str
    data: Callable[[Results], Data | None]
    draw: Callable[[Any, Data], None]
    caption: Callable[[Data], str]
    missing: Callable[[Results], str | None]

    @property
    def path(self) -> Path:
        """Its file."""
        return FOLDER / f"{self.name}.svg"


def of(results: Results, benchmark: str) -> list[Mapping[str, Any]]:
    """The results of a benchmark, those of the default model first."""
    found = [one for one in results.values() if one.get("benchmark") == benchmark]
    return sorted(found, key=lambda one: one["model"] != DEFAULT_MODEL)


# -- what a question costs ------------------------------------------------------------------------------------------

WAYS = {
    "full": ("a whole prompt for each", OTHER),
    "sequential": ("text kept, one after another", STOCK),
    "packed": ("text kept, packed", OURS),
}


def _packing(results: Results) -> Mapping[str, Any] | None:
    """The packing result with the most different numbers of questions."""
    return max(
        of(results, "packing"), key=lambda one: len({row["questions"] for row in one["rows"]}), default=None
    )


def cost_data(results: Results) -> Data | None:
    """Milliseconds of one question among so many, the text's own included, by way of asking."""
    result = _packing(results)
    if result is None:
        return None
    rows = sorted((row for row in result["rows"] if row["orders"] == 1), key=lambda row: row["questions"])
    once = {"full": 0.0, "sequential": result["prefill_ms"], "packed": result["prefill_ms"]}
    return {
        "where": _where(result),
        "tokens": result["prefix_tokens"],
        "questions": [row["questions"] for row in rows],
        "ms": {way: [(once[way] + row[f"{way}_ms"]) / row["questions"] for row in rows] for way in WAYS},
    }


def draw_cost(pyplot: Any, data: Data) -> None:
    """Lines by number of questions."""
    axes = pyplot.gca()
    for way, (label, colour) in WAYS.items():
        axes.plot(data["questions"], data["ms"][way], "o-", color=colour, label=label)
    axes.set(xscale="log", yscale="log", xlabel="questions about one text", ylabel="ms for each question")
    axes.set_xticks(data["questions"], map(str, data["questions"]))
    axes.set_xticks([], minor=True)
    axes.set_xlim(right=4 * data["questions"][-1])
    _plain_ticks(axes)
    _label(axes, [(label, data["questions"][-1], data["ms"][way][-1]) for way, (label, _) in WAYS.items()])
    axes.set_title(f"Cost of a question: a text of {data['tokens']} tokens, {data['where']}", fontsize=10)


def cost_caption(data: Data) -> str:
    """The two ends of the best line."""
    first, last = data["ms"]["packed"][0], data["ms"]["packed"][-1]
    full = data["ms"]["full"][-1]
    return (
        f"What a question costs, with its share of reading the text of {data['tokens']} tokens, {data['where']}:"
        f" {first:,.0f} ms when it is the only one, {last:,.0f} ms as one of {data['questions'][-1]}, against"
        f" {full:,.0f} ms as a whole prompt."
    )


# -- time against the number of questions, with peers ---------------------------------------------------------------

FAMILIES = {"typedecide": OURS, "wllama": OTHER, "transformers.js": THIRD}
_STYLES = ("-", "--", ":", "-.")


def questions_data(results: Results) -> Data | None:
    """Seconds after which each way had so many answers about a new text: peers beside ours, or ours alone."""
    for result in of(results, "peers"):
        lines = _peers(result["rows"])
        if lines:
            return {"peers": True, "where": f"WASM, {result['processor']}", "lines": lines}
    cost = cost_data(results)
    if cost is None:
        return None
    counts = cost["questions"]
    lines = [
        {
            "family": "typedecide",
            "label": label,
            "colour": colour,
            "questions": counts,
            "seconds": [ms * count / 1e3 for ms, count in zip(cost["ms"][way], counts, strict=True)],
        }
        for way, (label, colour) in WAYS.items()
    ]
    return {"peers": False, "where": cost["where"], "lines": lines}


def _peers(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows with most threads; of those that differ in the number format alone, the fastest one."""
    most = max((row["threads"] or 0 for row in rows if row["reason"] is None), default=0)
    best: dict[tuple[str, str], Mapping[str, Any]] = {}
    for row in rows:
        if row["reason"] is None and row["threads"] == most and row["each_ms"]:
            # A setting begins with its format, and says after it what is done.
            key = (row["name"], row["setting"].partition(", ")[2])
            if key not in best or row["all_answers_ms"] < best[key]["all_answers_ms"]:
                best[key] = row
    return [
        {
            "family": row["name"],
            "label": f"{row['name']}: {row['setting']}",
            "colour": FAMILIES[row["name"]],
            "questions": [*range(1, len(row["each_ms"]) + 1)],
            "seconds": [ms / 1e3 for ms in row["each_ms"]],
        }
        for row in sorted(best.values(), key=lambda row: row["all_answers_ms"])
    ]


def draw_questions(pyplot: Any, data: Data) -> None:
    """A line for each way, in its family's colour."""
    axes = pyplot.gca()
    # Of lines in one colour each has a style of its own.
    styles = {line["colour"]: iter(_STYLES * len(data["lines"])) for line in data["lines"]}
    for line in data["lines"]:
        axes.plot(
            line["questions"],
            line["seconds"],
            linestyle=next(styles[line["colour"]]),
            color=line["colour"],
            label=line["label"],
        )
    axes.set(yscale="log", xlabel="questions answered about a new text", ylabel="seconds")
    _plain_ticks(axes)
    axes.xaxis.get_major_locator().set_params(integer=True)
    # The order of the ends, from above.
    handles, labels = axes.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda at: -data["lines"][at]["seconds"][-1])
    axes.legend(
        [handles[at] for at in order],
        [labels[at] for at in order],
        frameon=False,
        fontsize=7.5,
        loc="upper left",
        bbox_to_anchor=(1.01, 1),
    )
    axes.set_title(f"Time to so many answers, {data['where']}", fontsize=10)


def questions_caption(data: Data) -> str:
    """Ours and the best other way after the last question that both answered."""
    ours = min(
        (line for line in data["lines"] if line["family"] == "typedecide"),
        key=lambda line: line["seconds"][-1],
    )
    others = [line for line in data["lines"] if line["family"] != "typedecide"]
    text = (
        f"Seconds until so many questions about a new text were answered, {data['where']}:"
        f" {ours['seconds'][-1]:.1f} s for {ours['questions'][-1]} with typedecide"
    )
    if not others:
        return f"{text}."
    other = min(others, key=lambda line: line["seconds"][-1])
    return f"{text}, {other['seconds'][-1]:.1f} s with the fastest peer ({other['label']})."


# -- quality against cost -------------------------------------------------------------------------------------------

SPLITS = {
    "seen": ("trained tasks", OURS),
    "unseen_domain": ("a new kind of text", THIRD),
    "unseen_task": ("a new task", OTHER),
}


def quality_data(results: Results) -> Data | None:
    """Accuracy by time for each model, and by depth for the one whose shallow forms were measured."""
    heldout = results.get("heldout")
    if heldout is None:
        return None
    models = [
        {
            "model": model["model"],
            "readout": model["readout"],
            "format": model["format"],
            "ms": sum(model["latency"][what]["median"] for what in ("prefill_ms", "decision_ms")),
            "splits": {
                row["split"]: {name: row[name] for name in ("accuracy", "ci", "chance", "n")}
                for row in heldout["totals"]
                if row["split"] in SPLITS
                and all(row[key] == model[key] for key in ("model", "format", "readout"))
            },
        }
        for model in heldout["models"]
    ]
    shallow = next(iter(of(results, "shallow_quality")), None)
    return {"models": models, "depths": shallow and _depths(shallow, results)}


def _depths(shallow: Mapping[str, Any], results: Results) -> dict[str, Any]:
    """Accuracy by layers that texts go through, and the measured share of time at those depths, where there is one."""
    speed = next((one for one in of(results, "speed") if one["model"] == shallow["model"]), None)
    time: dict[int, float] = {}
    if speed is not None:
        tokens = min({row["prefix_tokens"] for row in speed["rows"]}, key=lambda count: abs(count - 512))
        rows = [row for row in speed["rows"] if row["prefix_tokens"] == tokens]
        time = {row["k"]: 1 / row["ratio"]["all_answers"] for row in rows}
    rows = [
        {
            "k": row["k"],
            "anchor": row["anchor"],
            "accuracy": row["accuracy"],
            "ci": row["intervals"]["accuracy"],
            "hidden": row["hidden_evidence_accuracy"],
            "time": time.get(row["k"]),
        }
        for row in shallow["rows"]
    ]
    return {"model": shallow["model"], "n": shallow["rows"][0]["n"], "rows": rows}


def draw_quality(pyplot: Any, data: Data) -> None:
    """Models on the left, and depths on the right where they were measured."""
    figure = pyplot.gcf()
    panels = figure.subplots(1, 2 if data["depths"] else 1, sharey=True, squeeze=False)[0]
    _draw_models(panels[0], data["models"])
    if data["depths"]:
        _draw_depths(panels[1], data["depths"])


def _draw_models(axes: Any, models: Sequence[Mapping[str, Any]]) -> None:
    times = [model["ms"] for model in models]
    axes.set(
        xlim=(0, 2 * max(times)), ylim=(0, 1.12), xlabel="ms for a decision, natively", ylabel="accuracy"
    )
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25%", "50%", "75%", "100%"])
    for marker, model in zip("os^Dv", models, strict=False):
        labels = []
        for split, row in model["splits"].items():
            words, colour = SPLITS[split]
            axes.errorbar(model["ms"], row["accuracy"], _spread(row), fmt=marker, color=colour, capsize=3)
            axes.plot(model["ms"], row["chance"], "_", color=colour, markersize=14)
            labels.append((f"{words}: {row['accuracy']:.0%}", model["ms"], row["accuracy"]))
            labels.append((f"chance: {row['chance']:.0%}", model["ms"], row["chance"]))
        _label(axes, labels)
        words = f"{model['model']}\n{model['format']}, {model['readout']}"
        at = (model["ms"], max(row["ci"][1] for row in model["splits"].values()))
        axes.annotate(
            words, at, xytext=(0, 6), textcoords="offset points", ha="center", fontsize=8, color=_INK
        )
    axes.set_title("Texts that nothing was trained on", fontsize=10)


def _draw_depths(axes: Any, depths: Mapping[str, Any]) -> None:
    rows = depths["rows"]
    whole = next(row for row in rows if row["anchor"] is None)
    anchors = list(dict.fromkeys(row["anchor"] for row in rows if row["anchor"] is not None))
    # A little apart, so that equal ones are seen.
    for colour, anchor, shift in zip((OURS, THIRD, OTHER), anchors, (-0.15, 0, 0.15), strict=False):
        chosen = sorted(
            (row for row in (*rows, whole) if row["anchor"] in (anchor, None)), key=lambda row: row["k"]
        )
        chosen = list({row["k"]: row for row in chosen}.values())
        ks = [row["k"] + shift for row in chosen]
        spreads = [_spread(row) for row in chosen]
        errors = [[one[side][0] for one in spreads] for side in (0, 1)]
        axes.errorbar(
            ks, [row["accuracy"] for row in chosen], errors, fmt="o-", color=colour, capsize=3, label=anchor
        )
        axes.plot(ks, [row["hidden"] for row in chosen], ":", color=colour)
    times = {row["k"]: row["time"] for row in rows}
    words = [f"{k}" if time is None else f"{k}\n{time:.2f}×" for k, time in sorted(times.items())]
    axes.set_xticks(sorted(times), words)
    measured = any(time is not None for time in times.values())
    axes.set_xlabel(
        f"of {whole['k']} layers that the text goes through" + (", share of the time" if measured else "")
    )
    axes.legend(frameon=False, fontsize=8, title="upper layers see", loc="lower right")
    axes.set_title(f"{depths['model']}, {depths['n']} decisions (dots: text hidden)", fontsize=10)


def _spread(row: Mapping[str, Any]) -> list[list[float]]:
    low, high = row["ci"]
    return [[max(0.0, row["accuracy"] - low)], [max(0.0, high - row["accuracy"])]]


def quality_caption(data: Data) -> str:
    """The models in words."""
    told = "; ".join(
        f"{model['model']} takes {model['ms']:.0f} ms for a decision and is right in "
        + ", ".join(f"{row['accuracy']:.0%} ({SPLITS[split][0]})" for split, row in model["splits"].items())
        for model in data["models"]
    )
    depths = data["depths"]
    more = "" if depths is None else " On the right, accuracy where the text goes through some layers only."
    return f"Accuracy on held-out texts against the time for a decision, with 95 % intervals: {told}.{more}"


# -- all of them ----------------------------------------------------------------------------------------------------


def _no(benchmark: str, what: str) -> Callable[[Results], str | None]:
    return lambda results: None if of(results, benchmark) else f"{what} (`python -m bench {benchmark}`)"


FIGURES = (
    Figure(
        "cost",
        "What a question costs",
        *(cost_data, draw_cost, cost_caption),
        _no("packing", "the cost of a question"),
    ),
    Figure(
        "questions",
        "Time against the number of questions",
        *(questions_data, draw_questions, questions_caption),
        _no("peers", "peers beside ours"),
    ),
    Figure(
        "quality",
        "Quality against cost",
        *(quality_data, draw_quality, quality_caption),
        _no("shallow_quality", "what shallow prefill costs in quality"),
    ),
)


def markdown(results: Results, folder: str) -> str:
    """All plots with their captions, and what is missing; `folder` is that of the plots, as the text's file sees it."""
    parts = []
    for figure in FIGURES:
        data = figure.data(results)
        if data is not None:
            parts.append(f"![{figure.title}]({folder}/{figure.name}.svg)\n\n{figure.caption(data)}")
    if absent := missing(results):
        parts.append(f"Not measured yet: {'; '.join(absent)}.")
    return "\n\n".join(parts)


def missing(results: Results) -> list[str]:
    """What the plots lack, with the command that measures it."""
    return [what for figure in FIGURES if (what := figure.missing(results)) is not None]


def write(results: Results) -> None:
    """Draw those that are stale."""
    for figure in FIGURES:
        data = figure.data(results)
        if data is None:
            figure.path.unlink(missing_ok=True)
        elif not _is_of(figure.path, stamp(data)):
            figure.path.parent.mkdir(parents=True, exist_ok=True)
            draw(figure, data)


def stale(results: Results) -> list[Path]:
    """Files that were drawn from something else, or are there for nothing."""
    found = []
    for figure in FIGURES:
        data = figure.data(results)
        fits = not figure.path.is_file() if data is None else _is_of(figure.path, stamp(data))
        if not fits:
            found.append(figure.path)
    return found


def stamp(data: Data) -> str:
    """What a file says of what it was drawn from, and by what."""
    content = json.dumps(data, sort_keys=True).encode() + Path(__file__).read_bytes()
    return f"<!-- drawn from {hashlib.sha256(content).hexdigest()} -->"


def _is_of(path: Path, mark: str) -> bool:
    return path.is_file() and mark in path.read_text("utf-8")


def draw(figure: Figure, data: Data) -> None:
    """Draw one, in colours that follow the reader's scheme."""
    pyplot = common.plotting(figure.name)
    colours = {
        **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), _INK),
        **dict.fromkeys(("axes.edgecolor", "grid.color"), _FAINT),
        **dict.fromkeys(("figure.facecolor", "savefig.facecolor", "axes.facecolor"), _PAPER),
    }
    style = {
        **colours,
        "axes.grid": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "font.size": 9,
    }
    with pyplot.rc_context(style):
        drawing = pyplot.figure(figsize=(9, 4), layout="constrained")
        figure.draw(pyplot, data)
        common.save_plot(drawing, figure.path)
    figure.path.write_text(_themed(figure.path.read_text("utf-8"), stamp(data)), "utf-8")


def _themed(svg: str, mark: str) -> str:
    """A drawing whose theme colours are variables, light or dark as the reader's scheme."""
    for colour, name in _THEME.items():
        svg = svg.replace(colour, f"var(--{name})")
    light, dark = (
        "".join(f"--{name}:{colour};" for name, colour in theme)
        for theme in (((name, colour) for colour, name in _THEME.items()), _DARK.items())
    )
    style = f"<style>svg{{{light}}}@media (prefers-color-scheme:dark){{svg{{{dark}}}}}</style>"
    start = svg.index(">", svg.index("<svg")) + 1
    return f"{svg[:start]}\n{mark}\n{style}{svg[start:]}"


def _where(result: Mapping[str, Any]) -> str:
    device = {"wasm": "WASM", "webgpu": "WebGPU"}.get(result["device"], result["device"])
    return f"{device} {result['format']}"


def _plain_ticks(axes: Any) -> None:
    """Numbers of a logarithmic axis as people write them: 1, 2 and 5 of each power of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def _label(axes: Any, labels: Sequence[tuple[str, float, float]]) -> None:
    """Words to the right of points, moved apart where they would lie on one another."""
    to_share = axes.transScale + axes.transLimits
    places = [to_share.transform((x, y))[1] for _, x, y in labels]
    least = 0.0
    for at in sorted(range(len(labels)), key=places.__getitem__):
        text, x, y = labels[at]
        place = max(places[at], least)
        least = place + LABEL_SHARE
        offset = (9, (place - places[at]) * AXES_POINTS - 3)
        axes.annotate(text, (x, y), xytext=offset, textcoords="offset points", fontsize=8, color=_INK)
