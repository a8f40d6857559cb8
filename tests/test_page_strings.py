"""Every sentence of the page is in one file."""

from __future__ import annotations

import re
import subprocess

from pybuild import npm
from tests.conftest import ROOT


def test_sentences_are_in_one_file() -> None:
    command = [str(npm.node()), "--test", "--test-reporter=tap", "tests/js/strings.test.js"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    assert re.search(r"^# pass [1-9]", done.stdout, re.M) and "\n# skipped 0" in done.stdout
