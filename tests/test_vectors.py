"""The shared vectors: up to date, and met by Python and by JavaScript."""

from __future__ import annotations

import doctest
import json
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from pybuild import npm
from tests import make_vectors, vector_checks
from typedecide import columns, pointer, prior, readout, recent, text, wire_json

ROOT = Path(__file__).parent.parent
FOLDER = vector_checks.FOLDER


def stored_encoders() -> dict[str, make_vectors.Encoder]:
    names = vector_checks.TOKENIZERS
    return {name: make_vectors.Encoder(vector_checks.load(f"tokenizer-{name}.json")) for name in names}


CHECKS = list(vector_checks.checks(stored_encoders()))


def test_vectors_are_up_to_date() -> None:
    assert make_vectors.stale_files(FOLDER) == []


def test_check_fails_on_stale_vectors(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "vectors")
    planted = tmp_path / "vectors" / "readout.json"
    document = json.loads(planted.read_text("ascii"))
    document["readouts"][0]["expect"]["confidence"] += 1e-9
    planted.write_text(json.dumps(document), "ascii")
    (tmp_path / "vectors" / "prompt.json").unlink()
    assert make_vectors.stale_files(tmp_path / "vectors") == ["prompt.json", "readout.json"]


def test_vectors_cover_every_error_that_these_modules_raise() -> None:
    text = "".join((FOLDER / name).read_text("ascii") for name in make_vectors.build())
    codes = set(re.findall(r'"code": "([A-Z_]+)"', text))
    assert codes == {
        "ABORTED",
        "DEVICE_LOST",
        "INVALID_QUESTION",
        "INVALID_REQUEST",
        "NEWER",
        "TOO_LONG",
        "INVALID_STATE",
        "PREFIX_MISMATCH",
        "BUNDLE",
        "INTEGRITY",
        "UNSUPPORTED",
    }


@pytest.mark.parametrize("check", [check for _, check in CHECKS], ids=[ascii(name) for name, _ in CHECKS])
def test_vector(check: vector_checks.Check) -> None:
    check()


def test_every_list_of_cases_is_checked() -> None:
    known = {name.split(" ", 2)[0]: set[str]() for name, _ in CHECKS}
    for name, _ in CHECKS:
        file, group, _ = name.split(" ", 2)
        known[file].add(group)
    lists = {
        file: {group for group, cases in document.items() if isinstance(cases, list)}
        for file, document in make_vectors.build().items()
        if not file.startswith("tokenizer-")
    }
    assert known == lists


@pytest.mark.parametrize(
    "module",
    [columns, pointer, prior, recent, readout, text, wire_json],
    ids=lambda module: module.__name__,
)
def test_examples_in_docstrings(module: ModuleType) -> None:
    failed, tried = doctest.testmod(module)
    assert failed == 0 and tried > 0


def test_javascript_agrees() -> None:
    command = [str(npm.node()), "--test", "--test-reporter=tap", "tests/js/vectors.test.js"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    # The file has to run to its end: no test at all would pass as well.
    assert re.search(r"^# pass 18$", done.stdout, re.M), done.stdout
    assert re.search(r"^# skipped 0$", done.stdout, re.M), done.stdout
