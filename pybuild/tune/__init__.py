"""`python -m pybuild tune`: trains a small adapter that makes a decoder answer typed questions.

Needs the `train` extra (PyTorch); this module itself does not, so that the command line can list the command.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import itertools
import os
import platform
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pybuild.sources import DEFAULT_MODEL, MODELS, STOCK_MODEL
from typedecide.errors import UnsupportedError

if TYPE_CHECKING:
    from typedecide.labelled import Labelled

ROOT = Path(__file__).resolve().parents[2]


def add_parser(subparsers: Any) -> None:
    """Add the `tune` command."""
    parser = subparsers.add_parser(
        "tune",
        help="train an adapter (needs PyTorch: requirements/train.txt)",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--base", default=STOCK_MODEL, help="the model to tune, as in `bundle --model`")
    add("--out", type=Path, default=MODELS / DEFAULT_MODEL, help="folder of the adapter")
    add("--work", type=Path, default=ROOT / "build" / "tune", help="folder of checkpoint and log")
    add("--resume", action="store_true", help="go on from the checkpoint in --work")
    add(
        "--data",
        type=Path,
        nargs="+",
        metavar="JSONL",
        help="train on these labelled records, not on bench.datasets",
    )
    add("--valid", type=Path, nargs="+", metavar="JSONL", help="validate on these, with --data")
    add("--valid-records", type=int, default=60, help="records of each validation task")
    add("--steps", type=int, default=0, help="steps; 0: as many as fit in --minutes")
    add("--minutes", type=float, default=60, help="about how long to train, where --steps is not given")
    add("--validate-minutes", type=float, default=10)
    add("--checkpoint-minutes", type=float, default=5)
    add(
        "--patience",
        type=int,
        default=0,
        help="stop after so many validations without a better one; 0: never",
    )
    add("--seed", type=int, default=0)
    add(
        "--threads",
        type=int,
        default=0,
        help="0: PyTorch's choice. One is faster where others use the machine too",
    )
    add("--device", default="auto", help="auto, cpu or cuda")
    add("--texts", type=int, default=8, help="texts of one step, each with all its questions")
    add("--rate", type=float, default=8e-4, help="highest learning rate")
    add("--rank", type=int, default=16)
    add("--alpha", type=float, default=16)
    add("--pointer", type=int, default=256, help="size of the pointer's queries and keys")
    add("--questions", type=int, default=8, help="most questions about one text")
    add("--hidden", type=float, default=0.08, help="share of texts that are taken away")
    add(
        "--kl",
        type=float,
        default=0.0,
        help="weight of staying near the base model's next-token distributions",
    )
    add("--readout", choices=("pointer", "labels", "text"), default="pointer")
    add("--structure", choices=("set", "list"), default="set")
    add("--template", choices=("plain", "chat"), default="plain")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Train, and write the adapter."""
    if importlib.util.find_spec("torch") is None:
        raise UnsupportedError(
            "Tuning needs PyTorch: `pip install -r requirements/train.txt`.", package="torch"
        )
    # A thread that waits for another must sleep: where more threads than cores are busy, waiting awake can cost a
    # hundredfold. Read once, when PyTorch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    import torch

    from pybuild.tune.samples import Mix
    from pybuild.tune.task import Shape
    from pybuild.tune.train import Limits, Recipe, Training

    if args.threads:
        torch.set_num_threads(args.threads)
    device = args.device if args.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    shape = Shape(args.readout, args.structure, args.template, args.rank, args.alpha, args.pointer)
    mix = Mix(questions=args.questions, hidden=args.hidden)
    recipe = Recipe(args.base, shape, mix, args.seed, args.steps, args.texts, args.rate, kl=args.kl)
    limits = Limits(args.minutes, args.validate_minutes, args.checkpoint_minutes, args.patience)
    records, held_out = _data(args)
    training = Training(recipe, limits, records, held_out, args.work, device)
    if args.resume:
        training.resume()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was learned is kept, as with Ctrl-C
    training.run()
    versions = {name: importlib.metadata.version(name) for name in ("torch", "numpy", "tokenizers")}
    made = {
        "command": f"python -m pybuild {' '.join(sys.argv[1:])}",
        "device": device,
        "threads": torch.get_num_threads(),
    }
    training.write(args.out, {**made, "versions": {"python": platform.python_version(), **versions}})
    return 0


def _data(args: argparse.Namespace) -> tuple[Iterator[Labelled], Mapping[str, Sequence[Labelled]]]:
    """Training records without an end, and validation records by task."""
    from bench.datasets import suite, training
    from typedecide.labelled import read_lines

    if args.data is None:
        return training(args.seed), suite("valid", args.valid_records, args.seed)
    if args.valid is None:
        raise UnsupportedError("--data needs --valid: records that are not trained on.", data=args.data)
    labels = dict.fromkeys(("task", "domain", "family", "split", "source"), "data")
    train = [record for path in args.data for record in read_lines(path, **labels).records]
    held_out: dict[str, list[Labelled]] = {}
    for path in args.valid:
        for record in read_lines(path, **labels).records:
            held_out.setdefault(record.task, []).append(record)
    return itertools.cycle(train), held_out
