"""`python -m bench.heldout`: the stock model and the default one, tuned from it, on data that neither has seen.

It is `python -m typedecide evaluate` with arguments of its own, behind which others may be given: table, report, and
the results that README and model card quote.
"""

from __future__ import annotations

import sys

from pybuild.sources import DEFAULT_MODEL, STOCK_MODEL
from typedecide.__main__ import main

ARGUMENTS = (
    *("--suite", "heldout"),
    *("--model", STOCK_MODEL),
    *("--model", DEFAULT_MODEL),
    *("--limit", "50"),
    *("--resume", "build/evaluate/heldout.log.jsonl"),
    *("--report", "build/evaluate/heldout.html"),
    *("--json", "bench/results/heldout.json"),
)

if __name__ == "__main__":
    sys.exit(main(["evaluate", *ARGUMENTS, *sys.argv[1:]]))
