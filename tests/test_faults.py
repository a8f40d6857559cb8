"""Everything that may break is broken in a real browser, by the benchmark's own faults: no harm may come of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Playwright

from bench import faults
from bench.faults import FAULTS, Outcome, Stage, WrongError, plant
from bench.malformed import malformed
from typedecide.errors import BundleError

pytestmark = pytest.mark.browser

SLOWER = 3
"""How much slower than the benchmark's machine another may be, or one on which other tests are running."""


@pytest.fixture(scope="module")
def stage(playwright: Playwright, dist_pointer: Path) -> Iterator[Stage]:
    with faults.set_up(playwright, dist_pointer) as stage:
        yield stage


@pytest.mark.parametrize("name", FAULTS)
def test_fault_does_no_harm(stage: Stage, name: str) -> None:
    row = plant(stage, name)
    print(row)
    assert row["ms"] is not None, row["happened"]
    assert row["ms"] < SLOWER * (faults.HANG_MS + row["load_ms"])


def test_harm_is_seen(stage: Stage) -> None:
    """The checks themselves: wrong answers, an answer where an error is due, and another error."""
    wrong = [[p + 0.01 for p in one] for one in stage.right]
    with pytest.raises(WrongError, match=r"off by 0\.0"):
        stage.check(wrong)
    with pytest.raises(WrongError, match="off by nan"):
        stage.check([[float("nan")] * len(one) for one in stage.right])
    with pytest.raises(WrongError, match="BUNDLE was due, and there was none"):
        faults.refused(lambda: 1, "BUNDLE")

    def fail() -> None:
        raise BundleError("no manifest")

    with pytest.raises(WrongError, match="QUOTA was due, not BUNDLE: no manifest"):
        faults.refused(fail, "QUOTA")


def test_harm_and_hangs_count(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(_: Stage) -> Outcome:
        return Outcome("it took its time", faults.HANG_MS + 1e6)

    def harmful(_: Stage) -> Outcome:
        raise WrongError("answers are off by 1")

    monkeypatch.setattr(faults, "FAULTS", {"slow": slow, "harmful": harmful})
    assert not plant(stage, "slow")["survived"]
    assert not plant(stage, "harmful")["survived"]


def test_malformed_questions_differ() -> None:
    for kind in ("choice", "noul", "score"):
        found = malformed(kind, 50)
        assert len({repr(question) for question in found}) == 50
        assert found == malformed(kind, 50)
