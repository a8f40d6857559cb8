"""ONNX Runtime Web's own profile of the engine's runs: which node took how long, read in the engine's worker.

The WASM build has no files to write a profile to: it prints it, event by event, when profiling ends
(https://github.com/microsoft/onnxruntime/pull/8932). Knows the runtime's events and the engine's graphs, no question.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

WATCH = """
{
  const PROFILED = %s;
  const runs = [];
  const printed = [];
  let count = 0;
  const { log } = console;
  // The runtime takes the function when it starts.
  console.log = (...words) => (PROFILED ? printed.push(...words) : log(...words));
  const watch = ({ InferenceSession }) => {
    const create = InferenceSession.create.bind(InferenceSession);
    InferenceSession.create = async (graph, options) => {
      // Of several builds, the one that is used.
      watched.create = create;
      const session = await create(graph, { ...options, enableProfiling: PROFILED });
      const { run } = session;
      runs.length = count = 0;
      session.run = async (feeds, ...more) => {
        const began = performance.now();
        const results = await run.call(session, feeds, ...more);
        const sizes = {
          tokens: feeds.input_ids.dims[1],
          keys: feeds.mask.dims[3],
          up: feeds.up_rows?.dims[0] ?? null,
          up_keys: feeds.up_mask?.dims[3] ?? null,
          read: feeds.rows.dims[0],
        };
        runs.push({ ...sizes, ms: performance.now() - began });
        count += 1;
        return results;
      };
      return session;
    };
  };
  globalThis.watched = {
    create: null,
    engine: () => decider.engine,
    runs: () => runs.splice(0),
    count: () => count,
    profile: () => {
      decider.engine.session.endProfiling();
      return printed.splice(0);
    },
  };
  const { load } = OPERATIONS;
  OPERATIONS.load = async (args, ...more) => {
    const { runtime } = await (await fetch(new URL("manifest.json", args[0].bundle))).json();
    for (const { module: path } of Object.values(runtime.builds)) {
      const module = await import(new URL(path, args[0].bundle));
      watch(module.default ?? module);
    }
    return load(args, ...more);
  };
}
"""
"""Goes behind the worker's own script; `%s` is whether runs are profiled: `true` or `false`. Then `watched` has
`create` for sessions that are not watched, the `engine`, its session's `runs` since they were last asked for, their
`count` since the session began, and the `profile`."""

LAYER_PRODUCTS, ATTENTION_PRODUCTS = "layer products", "attention products"
READOUT, OTHER = "readout", "other nodes"

PARTS: Mapping[str, str] = {
    "ReduceLogSumExp": READOUT,
    "RotaryEmbedding": "rotary embedding",
    "Softmax": "softmax and mask",
    "Add": "softmax and mask",
    "SimplifiedLayerNormalization": "norms",
    "SkipSimplifiedLayerNormalization": "norms",
    **dict.fromkeys(("Mul", "Sigmoid", "QuickGelu", "FastGelu"), "activation"),
    **dict.fromkeys(("Concat", "Transpose", "Reshape", "Gather", "Expand", "Slice", "Cast"), "moving values"),
}
"""The part that a node belongs to, by its operator; matrix products are told apart by what they multiply."""

_PRODUCTS = frozenset({"MatMul", "FusedMatMul", "MatMulNBits", "Gemm"})


@dataclass(frozen=True)
class Node:
    """One node in one run: its operator, the shapes of its first input and first output, and microseconds."""

    operator: str
    taken: tuple[int, ...]
    given: tuple[int, ...]
    us: float

    @property
    def part(self) -> str:
        """The part of the table that it belongs to."""
        if self.operator not in _PRODUCTS:
            return PARTS.get(self.operator, OTHER)
        # Attention takes [1, heads, rows, columns], layers take [1, rows, columns], and the readout [rows, columns].
        return {4: ATTENTION_PRODUCTS, 3: LAYER_PRODUCTS}.get(len(self.taken), READOUT)

    @property
    def flops(self) -> int:
        """Operations of a matrix product."""
        return 2 * prod(self.given) * self.taken[-1]


@dataclass(frozen=True)
class Profiled:
    """One run: microseconds inside of the runtime, and its nodes."""

    us: float
    nodes: Sequence[Node]

    def parts(self) -> dict[str, float]:
        """Milliseconds by part; what the runtime does between its nodes is one too."""
        found: defaultdict[str, float] = defaultdict(float)
        for node in self.nodes:
            found[node.part] += node.us / 1e3
        return {**found, "between nodes": self.us / 1e3 - sum(found.values())}


def read(printed: Iterable[str]) -> list[Profiled]:
    """The runs of a profile, in their order. What is still in the runtime's buffer when profiling ends never comes, so
    that the last run may be missing."""
    found: list[Profiled] = []
    nodes: list[Node] = []
    for line in printed:
        text = line.strip().rstrip(",")
        if text in ("", "[", "]"):
            continue
        event = json.loads(text)
        if event["name"] == "model_run":
            found.append(Profiled(event["dur"], nodes))
            nodes = []
        elif event["cat"] == "Node" and event["name"].endswith("_kernel_time"):
            nodes.append(_node(event["dur"], event["args"]))
    return found


def _node(us: float, args: Mapping[str, Any]) -> Node:
    return Node(
        args["op_name"], _first(args.get("input_type_shape")), _first(args.get("output_type_shape")), us
    )


def _first(shapes: Sequence[Mapping[str, Sequence[int]]] | None) -> tuple[int, ...]:
    """The dimensions of the first of [{type: dimensions}, …]."""
    return tuple(next(iter(shapes[0].values()))) if shapes else ()
