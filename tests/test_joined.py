"""Joined suffixes: options as branches that do not see one another, and an answer that sees them all.

Tiny random models with a random pointer, natively and in the page's engine on WASM (under Node.js), against runs whose
tokens stand in another order and whose mask is written down pair by pair.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pybuild import npm
from pybuild.artifacts import ModelBuild
from pybuild.graph import POINTER, Decoder, UnsupportedModelError, Variant, build
from pybuild.progress import Steps
from pybuild.quantize import FORMATS, store
from pybuild.sources import load_source
from pybuild.weights import Float32, Weights
from tests.conftest import FIXTURES, ROOT
from tests.test_packing import position, reference, visible
from typedecide import model
from typedecide.errors import TooLongError, UnsupportedError
from typedecide.model import HIDDEN, Cache, NativeModel, Shape, Suffix
from typedecide.packing import Joins
from typedecide.readouts import PointerReadout

UNROUNDED = [name for name, one in FORMATS.items() if not one.is_rounded]
"""Formats whose matrices get their inputs as they are: one that rounds them has no `gqa` graph, and another processor
can turn a level (tests/test_int8_fast.py)."""

LIMIT = 1e-5

WIDTH = 17
"""Queries and keys of 8, and a bias."""

PREFIX = [int(i) for i in np.random.default_rng(1).integers(0, 320, 23)]
STEM = [7, 60, 61]
BRANCHES = [[20, 21, 30, 31, 32], [20, 21, 40], [20, 21, 30, 50, 51, 52, 53]]
TAIL = [70, 71]
JOINED = Suffix(STEM, branches=BRANCHES, tail=TAIL)

Array = NDArray[np.float32]


class WithPointer:
    """A model's tensors, and a random pointer."""

    def __init__(self, weights: Weights, hidden: int, width: int = WIDTH) -> None:
        self._weights = weights
        pointer = np.random.default_rng(2).normal(size=(width, hidden)) / hidden**0.5
        self._pointer: Float32 = pointer.astype(np.float32)

    def names(self) -> Sequence[str]:
        return [*self._weights.names(), POINTER]

    def get(self, name: str) -> Float32:
        return self._pointer if name == POINTER else self._weights.get(name)


def open_model(
    folder: Path,
    variant: Variant = "explicit",
    format_name: str = "fp32",
    context: int = 256,
    shallow: int | None = None,
) -> NativeModel:
    """The qwen3 fixture with a random pointer; its files stay in `folder`."""
    source = load_source(str(FIXTURES / "qwen3"))
    decoder = Decoder.from_config(source.config)
    weights = WithPointer(source.weights, decoder.hidden)
    layout = store(decoder, weights, format_name, folder, context)
    (folder / "graph.onnx").write_bytes(build(decoder, layout, variant, shallow))
    data = {file: (folder / file).read_bytes() for file, _ in layout.files()}
    shape = Shape(decoder.layers, decoder.kv_heads, decoder.head_dim, context, shallow)
    return NativeModel((folder / "graph.onnx").read_bytes(), data, shape, threads=1)


def apart(left: Array, right: Array) -> float:
    return float(np.abs(left - right).max())


def by_hand(engine: NativeModel, suffix: Suffix, seed: int) -> Array:
    """What a joined suffix gives in one uncached run, its mask asked pair by pair, its tokens in a random order.

    What a token sees stands before it, because GroupQueryAttention takes that for granted.
    """
    whole = dataclasses.replace(suffix.packed, ids=[*PREFIX, *suffix.ids])
    tokens, sees = reference([whole]), visible([whole])
    order = random.Random(seed).sample(range(len(tokens)), len(tokens))
    order.sort(key=lambda i: sum(sees[i]))
    mask = np.array([[sees[row][column] for column in order] for row in order])
    positions = [position([whole], tokens[i]) for i in order]
    reads = [((*whole.ids, *branch), None) for branch in whole.branches]
    rows = [order.index(tokens.index(token)) for token in [*reads, ((*whole.ids, *whole.tail), 0)]]
    empty = np.zeros((1, engine.shape.kv_heads, 0, engine.shape.head_dim), np.float32)
    past = {f"past.{i}.{part}": empty for i in range(engine.shape.layers) for part in ("key", "value")}
    read, _ = engine._run(
        Cache(past),
        [tokens[i][0][-1] for i in order],
        positions,
        np.where(mask, np.float32(0), HIDDEN)[None, None],
        model._Reads(rows),
        False,
    )
    return read["projections"].reshape(-1)


@pytest.mark.parametrize(
    ("variant", "format_name"),
    [*(("gqa", name) for name in UNROUNDED), *(("explicit", name) for name in FORMATS)],
)
def test_joined_is_what_an_uncached_run_gives(tmp_path: Path, variant: Variant, format_name: str) -> None:
    with open_model(tmp_path, variant, format_name) as engine:
        cache = engine.prefill(PREFIX)
        others = [Suffix([*STEM, 20, 9], [1, 2]), dataclasses.replace(JOINED, ids=STEM[:1]), JOINED]
        (_, _, packed), totals = engine.score(cache, others)
        full = engine.score_full(dataclasses.replace(JOINED, ids=[*PREFIX, *STEM]))
        hand = by_hand(engine, JOINED, 5)
        projected = engine._session.get_outputs()[2].name
    print(
        f"{format_name} {variant}: {apart(packed, full):.1e} from uncached, {apart(packed, hand):.1e} by hand"
    )
    assert projected == "projections" and packed.shape == (4 * WIDTH,) and packed.dtype == np.float32
    assert totals.saved > 0
    assert apart(packed, full) <= LIMIT and apart(packed, hand) <= LIMIT


def test_branches_in_another_order_give_the_same_to_the_last_bit(tmp_path: Path) -> None:
    with open_model(tmp_path) as engine:
        cache = engine.prefill(PREFIX)
        (plain,), _ = engine.score(cache, [JOINED])
        (moved,), _ = engine.score(cache, [dataclasses.replace(JOINED, branches=BRANCHES[::-1])])
    rows, again = plain.reshape(-1, WIDTH), moved.reshape(-1, WIDTH)
    assert np.array_equal(rows[[2, 1, 0, 3]], again)


def test_a_branch_knows_nothing_of_the_others(tmp_path: Path) -> None:
    with open_model(tmp_path) as engine:
        cache = engine.prefill(PREFIX)
        (full,), _ = engine.score(cache, [JOINED])
        changed = dataclasses.replace(JOINED, branches=[BRANCHES[0], [99, 98], [20, 97] * 3])
        alone = [dataclasses.replace(JOINED, branches=[branch]) for branch in BRANCHES]
        (other, *single), _ = engine.score(cache, [changed, *alone])
    own = full.reshape(-1, WIDTH)
    assert apart(other.reshape(-1, WIDTH)[0], own[0]) <= LIMIT
    assert apart(other.reshape(-1, WIDTH)[-1], own[-1]) > 1e-2, "but the answer sees all"
    for i, found in enumerate(single):
        assert apart(found.reshape(-1, WIDTH)[0], own[i]) <= LIMIT


def misses_a_branch(joins: Joins) -> Joins:
    return {row: ends[1:] for row, ends in joins.items()}


def sees_no_branch(joins: Joins) -> Joins:
    return {}


@pytest.mark.parametrize("fault", [misses_a_branch, sees_no_branch])
def test_a_planted_mask_error_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Callable[[Joins], Joins]
) -> None:
    right = model.tree_mask

    def wrong(past: int, parents: Sequence[int], joins: Joins) -> Array:
        return right(past, parents, fault(joins))

    with open_model(tmp_path) as engine:
        cache = engine.prefill(PREFIX)
        hand = by_hand(engine, JOINED, 5)
        monkeypatch.setattr(model, "tree_mask", wrong)
        (broken,), _ = engine.score(cache, [JOINED])
    assert apart(broken, hand) > 1000 * LIMIT


def test_a_model_without_a_pointer_says_so(tmp_path: Path) -> None:
    source = load_source(str(FIXTURES / "qwen3"))
    decoder = Decoder.from_config(source.config)
    layout = store(decoder, source.weights, "fp32", tmp_path, 64)
    data = {file: (tmp_path / file).read_bytes() for file, _ in layout.files()}
    shape = Shape(decoder.layers, decoder.kv_heads, decoder.head_dim, 64)
    with NativeModel(build(decoder, layout, "explicit"), data, shape, threads=1) as engine:
        cache = engine.prefill(PREFIX)
        with pytest.raises(UnsupportedError, match="no pointer") as caught:
            engine.score(cache, [JOINED])
    assert caught.value.data == {"outputs": ["label_logits", "normalizers"]}


def test_what_counts_is_the_longest_branch(tmp_path: Path) -> None:
    depth = len(STEM) + max(map(len, BRANCHES)) + len(TAIL)
    with open_model(tmp_path, context=len(PREFIX) + depth) as engine:
        cache = engine.prefill(PREFIX)
        engine.score(cache, [JOINED])
        with pytest.raises(TooLongError, match=f"the question has {depth + 1} tokens; behind") as caught:
            engine.score(cache, [dataclasses.replace(JOINED, tail=[*TAIL, 1])])
        limit = len(PREFIX) + depth
        wanted = {"tokens": limit + 1, "limit": limit, "prefix": len(PREFIX), "suffix": depth + 1}
        assert caught.value.data == wanted
        with pytest.raises(TooLongError, match=f"the prompt has {limit + 1} tokens"):
            engine.score_full(Suffix([1] * (limit + 1), [1]))
        with pytest.raises(TooLongError, match=f"the text has {limit + 1} tokens"):
            engine.prefill([1] * (limit + 1))


def test_a_run_holds_no_more_tokens_than_the_context(tmp_path: Path) -> None:
    branches = [[20 + i, *([30] * 9)] for i in range(5)]
    several = [dataclasses.replace(JOINED, ids=[i], branches=branches) for i in range(3)]
    with open_model(tmp_path, context=64) as engine, open_model(tmp_path, context=256) as larger:
        cache = engine.prefill(PREFIX)
        found, totals = engine.score(cache, several)
        wanted, _ = larger.score(larger.prefill(PREFIX), several)
        with pytest.raises(TooLongError, match="72 tokens with all its options, one run holds 64") as caught:
            engine.score(
                cache, [dataclasses.replace(JOINED, ids=[1], branches=[[9] * 10, *branches, [8] * 9])]
            )
    assert totals.runs == 3
    assert max(map(apart, found, wanted)) <= LIMIT
    assert caught.value.data == {"tokens": 72, "limit": 64, "prefix": len(PREFIX), "suffix": 72}


def test_a_built_model_has_its_pointer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TYPEDECIDE_BUILD_CACHE", str(tmp_path))
    source = load_source(str(FIXTURES / "qwen3"))
    with Steps(quiet=True) as steps:
        weights = WithPointer(source.weights, source.config["hidden_size"])
        model_build = ModelBuild(dataclasses.replace(source, weights=weights), None, steps)
        assert model_build.pointer_width == WIDTH and isinstance(model_build.readout, PointerReadout)
        facts = model_build.format("int8").facts
        assert 0 < facts["drift"]["max"] < 0.1, "in the pointer's probabilities"
        assert ModelBuild(source, None, steps).pointer_width is None


@pytest.mark.parametrize(("width", "hidden"), [(16, 64), (1, 64), (17, 63)])
def test_a_pointer_of_another_shape_is_refused(width: int, hidden: int) -> None:
    source = load_source(str(FIXTURES / "qwen3"))
    wrong = dataclasses.replace(source, weights=WithPointer(source.weights, hidden, width))
    with Steps(quiet=True) as steps, pytest.raises(UnsupportedModelError) as caught:
        ModelBuild(wrong, None, steps)
    assert caught.value.data == {"value": [width, hidden]}


@pytest.mark.parametrize("format_name", UNROUNDED)
def test_the_page_engine_agrees(tmp_path: Path, format_name: str) -> None:
    with open_model(tmp_path, "explicit", format_name) as engine:
        check_page_engine(tmp_path, engine)


def check_page_engine(tmp_path: Path, engine: NativeModel, anchor: int = 0) -> None:
    """What the page's engine reads under Node.js of the model in a folder is what the native one does."""
    suffixes = [
        JOINED,
        Suffix([*STEM, 20, 9], [1, 2, 300]),
        dataclasses.replace(JOINED, branches=BRANCHES[1:]),
        Suffix([*STEM, 30], reads=[1, 3], targets=[5, 6]),
    ]
    cache = engine.prefill(PREFIX, anchor=anchor)
    wanted = {str(budget): engine.score(cache, suffixes, budget)[0] for budget in (1, 30, 1000)}
    shape = {name: value for name, value in dataclasses.asdict(engine.shape).items() if value is not None}
    case = {
        "shape": shape,
        "weights": [p.name for p in tmp_path.glob("*.bin")],
        "prefix": PREFIX,
        "anchor": anchor,
        "cache": {"upper": cache.upper, "bytes": cache.bytes},
        "suffixes": [
            {
                "ids": list(s.ids),
                **({"reads": s.reads, "targets": s.targets} if s.targets else {}),
                **({"labelIds": s.label_ids} if s.label_ids else {}),
                **({"branches": s.branches, "tail": s.tail} if s.branches else {}),
            }
            for s in suffixes
        ],
        "results": {budget: [row.tolist() for row in rows] for budget, rows in wanted.items()},
    }
    (tmp_path / "case.json").write_text(json.dumps(case), "utf-8")
    done = subprocess.run(
        [str(npm.node()), "--test", "--test-reporter=tap", "tests/js/engine.test.js"],
        cwd=ROOT,
        env={**os.environ, "TYPEDECIDE_CASE": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^# pass 4$", done.stdout, re.M), done.stdout
