"""Seeded generator of short texts whose attributes are known, and of questions about them.

Knows nothing of data sets, splits of real data, models or files other than its own `data/*.txt`: one file is one
kind of text. Adding a kind means adding a file; `kinds.py` says what is in it.
"""

from bench.generator.ask import Asked, ask
from bench.generator.compose import Text, compose
from bench.generator.kinds import Attribute, Kind, Value, kinds

__all__ = ["Asked", "Attribute", "Kind", "Text", "Value", "ask", "compose", "kinds"]
