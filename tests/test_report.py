"""Report, README and model card say what bench/results holds, and nothing else."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from bench import common, report
from pybuild.sources import DEFAULT_MODEL

RESULTS = report.read_results()
CARD = f"models/{DEFAULT_MODEL}/README.md"


def test_nothing_is_stale() -> None:
    report.check(RESULTS)
    assert report.main(["--check"]) == 0


def test_every_result_is_told() -> None:
    text = report.report(RESULTS)
    for name, result in RESULTS.items():
        assert f"\n## {name}\n" in text
        if name != report.HELDOUT:
            assert f"$ {result['command']}\n" in text
    for plot in common.RESULTS.glob("*.svg"):
        assert f"(results/{plot.name})" in text


@pytest.mark.parametrize(
    ("path", "value", "files"),
    [
        (("heldout", "totals", 0, "accuracy"), 0.123, {"README.md", "bench/REPORT.md", CARD}),
        (("faults", "rows", 0, "survived"), False, {"README.md", "bench/REPORT.md"}),
        (("packing-wasm-fp32", "max_drift"), 0.123, {"README.md"}),
        (("shared_check-wasm-fp32", "max_drift"), 0.123, {"bench/REPORT.md"}),
    ],
)
def test_another_result_makes_them_stale(path: tuple[str | int, ...], value: Any, files: set[str]) -> None:
    results: Any = copy.deepcopy(dict(RESULTS))
    at = results
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    with pytest.raises(report.StaleError) as caught:
        report.check(results)
    assert set(str(caught.value).split(":")[0].split(", ")) == files


def test_a_block_that_nobody_knows() -> None:
    with pytest.raises(KeyError, match="weather"):
        report.filled("<!-- figures weather -->\n<!-- /figures -->", RESULTS)
