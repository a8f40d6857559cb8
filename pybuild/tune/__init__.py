"""`python -m pybuild tune`: trains a small adapter that makes a decoder answer typed questions.

With `--shallow`, one that makes it answer as it does now where texts go through its lower layers only.

Needs the `train` extra (PyTorch); this module itself does not, so that the command line can list the command.
"""

from __future__ import annotations

import argparse
import functools
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
from typedecide.shallow import ANCHORS, DEFAULT_ANCHOR

if TYPE_CHECKING:
    from pybuild.tune.loop import Loop
    from typedecide.labelled import Labelled

ROOT = Path(__file__).resolve().parents[2]

_DEFAULTS: Mapping[str, tuple[Any, Any]] = {
    "base": (STOCK_MODEL, DEFAULT_MODEL),
    "out": (MODELS / DEFAULT_MODEL, MODELS / f"{DEFAULT_MODEL}-shallow"),
    "work": (ROOT / "build" / "tune", ROOT / "build" / "tune-shallow"),
}
"""Without and with `--shallow`."""

_NEVER_SHALLOW = ("steps", "minutes", "pointer", "kl", "readout", "structure", "template")
_ONLY_SHALLOW = ("anchor", "samples", "epochs", "label_weight")


def add_parser(subparsers: Any) -> None:
    """Add the `tune` command."""
    parser = subparsers.add_parser(
        "tune",
        help="train an adapter (needs PyTorch: requirements/train.txt)",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument

    def add_place(name: str, kind: type, text: str) -> None:
        plain, shallow = (_shown(one) for one in _DEFAULTS[name])
        text += f" (default: {plain}; with --shallow {shallow})"
        add(f"--{name}", type=kind, default=argparse.SUPPRESS, help=text)

    add_place("base", str, "the model to tune, as in `bundle --model`")
    add_place("out", Path, "folder of the adapter")
    add_place("work", Path, "folder of checkpoint and log")
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
    add_shallow = parser.add_argument_group(
        "a shallow model",
        "Texts go through the first K layers only. The upper ones, which see the anchor and the questions, learn from"
        " the model's own answers and from the labels. What reaches them is computed once for each text.",
    ).add_argument
    add_shallow(
        "--shallow", type=int, metavar="K", help="train for a shallow model of K layers (default: none)"
    )
    add_shallow(
        "--anchor",
        choices=ANCHORS,
        default=DEFAULT_ANCHOR,
        help="what all layers see of the prompt before a question: nothing, its first token, or all that stands before"
        " every text",
    )
    add_shallow("--samples", type=int, default=2000, help="texts to train on")
    add_shallow("--epochs", type=int, default=4, help="how often to train on each")
    add_shallow(
        "--label-weight", type=float, default=0.1, help="weight of the labels beside the model's answers"
    )
    parser.set_defaults(func=functools.partial(run, parser))


def _shown(default: object) -> str:
    return str(default.relative_to(ROOT) if isinstance(default, Path) else default)


def run(parser: argparse.ArgumentParser, args: argparse.Namespace) -> int:
    """Train, and write the adapter."""
    _check(parser, args)
    if importlib.util.find_spec("torch") is None:
        raise UnsupportedError(
            "Tuning needs PyTorch: `pip install -r requirements/train.txt`.", package="torch"
        )
    # A thread that waits for another must sleep: where more threads than cores are busy, waiting awake can cost a
    # hundredfold. Read once, when PyTorch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    import torch

    if args.threads:
        torch.set_num_threads(args.threads)
    device = args.device if args.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    training = (_training if args.shallow is None else _distillation)(args, device)
    training.run()
    versions = {name: importlib.metadata.version(name) for name in ("torch", "numpy", "tokenizers")}
    made = {
        "command": f"python -m pybuild {' '.join(sys.argv[1:])}",
        "device": device,
        "threads": torch.get_num_threads(),
    }
    facts = {**made, "versions": {"python": platform.python_version(), **versions}}
    training.write(_given(args, "out"), facts)
    return 0


def _training(args: argparse.Namespace, device: str) -> Loop:
    from pybuild.tune.loop import Limits
    from pybuild.tune.samples import Mix
    from pybuild.tune.task import Shape
    from pybuild.tune.train import Recipe, Training

    shape = Shape(args.readout, args.structure, args.template, args.rank, args.alpha, args.pointer)
    mix = Mix(questions=args.questions, hidden=args.hidden)
    base, work = _given(args, "base"), _given(args, "work")
    recipe = Recipe(base, shape, mix, args.seed, args.steps, args.texts, args.rate, kl=args.kl)
    limits = Limits(args.minutes, args.validate_minutes, args.checkpoint_minutes, args.patience)
    records, held_out = _data(args)
    training = Training(recipe, limits, records, held_out, work, device)
    if args.resume:
        training.resume()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was learned is kept, as with Ctrl-C
    return training


def _distillation(args: argparse.Namespace, device: str) -> Loop:
    from pybuild.tune.loop import CHECKPOINT, Limits
    from pybuild.tune.samples import Mix
    from pybuild.tune.shallow import Distillation, ShallowRecipe, prepare

    work: Path = _given(args, "work")
    recipe = ShallowRecipe(
        _given(args, "base"),
        args.shallow,
        args.anchor,
        Mix(questions=args.questions, hidden=args.hidden),
        args.seed,
        args.samples,
        args.epochs,
        args.texts,
        args.rank,
        args.alpha,
        args.label_weight,
        args.rate,
    )
    limits = Limits(args.minutes, args.validate_minutes, args.checkpoint_minutes, args.patience)
    records, held_out = _data(args)
    training = Distillation(recipe, limits, prepare(recipe, records, held_out, work, device), work)
    if args.resume and (work / CHECKPOINT).is_file():  # a run that ended before has only its kept states
        training.resume()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return training


def _given(args: argparse.Namespace, name: str) -> Any:
    return vars(args).get(name, _DEFAULTS[name][args.shallow is not None])


def _check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """UnsupportedError for an option that the kind of training does not have."""
    shallow = args.shallow is not None
    for name in _NEVER_SHALLOW if shallow else _ONLY_SHALLOW:
        value = getattr(args, name)
        if value != parser.get_default(name):
            where = "not with --shallow" if shallow else "with --shallow only"
            raise UnsupportedError(f"--{name.replace('_', '-')} is there {where}.", option=name, value=value)


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
