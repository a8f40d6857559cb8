"""The programs that the page's Code tab writes, and its JSON of questions, outside of a browser."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from pybuild import npm

ROOT = Path(__file__).resolve().parents[1]


def call(command: str, given: object) -> Any:
    """What a command of tests/js/program.js makes of a value."""
    done = subprocess.run(
        [str(npm.node()), "tests/js/program.js", command],
        cwd=ROOT,
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def write(text: str, questions: object, options: object = None) -> dict[str, str]:
    """The program of each language for a text and questions by id, in the System One form."""
    task = {
        "text": text,
        "questions": questions,
        "options": options or {},
        "bundle": "https://host.example/b/",
    }
    programs: dict[str, str] = call("generate", task)
    return programs
