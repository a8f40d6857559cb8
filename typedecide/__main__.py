"""`python -m typedecide`: answer questions about a text from the command line, in the page's engine or natively.

Knows files, arguments and the terminal; the engines do the rest. Exit status: 0, 1 for an engine that failed, 2 for
arguments or input that cannot be used.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typedecide
from typedecide import cli_batch, cli_calibrate, cli_evaluate, cli_serve, shallow, terminal
from typedecide.bundle import Bundle
from typedecide.cli_engine import DEVICES, VARIANTS, open_engine
from typedecide.errors import (
    BundleError,
    InvalidQuestionError,
    InvalidStateError,
    TooLongError,
    TypedecideError,
)
from typedecide.inputs import (
    InputError,
    add_calibration_argument,
    decode,
    display,
    explain,
    ordering_level,
    parse_asked,
    read_bytes,
    read_json,
    whole,
)
from typedecide.options import READOUTS, Options, readouts_of, resolve
from typedecide.orderings import Level
from typedecide.questions import Question
from typedecide.results import Debiased, Decided, DecisionEngine
from typedecide.terminal import Status

BAD_INPUT = (BundleError, InvalidQuestionError, InvalidStateError, TooLongError)
"""Errors that are about what the user gave, not about the engine."""

_EXAMPLES = """examples:
  python -m typedecide demo
  python -m typedecide decide --state ticket.txt --questions questions.json
  cat ticket.txt | python -m typedecide decide --state - --questions questions.json --device native --json
  python -m typedecide decide --state ticket.txt --questions questions.json --readout labels --orderings all

questions.json holds questions by id, in the System One form:
  {"queue":  {"type": "choice", "instructions": "Which team?", "criteria": ["billing", "accounts"]},
   "refund": {"type": "noul",   "criteria": "Does the customer ask for money back?"},
   "mood":   {"type": "score",  "instructions": "How satisfied?", "criteria": ["furious", "neutral", "pleased"]}}
"""


@dataclass(frozen=True)
class Task:
    """What to decide: a state and questions by id, and the names of the files that they came from."""

    state: str
    questions: Mapping[str, Question]
    state_file: str
    questions_file: str


@dataclass(frozen=True)
class Result:
    """What was decided, by what, and by which readout."""

    info: Mapping[str, Any]
    readout: str
    decided: Decided

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, numbers in full precision."""
        done = self.decided
        return {
            "model": self.info["model"]["name"],
            "device": self.info["device"],
            "candidate": self.info["candidate"],
            "format": self.info["format"],
            "readout": self.readout,
            "prefix_tokens": done.prefill.tokens,
            "prefill_ms": done.prefill.ms,
            "score_ms": done.ms,
            "tokens_run": done.tokens_run,
            "tokens_saved": done.tokens_saved,
            "runs": done.runs,
            "answers": {key: one.to_dict() for key, one in done.answers.items()},
        }


# -- reading --------------------------------------------------------------------------------------------------------


def read_task(state: str, questions: str) -> Task:
    """The task in two files; `-` as the state is standard input."""
    return Task(
        state=decode(state, read_bytes(state)),
        questions=parse_asked(questions, read_json(questions)),
        state_file=display(state),
        questions_file=questions,
    )


def read_sample(bundle: Bundle) -> Task:
    """The sample that a bundle ships with its page."""
    path = str(bundle.root / "app" / "decide" / "samples" / "support.json")
    sample = read_json(path)
    if not isinstance(sample, dict) or not isinstance(sample.get("state"), str):
        raise InputError(f"{path}: not an object with a state and questions.", path=path)
    return Task(sample["state"], parse_asked(path, sample.get("questions")), path, path)


# -- deciding -------------------------------------------------------------------------------------------------------


def asking(args: argparse.Namespace, bundle: Bundle, task: Task) -> tuple[Level | None, Options]:
    """What the arguments say about how to ask, checked against the questions: the engines know no names."""
    readout, known = args.readout or str(bundle.manifest["readout"]), readouts_of(bundle.manifest)
    if readout not in known:
        raise InputError(
            f"--readout {readout}: this bundle has {', '.join(known)}.", readout=readout, known=[*known]
        )
    given = {
        "--orderings": args.orderings,
        "--budget": args.budget,
        "--early-stop": args.early_stop or None,
        "--prior": args.prior,
    }
    for name, value in given.items():
        if value is not None and readout != "labels":
            shown = name if value is True else f"{name} {value}"
            raise InputError(
                f"{shown}: the {readout} readout has neither orders of the options nor a prior;"
                f" leave {name} out, or add --readout labels.",
                readout=readout,
                **{name.lstrip("-"): value},
            )
    if args.budget is not None and args.orderings not in (None, "auto"):
        raise InputError(
            f"--budget {args.budget}: only --orderings auto has a budget, not {args.orderings}.",
            budget=args.budget,
            orderings=args.orderings,
        )
    for key, question in task.questions.items():
        n = len(question.names)
        if isinstance(args.orderings, int) and args.orderings > n:
            raise InputError(
                f"--orderings {args.orderings}: the question {key!r} has {n} options, and so at most {n} orders."
                " `auto` and `all` fit every question.",
                question=key,
                options=n,
            )
    options = Options(readout=readout, budget=args.budget, early_stop=args.early_stop, prior=args.prior)
    return args.orderings, options


def decide(
    engine: DecisionEngine, task: Task, orderings: Level | None, options: Options, status: Status
) -> Decided:
    """Answer the questions of a task, and say how far that is."""
    count, done = len(task.questions), 0

    def answered(key: str, _: Debiased) -> None:
        nonlocal done
        done += 1
        status.say(f"Answered {done} of {count}: {key}")

    status.say(f"Reading the text and asking {count} question{'' if count == 1 else 's'}")
    try:
        return engine.decide(task.state, task.questions, orderings, on_answer=answered, **options)
    except InvalidStateError as error:
        raise InputError(f"{task.state_file}: {error.message}", **error.data) from error
    except InvalidQuestionError as error:
        raise InputError(f"{task.questions_file}: {explain(error)}", **error.data) from error
    except TooLongError as error:
        # A question that is too long behind its text says how long the text is.
        file = task.questions_file if "prefix" in error.data else task.state_file
        raise InputError(f"{file}: {error.message}", **error.data) from error


# -- showing --------------------------------------------------------------------------------------------------------


def show_result(result: Result) -> None:
    """Print the answers as a table, and below it what they cost."""
    rich = terminal.rich()
    console = rich.console.Console()
    info, done = result.info, result.decided
    calibrated = ", calibrated" if any(one.calibration for one in done.answers.values()) else ""
    table = rich.table.Table(
        title=f"{info['model']['name']}, {info['format']}, {result.readout} readout{calibrated},"
        f" on {info['candidate']}"
    )
    for heading in ("question", "answer"):
        table.add_column(heading, overflow="fold")
    table.add_column("probability", no_wrap=True)
    for heading in ("confidence", "orders", "flip rate"):
        table.add_column(heading, justify="right", no_wrap=True)
    for key, one in done.answers.items():
        table.add_row(*_cells(key, one))
    console.print(table)
    if info["shallow"]:
        console.print(shallow.words(info["shallow"]), highlight=False, soft_wrap=True)
    console.print(
        f"{done.prefill.tokens} tokens read once in {done.prefill.ms:.0f} ms; answers in {done.ms:.0f} ms: "
        f"{done.tokens_run} tokens run, {done.tokens_saved} saved, {done.runs} "
        f"run{'' if done.runs == 1 else 's'}",
        highlight=False,
        soft_wrap=True,
    )


def _cells(key: str, one: Debiased) -> Iterable[Any]:
    rich = terminal.rich()
    answer = one.answer
    top = max(answer.probabilities)
    bar = rich.table.Table.grid(padding=(0, 1))
    bar.add_row(rich.progress_bar.ProgressBar(total=1, completed=top, width=10), f"{top:.3f}")
    level = f" ({answer.value:.2f} of {len(answer.names) - 1})" if answer.kind == "score" else ""
    unsure = " (abstains)" if one.calibration is not None and one.calibration.abstain else ""
    return (
        rich.markup.escape(key),
        rich.markup.escape(f"{answer.choice}{level}{unsure}"),
        bar,
        f"{answer.confidence:.3f}",
        str(one.orderings_used),
        f"{one.flip_rate:.0%}",
    )


def describe(bundle: Bundle) -> dict[str, Any]:
    """What `info` shows: the model, and each weight format with its size and what it costs."""
    return {
        "bundle": str(bundle.root),
        "typedecide": bundle.manifest["typedecide"],
        "model": dict(bundle.model),
        "shallow": bundle.shallow and bundle.shallow.facts(bundle.model["shape"]["layers"]),
        "limits": dict(bundle.limits),
        "labels": len(bundle.labels),
        "readout": bundle.manifest["readout"],
        "readouts": [*readouts_of(bundle.manifest)],
        "calibration": _calibration(bundle),
        "default_format": bundle.default_format,
        "formats": {
            name: {"bytes": one.bytes, "graphs": list(one.graphs), "drift": dict(one.drift)}
            for name, one in bundle.formats.items()
        },
        "bytes": sum(entry.bytes for entry in bundle.files.values()),
    }


def _calibration(bundle: Bundle) -> dict[str, Any] | None:
    document = bundle.manifest.get("calibration")
    return document and {name: document[name] for name in ("format", "readout", "kinds", "abstain")}


def show_info(facts: Mapping[str, Any]) -> None:
    """Print what `describe` found."""
    rich = terminal.rich()
    console = rich.console.Console()
    model = facts["model"]
    for name, value in (
        ("model", model["name"]),
        ("licence", model["licence"]),
        (
            "context",
            f"{facts['limits']['context']} tokens, {facts['labels']} option labels, {facts['readout']} readout",
        ),
        ("bundle", f"{facts['bundle']}, {facts['bytes'] / 1e6:.1f} MB, by typedecide {facts['typedecide']}"),
    ):
        console.print(f"[bold]{name}[/bold] {rich.markup.escape(str(value))}", highlight=False)
    if facts["shallow"]:
        console.print(rich.markup.escape(shallow.words(facts["shallow"])), highlight=False)
    table = rich.table.Table("format", "MB", "graphs", "largest drift", "mean drift", "changed answers")
    for name, one in facts["formats"].items():
        mark = " (default)" if name == facts["default_format"] else ""
        table.add_row(f"{name}{mark}", f"{one['bytes'] / 1e6:.1f}", ", ".join(one["graphs"]), *_drift(one))
    console.print(table)


def _drift(one: Mapping[str, Any]) -> tuple[str, str, str]:
    drift = one["drift"]
    return f"{drift['max']:.4f}", f"{drift['mean']:.4f}", f"{drift['flips']} of {drift['prompts']}"


# -- the commands ---------------------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="python -m typedecide",
        description="Typed questions about a text, answered as a probability for each option.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=typedecide.__version__)
    commands = top.add_subparsers(required=True, metavar="command")

    one = _command(commands, "decide", "answer the questions of one file about the text of another", _decide)
    one.add_argument("--state", required=True, metavar="FILE", help="the text, UTF-8; - for standard input")
    one.add_argument("--questions", required=True, metavar="FILE.json", help="the questions, by id")
    _engine_arguments(one)

    demo = _command(commands, "demo", "answer the sample questions that the bundle ships", _demo)
    _engine_arguments(demo)

    _module(
        commands,
        "evaluate",
        "say how far a model can be trusted, measured on labelled decisions",
        cli_evaluate,
    )
    _module(commands, "calibrate", "fit temperatures and a threshold for abstaining", cli_calibrate)
    _module(commands, "batch", "answer the same questions about every row of a table", cli_batch)
    _module(commands, "serve", "answer the System One API over HTTP", cli_serve)

    _command(commands, "info", "say what a bundle holds: model, formats, sizes, drift", _info)
    return top


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, about: str, func: Any
) -> argparse.ArgumentParser:
    command = commands.add_parser(
        name,
        help=about,
        description=about[0].upper() + about[1:] + ".",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument(
        "--bundle", type=Path, default=Path("dist"), metavar="DIST", help="the bundle folder (default: dist)"
    )
    command.add_argument("--json", action="store_true", help="print one JSON object, numbers in full")
    command.set_defaults(func=func)
    return command


def _module(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, about: str, module: Any
) -> None:
    """A command that has a module of its own."""
    command = commands.add_parser(
        name,
        help=about,
        description=about[0].upper() + about[1:] + ".",
        epilog=module.EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(command)
    command.set_defaults(func=module.run)


def _engine_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--device",
        choices=DEVICES,
        default="auto",
        help="the page's engine in headless Chromium on WebGPU or WASM, or the same graph in Python (native);"
        " auto: what the page chooses",
    )
    command.add_argument("--format", help="weight format (default: the bundle's own; see info)")
    command.add_argument("--variant", choices=VARIANTS, help="graph variant, for --device native")
    command.add_argument("--threads", type=whole(1), metavar="N", help="processor threads")
    command.add_argument(
        "--readout",
        choices=READOUTS,
        help="what answers: the letters of listed options, the options' own texts, or a trained pointer, where the"
        " bundle has it (default: the bundle's)",
    )
    command.add_argument(
        "--orderings",
        type=ordering_level,
        metavar="auto|all|K",
        help="for labels: in how many orders of its options each question is read: both of two options and up to"
        " --budget of more (auto, the default), every cyclic one (all), or K; 1 reads only the order given",
    )
    command.add_argument(
        "--budget",
        type=whole(2),
        metavar="K",
        help="the most orders that auto reads (default: the bundle's)",
    )
    command.add_argument(
        "--early-stop",
        action="store_true",
        help="for labels: leave out orders that can hardly change an answer any more",
    )
    command.add_argument(
        "--prior",
        choices=["content-free"],
        help="for labels: take out what the model answers where there is no text",
    )
    add_calibration_argument(command)


def _decide(args: argparse.Namespace) -> None:
    task = read_task(args.state, args.questions)
    _answer(args, Bundle.open(args.bundle), task)


def _demo(args: argparse.Namespace) -> None:
    bundle = Bundle.open(args.bundle)
    _answer(args, bundle, read_sample(bundle))


def _answer(args: argparse.Namespace, bundle: Bundle, task: Task) -> None:
    if args.variant and args.device != "native":
        raise InputError(
            f"--variant {args.variant}: only --device native takes a variant; the page chooses its own.",
            variant=args.variant,
            device=args.device,
        )
    orderings, options = asking(args, bundle, task)
    how = resolve(bundle.manifest, "native", orderings, options)
    calibration = cli_calibrate.given(args.calibration, bundle, args.format, how)
    with (
        Status() as status,
        open_engine(
            args.device,
            args.bundle,
            status,
            format=args.format,
            variant=args.variant,
            threads=args.threads,
            calibration=calibration,
        ) as engine,
    ):
        decided = decide(engine, task, orderings, options, status)
        result = Result(engine.info, str(options["readout"]), decided)
    if args.json:
        print(json.dumps(result.to_dict(), indent=2, allow_nan=False))
    else:
        show_result(result)


def _info(args: argparse.Namespace) -> None:
    facts = describe(Bundle.open(args.bundle))
    if args.json:
        print(json.dumps(facts, indent=2))
    else:
        show_info(facts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit status."""
    args = parser().parse_args(arguments)
    try:
        args.func(args)
        sys.stdout.flush()
    except (InputError, *BAD_INPUT) as error:
        print(f"error: {explain(error)}", file=sys.stderr)
        return 2
    except TypedecideError as error:
        print(f"error: {error.code}: {error.message}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader left (`| head`). Without this, Python would complain again when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
