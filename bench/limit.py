"""How much of the runtime's own matrix-product rate does the engine reach, and where does the rest of its time go?

In one page and one build of ONNX Runtime Web, by turns: plain products of matrices in the shapes of the model's layers,
and the engine's prefill of a text, its packed run of all questions, and one question alone. The share is the time that
the layers' operations would take at the plain products' rate, over the time taken; attention's operations are counted
apart. Then all is run once more under the runtime's profiler (WASM only).
"""

from __future__ import annotations

import argparse
import base64
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onnx import TensorProto, helper

from bench import common, ort_profile
from bench.cost_model import FLOAT_BYTES, CostModel
from bench.probe import ProbedPage
from typedecide.bundle import Bundle
from typedecide.questions import Question, to_wire

NAME = "limit"
DEVICES = ("wasm", "webgpu")

THREADS = (1, 2)
REPEATS, QUICK_REPEATS = 5, 1
QUICK_QUESTIONS = 3

PHASES = {"prefill": "prefill", "packed": "all questions", "suffix": "one question"}
"""What the engine is asked to do, and the words for it."""

TARGET = 0.8
"""Share of the runtime's rate that prefill and packed runs should reach."""

WEIGHT_BYTES, QUICK_WEIGHT_BYTES = 32 * 2**20, 2**20
MOST_COPIES = 80
"""A run of plain products takes so many bytes of different weights, as a model does: the same ones would stay in the
processor's cache. And the most matrices for that."""

STATE_BYTES = 2**28

COPIES, SCRIPT, MESSAGES = "copies to and from the runtime", "JavaScript", "messages to the worker"
"""Parts of a phase that the runtime's profile does not know."""

COUNTED = {
    ort_profile.LAYER_PRODUCTS: "layer_flops",
    ort_profile.ATTENTION_PRODUCTS: "attention_flops",
}
"""Parts whose operations follow from the profile as well, and what they are called in the results."""

_WEIGHTS = "weights.bin"

_OPEN = """async ({ graph, floats, file }) => {
  const { ort, device } = watched.engine();
  const bytes = Uint8Array.from(atob(graph), (one) => one.charCodeAt(0));
  watched.noise = (size) => Float32Array.from({ length: size }, (_, i) => ((i * 7919) % 1999) / 1e3 - 1);
  const session = await watched.create(bytes, {
    executionProviders: [device ? { name: "webgpu", device } : "wasm"],
    externalData: [{ path: file, data: new Uint8Array(watched.noise(floats).buffer) }],
    logSeverityLevel: 3,
  });
  watched.products = [...(watched.products ?? []), session];
  return watched.products.length - 1;
}"""

_TIME = """async ({ product, rows, inner }) => {
  const { ort } = watched.engine();
  const x = new ort.Tensor("float32", watched.noise(rows * inner), [rows, inner]);
  const began = performance.now();
  await watched.products[product].run({ x });
  return performance.now() - began;
}"""

_DO = """async (engine, { phase, state, questions }) => {
  if (phase === "prefill") await engine.release();
  const asked = phase === "suffix" ? questions.slice(0, 1) : questions;
  const began = performance.now();
  const { ms } = phase === "prefill" ? await engine.prefill(state) : await engine.scoreAll(asked);
  return { page_ms: performance.now() - began, ms };
}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """This benchmark has no arguments of its own."""


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure, publish, draw and return the results."""
    bundle = common.find_bundle(args)
    if Bundle.open(bundle).manifest.get("stock"):
        raise common.ArgumentError(f"{bundle} is a community's export: its graph is not ours to count.")
    state, sample = common.read_sample(bundle)
    questions = list(sample.values())
    if args.quick:
        state, questions = common.shorten(state), questions[:QUICK_QUESTIONS]
    counts = (args.threads,) if args.threads else THREADS if args.device == "wasm" else (1,)
    repeats, weight_bytes = (QUICK_REPEATS, QUICK_WEIGHT_BYTES) if args.quick else (REPEATS, WEIGHT_BYTES)
    with common.open_page(args, bundle) as page:
        measured = [measure(page, state, questions, count, repeats, weight_bytes) for count in counts]
        profiled = None if args.device == "webgpu" else profile(page, state, questions, counts[-1], repeats)
        facts = common.describe(NAME, page)
    result = {
        **facts,
        "criteria": len(questions),
        "repeats": repeats,
        "target": TARGET,
        "measured": measured,
        "profile": profiled,
    }
    path = common.publish(args, result, summarise(result))
    if path is not None:
        plot(result, path.with_suffix(".svg"))
        print(f"wrote {path.with_suffix('.svg')}")
    return result


# ---- the runtime's own rate


def product_graph(inner: int, columns: int, copies: int) -> bytes:
    """A graph that multiplies x [rows, inner] by so many different matrices [inner, columns] of an external file, and
    gives one row of each product: what is not wanted should not be copied."""
    weights = []
    for i in range(copies):
        weight = TensorProto(name=f"w{i}", data_type=TensorProto.FLOAT, dims=[inner, columns])
        weight.data_location = TensorProto.EXTERNAL
        size = FLOAT_BYTES * inner * columns
        for key, value in (("location", _WEIGHTS), ("offset", i * size), ("length", size)):
            weight.external_data.add(key=key, value=str(value))
        weights.append(weight)
    nodes = [
        node
        for i in range(copies)
        for node in (
            helper.make_node("MatMul", ["x", f"w{i}"], [f"y{i}"]),
            helper.make_node("Gather", [f"y{i}", "first"], [f"z{i}"], axis=0),
        )
    ]
    nodes.append(helper.make_node("Concat", [f"z{i}" for i in range(copies)], ["z"], axis=0))
    graph = helper.make_graph(
        nodes,
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", inner])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [copies, columns])],
        [*weights, helper.make_tensor("first", TensorProto.INT64, [1], [0])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    serialised: bytes = model.SerializeToString()
    return serialised


class Products:
    """Plain products of the model's shapes, in the engine's worker and its runtime."""

    def __init__(self, page: ProbedPage, shapes: Sequence[tuple[int, int]], weight_bytes: int) -> None:
        self._page = page
        self._opened: dict[tuple[int, int], tuple[int, int]] = {}
        for inner, columns in shapes:
            floats = inner * columns
            copies = max(1, min(MOST_COPIES, weight_bytes // (FLOAT_BYTES * floats)))
            graph = base64.b64encode(product_graph(inner, columns, copies)).decode()
            argument = {"graph": graph, "floats": copies * floats, "file": _WEIGHTS}
            self._opened[inner, columns] = page.in_worker(_OPEN, argument), copies

    def time(self, rows: int) -> dict[tuple[int, int], float]:
        """Milliseconds of one product of so many rows, for each shape."""
        found = {}
        for (inner, columns), (product, copies) in self._opened.items():
            argument = {"product": product, "rows": rows, "inner": inner}
            found[inner, columns] = self._page.in_worker(_TIME, argument) / copies
        return found


# ---- the engine's share of it


def measure(
    page: ProbedPage,
    state: str,
    questions: Sequence[Question],
    threads: int,
    repeats: int,
    weight_bytes: int,
) -> dict[str, Any]:
    """The rates and the engine's share of them with so many threads; products and engine by turns."""
    _say(f"{threads} threads: products and engine")
    page.restart(STATE_BYTES, ort_profile.WATCH % "false", threads)
    model = page.bundle.manifest["model"]
    cost = CostModel.of(model)
    ask = _asking(page, state, questions)
    # The first runs compile and allocate; they also say how many rows there are.
    runs = {phase: ask(phase)["runs"] for phase in PHASES}
    rows = {phase: max(one["tokens"] for one in found) for phase, found in runs.items()}
    products = Products(page, cost.shapes(), weight_bytes)
    counted = sorted({*rows.values(), *([1] if page.info["device"] == "webgpu" else [])})
    for size in counted:
        products.time(size)
    times: dict[int, list[dict[tuple[int, int], float]]] = {size: [] for size in counted}
    done: dict[str, list[dict[str, float]]] = {phase: [] for phase in PHASES}
    operations = {phase: operations_of(cost, model, found) for phase, found in runs.items()}
    for _ in range(repeats):
        for size in counted:
            times[size].append(products.time(size))
        for phase in PHASES:
            limit = limit_ms(operations[phase]["shapes"], rows[phase], times[rows[phase]][-1])
            done[phase].append({"ms": ask(phase)["ms"], "limit_ms": limit})
    return {
        "threads": page.info["threads"],
        "rates": [
            _rate(size, *shape, [one[shape] for one in times[size]])
            for size in counted
            for shape in times[size][0]
        ],
        "phases": [_phase(phase, runs[phase], operations[phase], done[phase]) for phase in PHASES],
    }


def _asking(page: ProbedPage, state: str, questions: Sequence[Question]) -> Any:
    argument = {"state": state, "questions": list(map(to_wire, questions))}
    # What was computed once for all texts is no cost of this one.
    page.prefill("A text.")
    page.in_worker("() => watched.runs()")

    def ask(phase: str) -> dict[str, Any]:
        """Milliseconds by the engine and by the page, and the session's runs."""
        done = page.evaluate(_DO, {**argument, "phase": phase})
        return {**done, "runs": page.in_worker("() => watched.runs()")}

    return ask


def operations_of(
    cost: CostModel, model: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Operations of some runs of the session: of the layers' products, in all and by shape, and of attention."""
    layers = cost.layers
    below = model.get("shallow", {}).get("layers", layers)
    shapes: Counter[tuple[int, int]] = Counter()
    attention = 0
    for one in runs:
        rows = [*[one["tokens"]] * below, *[one["up"]] * (layers - below), one["read"]]
        for product in cost.products(rows):
            shapes[product.inner, product.columns] += product.flops
        attention += cost.attention(rows, [*[one["keys"]] * below, *[one["up_keys"]] * (layers - below)])
    return {"layers": shapes.total(), "attention": attention, "shapes": shapes}


def limit_ms(
    flops: Mapping[tuple[int, int], int], rows: int, times: Mapping[tuple[int, int], float]
) -> float:
    """Milliseconds that the layers' products would take at the rate of plain ones, `times` for `rows` rows."""
    return sum(
        done * times[inner, columns] / (2 * rows * inner * columns)
        for (inner, columns), done in flops.items()
    )


def _rate(rows: int, inner: int, columns: int, ms: Sequence[float]) -> dict[str, Any]:
    middle = statistics.median(ms)
    flops = 2 * rows * inner * columns
    return {
        "rows": rows,
        "inner": inner,
        "columns": columns,
        "gflops": flops / middle / 1e6,
        "best_gflops": flops / min(ms) / 1e6,
        "weights_gb_per_s": FLOAT_BYTES * inner * columns / middle / 1e6,
    }


def _phase(
    phase: str,
    runs: Sequence[Mapping[str, Any]],
    operations: Mapping[str, Any],
    done: Sequence[Mapping[str, float]],
) -> dict[str, Any]:
    ms = statistics.median(one["ms"] for one in done)
    # What else the machine does changes from repeat to repeat, and hits products and engine of one alike.
    share = statistics.median(one["limit_ms"] / one["ms"] for one in done)
    with_attention = (operations["layers"] + operations["attention"]) / operations["layers"]
    return {
        "phase": phase,
        "rows": [one["tokens"] for one in runs],
        "layer_flops": operations["layers"],
        "attention_flops": operations["attention"],
        "ms": ms,
        "limit_ms": statistics.median(one["limit_ms"] for one in done),
        "gflops": operations["layers"] / ms / 1e6,
        "share": share,
        "share_with_attention": share * with_attention,
        "each": list(done),
    }


# ---- where the rest goes


def profile(
    page: ProbedPage, state: str, questions: Sequence[Question], threads: int, repeats: int
) -> dict[str, Any]:
    """Milliseconds of each part of each phase, under the runtime's profiler."""
    _say(f"{threads} threads: profile")
    page.restart(STATE_BYTES, ort_profile.WATCH % "true", threads)
    ask = _asking(page, state, questions)
    for phase in PHASES:
        ask(phase)
    before = page.in_worker("() => watched.count()")
    asked = [(phase, ask(phase)) for _ in range(repeats) for phase in PHASES]
    # Its end stays in the runtime's buffer.
    ask("suffix")
    found = ort_profile.read(page.in_worker("() => watched.profile()"))
    return {
        "threads": page.info["threads"],
        "phases": _profiled(asked, found[before:]),
    }


def _profiled(
    asked: Sequence[tuple[str, Mapping[str, Any]]], found: Sequence[ort_profile.Profiled]
) -> list[dict[str, Any]]:
    """Each phase's milliseconds by part, as means of its repeats; `found` are the session's runs, in their order."""
    parts: dict[str, defaultdict[str, float]] = {phase: defaultdict(float) for phase in PHASES}
    flops: Counter[tuple[str, str]] = Counter()
    times = Counter(phase for phase, _ in asked)
    at = 0
    for phase, done in asked:
        runs = found[at : at + len(done["runs"])]
        at += len(runs)
        called = sum(one["ms"] for one in done["runs"])
        outside = {
            COPIES: called - sum(one.us for one in runs) / 1e3,
            SCRIPT: done["ms"] - called,
            MESSAGES: done["page_ms"] - done["ms"],
        }
        for found_parts in (*(one.parts() for one in runs), outside):
            for part, ms in found_parts.items():
                parts[phase][part] += ms / times[phase]
        for node in (node for one in runs for node in one.nodes):
            if node.part in COUNTED:
                flops[phase, node.part] += node.flops
    return [
        {
            "phase": phase,
            "ms": sum(parts[phase].values()),
            **{key: flops[phase, part] // times[phase] for part, key in COUNTED.items()},
            "parts": dict(sorted(parts[phase].items(), key=lambda item: -item[1])),
        }
        for phase in PHASES
    ]


# ---- words and pictures


def plot(result: Mapping[str, Any], path: Path) -> None:
    """Draw the engine's share of the runtime's rate, and the parts of each phase's time."""
    pyplot = common.plotting(NAME)
    profiled = result["profile"]
    figure, panels = pyplot.subplots(
        1, 1 if profiled is None else 2, figsize=(10, 4), squeeze=False, layout="constrained"
    )
    axes = panels[0][0]
    width = 0.8 / len(result["measured"])
    for i, one in enumerate(result["measured"]):
        places = [at + (i - (len(result["measured"]) - 1) / 2) * width for at in range(len(PHASES))]
        shares = [phase["share"] for phase in one["phases"]]
        axes.bar(places, shares, width * 0.92, label=_threads(one["threads"]), color=f"C{i}")
        axes.bar_label(axes.containers[-1], [f"{share:.0%}" for share in shares], fontsize=8)
    axes.axhline(result["target"], color="0.4", linestyle="--", linewidth=1)
    axes.set_xticks(range(len(PHASES)), list(PHASES.values()))
    axes.set_ylabel("layers' operations: share of the runtime's rate")
    axes.legend(frameon=False)
    if profiled is not None:
        _draw_parts(panels[0][1], profiled)
    figure.suptitle(
        f"{result['model']}, {result['format']} on {result['candidate']}, {result['processor']}", fontsize=10
    )
    common.save_plot(figure, path)


def _draw_parts(axes: Any, profiled: Mapping[str, Any]) -> None:
    """Each phase's time as a bar of its parts, the larger parts of the first phase first."""
    names = list(dict.fromkeys(part for phase in profiled["phases"] for part in phase["parts"]))
    lefts = [0.0] * len(PHASES)
    for i, name in enumerate(names):
        shares = [max(0.0, phase["parts"].get(name, 0.0)) / phase["ms"] for phase in profiled["phases"]]
        axes.barh(
            range(len(PHASES)), shares, left=lefts, label=name, color=f"C{i % 10}", hatch="//" * (i // 10)
        )
        lefts = [left + share for left, share in zip(lefts, shares, strict=True)]
    axes.set_yticks(range(len(PHASES)), list(PHASES.values()))
    axes.invert_yaxis()
    axes.set_xlabel(f"share of the time, {_threads(profiled['threads'])}, under the profiler")
    axes.legend(frameon=False, fontsize=7, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.16))


def summarise(result: Mapping[str, Any]) -> str:
    """The figures in a few lines."""
    lines = [
        f"{NAME}: {result['model']}, {result['layers']} layers, {result['format']} on {result['candidate']},"
        f" {result['criteria']} questions"
    ]
    for one in result["measured"]:
        lines.append(f"  {_threads(one['threads'])}; plain products, GFLOP/s:")
        for rows in dict.fromkeys(rate["rows"] for rate in one["rates"]):
            told = ", ".join(
                f"{rate['inner']}x{rate['columns']} {rate['gflops']:.1f}"
                + (f" ({rate['weights_gb_per_s']:.1f} GB/s)" if rows == 1 else "")
                for rate in one["rates"]
                if rate["rows"] == rows
            )
            lines.append(f"    {rows} rows: {told}")
        for phase in one["phases"]:
            lines.append(
                f"    {PHASES[phase['phase']]}: {phase['ms']:.0f} ms for {'+'.join(map(str, phase['rows']))} tokens,"
                f" {phase['gflops']:.1f} GFLOP/s in layers: {phase['share']:.0%} of the rate,"
                f" {phase['share_with_attention']:.0%} with attention's products"
            )
    if result["profile"] is not None:
        lines.append(f"  where the time goes, {_threads(result['profile']['threads'])}, under the profiler:")
        for phase in result["profile"]["phases"]:
            told = ", ".join(
                f"{part} {ms / phase['ms']:.1%}"
                for part, ms in phase["parts"].items()
                if ms / phase["ms"] >= 5e-4
            )
            lines.append(f"    {PHASES[phase['phase']]}, {phase['ms']:.0f} ms: {told}")
    return "\n".join(lines)


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
