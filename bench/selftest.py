"""Which of the ways to run a model are right on this device, for which lengths of text and question?

Every candidate of the device runs with every number of cached tokens and every number of new ones, in one piece and
packed as two, whether the start-up self-test lets it through or not. Logits are compared with those of the native
engine in the same format; fp16 is the fp32 graphs with weights and activations in float16 (bench/half.py). What the
start-up self-test lets through should be right everywhere: then the result is sound.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import common, half
from bench.tabs import Tab, chromium
from typedecide.bundle import Bundle
from typedecide.chromium import gpu_args
from typedecide.errors import TypedecideError
from typedecide.inputs import whole
from typedecide.model import Suffix
from typedecide.native import NativeEngine
from typedecide.static_server import PAGE_HEADERS, StaticServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAME = "selftest"
DEVICES = ("wasm", "webgpu")

TOKENS, QUICK_TOKENS = (1, 4, 16, 21, 31, 32, 33, 41, 64, 65, 200), (1, 32, 41)
PREFIXES, QUICK_PREFIXES = (0, 1, 37, 300), (0, 37)

LABELS = 8
"""Logits that each run reads of each suffix."""

_CANDIDATES = """async (device) => {
  const { choose } = await import("./candidates.js");
  return choose(device);
}"""

# Without golden cases a candidate starts whatever it computes; the self-test is run on it afterwards.
_OPEN = """async ({ device, format, candidate, threads }) => {
  const { Store } = await import("./store.js");
  const { Clock } = await import("./clock.js");
  const { start, survey } = await import("./runtime.js");
  const store = await Store.open(new URL("./", location.href), { keep: false });
  const entry = store.manifest.formats[format];
  globalThis.golden = entry.golden;
  entry.golden = [];
  const options = { device, format, threads, candidates: [candidate], clock: new Clock(), report: () => {} };
  const ways = await survey(store.manifest, options);
  const { engine, adapter, ort, threads: used } = await start(store, ways, options);
  Object.assign(globalThis, { engine, entry });
  return { adapter, ort, threads: used };
}"""

_STARTUP = """async () => {
  const { selfTest } = await import("./runtime.js");
  return selfTest(globalThis.engine, { ...globalThis.entry, golden: globalThis.golden }, Infinity);
}"""

_PREFILL = """async (ids) => {
  globalThis.cache?.release();
  globalThis.cache = await globalThis.engine.prefill(ids);
}"""

_SCORE = """async (suffixes) => {
  const { logits } = await globalThis.engine.score(globalThis.cache, suffixes);
  return logits.map((row) => Array.from(row));
}"""


@dataclass(frozen=True)
class Case:
    """One run: behind so many cached tokens, suffixes of so many tokens together, and what is right."""

    prefix: Sequence[int]
    suffixes: Sequence[Suffix]
    logits: Sequence[Sequence[float]]

    @property
    def key(self) -> dict[str, Any]:
        """Which run of the matrix it is."""
        tokens = sum(len(one.ids) for one in self.suffixes)
        return {"prefix": len(self.prefix), "tokens": tokens, "packed": len(self.suffixes) > 1}

    def error(self, found: Sequence[Sequence[float]]) -> float | None:
        """The largest difference of a logit; None where one is no number."""
        pairs = zip(found, self.logits, strict=True)
        apart = [abs(a - b) for row, right in pairs for a, b in zip(row, right, strict=True)]
        return None if any(one != one or one == float("inf") for one in apart) else max(apart)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this benchmark."""
    parser.set_defaults(format="fp32")
    for name, least, usual, short, what in (
        ("--tokens", 1, TOKENS, QUICK_TOKENS, "new tokens of a run"),
        ("--prefixes", 0, PREFIXES, QUICK_PREFIXES, "cached tokens before them"),
    ):
        parser.add_argument(
            name,
            type=whole(least),
            nargs="+",
            metavar="N",
            help=f"{what} (default: {' '.join(map(str, usual))}; with --quick: {' '.join(map(str, short))})",
        )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure, publish and return the results."""
    bundle = bundle_of(args)
    tokens = args.tokens or (QUICK_TOKENS if args.quick else TOKENS)
    prefixes = args.prefixes or (QUICK_PREFIXES if args.quick else PREFIXES)
    context = Bundle.open(bundle).limits["context"]
    if (most := max(tokens) + max(prefixes)) > context:
        raise common.ArgumentError(
            f"--tokens, --prefixes: {most} tokens together; the context holds {context}.", tokens=most
        )
    print(f"computing {args.format} natively", file=sys.stderr, flush=True)
    with NativeEngine(bundle, args.format, threads=args.threads) as native:
        cases = make_cases(native, tokens, prefixes)
        model, reference = native.info["model"], native.info["ort"]["version"]
    result = measure(args, bundle, cases, model)
    result = {**result, "reference": {"onnxruntime": reference}, "tokens": [*tokens], "prefixes": [*prefixes]}
    common.publish(args, result, summarise(result))
    return result


def bundle_of(args: argparse.Namespace) -> Path:
    """The bundle that the arguments ask for; in fp16 one that has that format, or the half bundle of one in fp32."""
    if args.format != half.NAME or (args.bundle and half.NAME in Bundle.open(args.bundle).formats):
        return common.find_bundle(args)
    whole_bundle = common.find_bundle(argparse.Namespace(**{**vars(args), "format": half.SOURCE}))
    return half.half(whole_bundle)


def make_cases(native: NativeEngine, tokens: Sequence[int], prefixes: Sequence[int]) -> list[Case]:
    """Every run of the matrix, with the native engine's logits."""
    state, _ = common.read_sample(native.bundle.root)
    ids: list[int] = []
    while len(ids) < max(tokens) + max(prefixes):
        ids += native.tokenizer.encode(state)
    labels = [label["id"] for label in native.bundle.labels[:LABELS]]
    cases = []
    for length in prefixes:
        prefix = ids[:length]
        cache = native.model.prefill(prefix)
        for count in tokens:
            rest = ids[length : length + count]
            for pieces in _split(rest):
                suffixes = [Suffix(piece, labels) for piece in pieces]
                logits, _ = native.model.score(cache, suffixes)
                cases.append(Case(prefix, suffixes, [row.tolist() for row in logits]))
    return cases


def _split(ids: list[int]) -> Iterator[list[list[int]]]:
    """The tokens in one piece, and where there are two or more, in two that begin differently: none is shared."""
    yield [ids]
    places = sorted(range(1, len(ids)), key=lambda at: abs(at - len(ids) / 2))
    middle = next((at for at in places if ids[at] != ids[0]), None)
    if middle is not None:
        yield [ids[:middle], ids[middle:]]


def measure(
    args: argparse.Namespace, bundle: Path, cases: Sequence[Case], model: Mapping[str, Any]
) -> dict[str, Any]:
    """Run all cases on all candidates, each in a page of its own."""
    from playwright.sync_api import sync_playwright

    tolerance = Bundle.open(bundle).tolerance_of(args.format)
    with (
        StaticServer(bundle, headers=PAGE_HEADERS) as server,
        sync_playwright() as playwright,
        chromium(playwright, extra=gpu_args(args.device)) as browser,
    ):
        tab = Tab(browser.new_page(), server.url)
        candidates = tab.evaluate(_CANDIDATES, args.device)
        tab.page.close()
        done = [try_candidate(args, browser, server.url, one, cases, tolerance) for one in candidates]
        version = browser.version
    nothing: dict[str, Any] = {"adapter": None, "threads": None, "ort": {"version": "", "build": ""}}
    about = next((about for _, about in done if about is not None), nothing)
    info = {"model": model, "device": args.device, "candidate": "all", "format": args.format, **about}
    rows = [row for row, _ in done]
    passed = [row for row in rows if row["startup"] == "passed"]
    return {
        **common.facts(NAME, info, common.page_versions(about["ort"], version)),
        "tolerance": tolerance,
        "rows": rows,
        "sound": all(row["verdict"] == "right" for row in passed) if passed else None,
    }


def try_candidate(
    args: argparse.Namespace,
    browser: Browser,
    url: str,
    candidate: Mapping[str, Any],
    cases: Sequence[Case],
    tolerance: float,
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """One candidate: its row, and what the page says of what it ran on, None where it did not start."""
    name, opening = candidate["name"], {"device": args.device, "format": args.format, "threads": args.threads}
    print(f"{name}: {len(cases)} runs", file=sys.stderr, flush=True)
    row: dict[str, Any] = {
        "candidate": name,
        "graph": candidate["graph"],
        "subgroups": candidate["subgroups"],
    }
    page = browser.new_page()
    try:
        tab = Tab(page, url)
        try:
            about = tab.evaluate(_OPEN, {**opening, "candidate": name})
        except TypedecideError as error:
            trials = error.data.get("selfTest") or [{"reason": error.message}]
            return {**row, **_failed(trials[0]["reason"])}, None
        return {**row, **check(tab, cases, tolerance)}, about
    finally:
        page.close()


def _failed(reason: str) -> dict[str, Any]:
    """A row's figures for a candidate that cannot run, and so is not let through."""
    nothing: dict[str, Any] = {"startup_error": None, "max_error": None, "wrong": [], "runs": []}
    return {"startup": "failed", "verdict": "failed", "reason": reason, **nothing}


def check(tab: Tab, cases: Sequence[Case], tolerance: float) -> dict[str, Any]:
    """The start-up self-test and all cases on the engine that a tab holds."""
    startup, reason = _startup(tab)
    runs = []
    failures = 0
    cached: Sequence[int] | None = None
    for case in cases:
        error = None
        try:
            if case.prefix != cached:
                tab.evaluate(_PREFILL, case.prefix)
                cached = case.prefix
            suffixes = [{"ids": one.ids, "labelIds": one.label_ids} for one in case.suffixes]
            error = case.error(tab.evaluate(_SCORE, suffixes))
        except TypedecideError as failure:
            # A run that fails may leave its cache behind.
            cached, reason, failures = None, reason or failure.message, failures + 1
        runs.append({**case.key, "error": error})
    if failures == len(runs):
        return _failed(reason or "")
    wrong = [one for one in runs if one["error"] is None or one["error"] > tolerance]
    return {
        "startup": "passed" if startup is not None and startup <= tolerance else "rejected",
        "startup_error": startup,
        "verdict": "wrong" if wrong else "right",
        "reason": reason,
        "max_error": None if any(one["error"] is None for one in runs) else max(one["error"] for one in runs),
        "wrong": [{name: one[name] for name in ("prefix", "tokens", "packed")} for one in wrong],
        "runs": runs,
    }


def _startup(tab: Tab) -> tuple[float | None, str | None]:
    """The largest error that the start-up self-test finds, None where that is no number, and why there is none."""
    try:
        found: float = tab.evaluate(_STARTUP)
    except TypedecideError as error:
        return None, error.message
    return (
        (None, "the start-up self-test found what is no number") if found == float("inf") else (found, None)
    )


def summarise(result: Mapping[str, Any]) -> str:
    """The figures as a table: the larger error of both forms of each run."""
    lines = [
        f"{NAME}: {result['model']}, {result['layers']} layers, {result['format']} on {result['device']}"
        f" ({result['adapter'] or result['processor']}): largest error of a logit, {result['tolerance']:g} allowed"
    ]
    for row in result["rows"]:
        startup = row["startup"] + ("" if row["startup_error"] is None else f" ({row['startup_error']:.1e})")
        wrong = f", {len(row['wrong'])} of {len(row['runs'])} runs" if row["wrong"] else ""
        reason = "" if row["reason"] is None else f": {row['reason']}"
        lines.append(
            f"  {row['candidate']}: {row['verdict'].upper()}{wrong}; start-up self-test {startup}{reason}"
        )
        if row["runs"]:
            lines.append(f"  {'cached':>8}" + "".join(f"{f'{count} new':>9}" for count in result["tokens"]))
        for prefix in result["prefixes"] if row["runs"] else []:
            cells = (_cell(row["runs"], prefix, count) for count in result["tokens"])
            lines.append(f"  {prefix:>8}" + "".join(f"{cell:>9}" for cell in cells))
    sound = {True: "right everywhere", False: "NOT right everywhere", None: "nothing"}[result["sound"]]
    lines.append(f"  what the start-up self-test lets through is {sound}")
    return "\n".join(lines)


def _cell(runs: Sequence[Mapping[str, Any]], prefix: int, tokens: int) -> str:
    errors = [one["error"] for one in runs if (one["prefix"], one["tokens"]) == (prefix, tokens)]
    return "none" if None in errors else f"{max(errors):.1e}"
