"""`python -m bench.report`: bench/REPORT.md, and the figures and plots of README and model card, from bench/results.

Whatever stands between `<!-- figures NAME -->` and `<!-- /figures -->` is written here, from the results that NAME
stands for. `--check` writes nothing, and fails where a file says something else than the results.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import common, figures, suite
from pybuild.sources import DEFAULT_MODEL, MODELS

REPORT = common.ROOT / "bench" / "REPORT.md"
FILES = (common.ROOT / "README.md", MODELS / DEFAULT_MODEL / "README.md")
HELDOUT = "heldout"
"""What `make evaluate` writes: a result of `python -m typedecide evaluate`, not of a benchmark."""

_BLOCK = re.compile(r"(<!-- figures ([\w-]+) -->\n)(.*?)(<!-- /figures -->)", re.DOTALL)
_SPLITS = {"seen": "trained tasks", "unseen_domain": "a new kind of text", "unseen_task": "a new task"}

Results = Mapping[str, Mapping[str, Any]]
"""What each file of bench/results holds, by its name without .json."""


class StaleError(Exception):
    """A text that does not say what the results say."""


def read_results(folder: Path = common.RESULTS) -> Results:
    """All results, in order of their names."""
    return {path.stem: json.loads(path.read_bytes()) for path in sorted(folder.glob("*.json"))}


def report(results: Results) -> str:
    """The text of bench/REPORT.md: every result with its machine, command, figures and plot."""
    parts = [
        "# What was measured",
        "Written by `python -m bench.report` from the files in [results](results); do not edit it. Timings of "
        "different results are of different runs on a machine that may have had other work: compare within one result "
        "only.",
        "## In short",
        figures.markdown(results, "../docs/figures"),
    ]
    for name, result in results.items():
        parts += _heldout_part(result) if name == HELDOUT else _bench_part(name, result)
    return "\n\n".join(parts) + "\n"


def _bench_part(name: str, result: Mapping[str, Any]) -> list[str]:
    module = importlib.import_module(f"bench.{result['benchmark']}")
    question = (module.__doc__ or "").split("\n\n")[0].replace("\n", " ")
    versions = ", ".join(f"{what} {version}" for what, version in result["versions"].items())
    parts = [
        f"## {name}",
        question,
        f"```\n$ {result['command']}\n{module.summarise(result)}\n```",
        f"{result['date'][:10]}, {result['processor']}, {result['cores']} cores; {versions}. "
        f"[All figures](results/{name}.json).",
    ]
    if (common.RESULTS / f"{name}.svg").is_file():
        parts.append(f"![{question}](results/{name}.svg)")
    return parts


def _heldout_part(result: Mapping[str, Any]) -> list[str]:
    run = result["run"]
    return [
        "## heldout",
        "How often are the answers right, on data that nothing was trained on?",
        f"`make evaluate` ({run['limit']} decisions a task at most, {run['engine']} engine), {run['date'][:10]}, "
        f"{run['machine']}, {run['cores']} cores. [All figures](results/heldout.json).",
        *(f"{_name(model)}:\n\n{_tasks(result, model)}" for model in result["models"]),
    ]


def _name(model: Mapping[str, Any]) -> str:
    return f"`{model['model']}`, {model['format']}, {model['readout']} readout"


def _tasks(result: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    lines = [
        "| task | split | n | accuracy | chance | hidden | ECE |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in (*_of(result["rows"], model), *_of(result["totals"], model)):
        low, high = row["ci"]
        figures = (row["chance"], row["hidden_evidence_accuracy"], row["ece"])
        cells = (
            *(row["task"], (row["split"] or "all").replace("_", " "), str(row["n"])),
            f"{_share(row['accuracy'])} ({_share(low)}–{_share(high)})",
            *map(_share, figures),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _of(rows: Sequence[Mapping[str, Any]], model: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [row for row in rows if all(row[key] == model[key] for key in ("model", "format", "readout"))]


def _share(value: float) -> str:
    """A share with two digits, as .88; 1.00 where it is whole."""
    return f"{value:.2f}".removeprefix("0")


# ---- what README and card say


def card_table(results: Results) -> str:
    """The default model's figures task by task."""
    result = results[HELDOUT]
    return _tasks(result, _default(result))


def accuracy(results: Results) -> str:
    """The default model's accuracy on each split, as a sentence."""
    result = results[HELDOUT]
    model = _default(result)
    told = [
        f"{row['accuracy']:.0%} of {row['n']} decisions of {_SPLITS[row['split']]} "
        f"(chance {row['chance']:.0%}, with the text hidden {row['hidden_evidence_accuracy']:.0%})"
        for row in _of(result["totals"], model)
        if row["split"] in _SPLITS
    ]
    return f"On texts that it was not trained on it is right in {'; '.join(told)}."


def _default(result: Mapping[str, Any]) -> Mapping[str, Any]:
    return next(model for model in result["models"] if model["model"] == DEFAULT_MODEL)


def costs(results: Results) -> str:
    """What a page takes: time of texts and questions, downloads, faults."""
    lines = ["| measured | result |", "| --- | --- |"]
    for name, tell in _COSTS.items():
        if name in results:
            lines += [
                f"| {what} | [{figure}](bench/REPORT.md#{name}) |" for what, figure in tell(results[name])
            ]
    return "\n".join(lines)


def _packing(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    row = max(
        (r for r in result["rows"] if r["orders"] == 1), key=lambda r: (r["questions"] <= 11, r["questions"])
    )
    what = (
        f"{row['questions']} questions about a text of {result['prefix_tokens']} tokens that has been read, "
        f"{_where(result)}, against as many whole prompts"
    )
    return [
        (what, f"{_seconds(row['packed_ms'])}, {row['full_ms'] / row['packed_ms']:.1f} times faster"),
        ("largest change of a probability by that", f"{result['max_drift']:.1e}"),
    ]


def _load(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    first, second = result["first"], result["second"]
    size = f"{first['bytes'] / 1e6:.0f} MB"
    return [
        (
            f"first visit at {result['mbits']:.0f} Mbit/s to the first answer, {_where(result)}",
            f"{_seconds(first['first_answer_ms'])} ({size})",
        ),
        (
            "second visit",
            f"{_seconds(second['first_answer_ms'])} ({second['bytes'] / 1e6:.1f} MB)",
        ),
    ]


def _faults(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = result["rows"]
    survived = sum(row["survived"] for row in rows)
    longest = max((row["ms"] for row in rows if row["survived"]), default=0)
    return [("things broken on purpose", f"{survived} of {len(rows)} survived, {_seconds(longest)} at most")]


def _memory(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    what = f"memory over {result['decisions']:,} decisions about {result['texts']} texts, {_where(result)}"
    return [(what, "flat" if result["flat"] else "GROWS")]


def _compat(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    passed = {level: sum(run[level]["passed"] for run in result["runs"]) for level in ("MUST", "SHOULD")}
    tested = {level: sum(run[level]["tested"] for run in result["runs"]) for level in ("MUST", "SHOULD")}
    told = ", ".join(f"{passed[level]} of {tested[level]} {level}" for level in passed)
    return [("System One conformance, with and without a key", told)]


def _selftest(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    runs = [run for row in result["rows"] if row["startup"] == "passed" for run in row["runs"]]
    errors = [run["error"] for run in runs if run["error"] is not None]
    what = f"all lengths of text and question, against native logits, {_where(result)}"
    verdict = "right" if result["sound"] else "NOT right"
    return [(what, f"{verdict} in {len(runs)} runs, {max(errors, default=0):.1e} at most")]


def _where(result: Mapping[str, Any]) -> str:
    device = {"wasm": "WASM", "webgpu": "WebGPU"}.get(result["device"], result["device"])
    return f"{device} {result['format']}"


def _seconds(ms: float) -> str:
    return f"{ms / 1000:.1f} s"


_COSTS: Mapping[str, Callable[[Mapping[str, Any]], list[tuple[str, str]]]] = {
    "packing-wasm-fp32": _packing,
    "packing-wasm-int8": _packing,
    "selftest-wasm-fp32": _selftest,
    "load-wasm-int8": _load,
    "memory-wasm-int8": _memory,
    "faults": _faults,
    "compat-native-int8": _compat,
}


def plots(results: Results) -> str:
    """The plots, each with what it says."""
    return figures.markdown(results, "docs/figures")


BLOCKS: Mapping[str, Callable[[Results], str]] = {
    "accuracy": accuracy,
    "tasks": card_table,
    "costs": costs,
    "plots": plots,
    "suite": suite.told,
}
"""What a block of that name says."""


def filled(text: str, results: Results) -> str:
    """A text with its blocks written anew.

    Raises:
        KeyError: there is no such block.
    """
    return _BLOCK.sub(lambda found: f"{found[1]}{BLOCKS[found[2]](results)}\n{found[4]}", text)


def texts(results: Results) -> dict[Path, str]:
    """Every file that follows from the results, as it should be."""
    return {REPORT: report(results)} | {path: filled(path.read_text("utf-8"), results) for path in FILES}


def write(results: Results) -> None:
    """Write the report, the plots, and the figures in the other files."""
    for path, text in texts(results).items():
        path.write_text(text, "utf-8")
    figures.write(results)


def check(results: Results) -> None:
    """StaleError where a file says something else than the results."""
    wrong = [
        path for path, text in texts(results).items() if not path.is_file() or path.read_text("utf-8") != text
    ]
    if stale := [str(path.relative_to(common.ROOT)) for path in (*wrong, *figures.stale(results))]:
        raise StaleError(f"{', '.join(stale)}: not what bench/results gives. Run `python -m bench.report`.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write, or check; gives the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.report", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a file is stale")
    args = parser.parse_args(arguments)
    results = read_results()
    if not args.check:
        write(results)
        for what in figures.missing(results):
            print(f"not measured yet: {what}", file=sys.stderr)
        return 0
    try:
        check(results)
    except StaleError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
