"""The decoder graph in Python's onnxruntime: token ids in, logits or projections out; makes the KV caches.

Knows tensors and token ids, not questions. The same arithmetic as `web/engine.js`. Needs the `native` extra
(numpy, onnxruntime).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from typedecide import packing
from typedecide.errors import AbortedError, TooLongError, UnsupportedError

HIDDEN = np.float32(-1e4)
"""Additive mask value of a position that must not be seen: exact in float32, and safe in float16."""

CHUNK = 512
"""Tokens of one prefill run: bounds the score matrix of a long text without changing any result."""

LANES = 4
"""Key positions that the page's kernels sum together: runs of a prefill there end on a multiple of it."""


@dataclass(frozen=True)
class Suffix:
    """One continuation of the cached prefix, and what is read of it.

    Either the logits of `label_ids` at the last token, or the log-probability of each of `targets`, the j-th one at
    place `reads[j]` of `ids`; or, of a joined suffix (`branches` behind the stem `ids`, and `tail` behind them all),
    the projections of the last token of each branch and of the tail: [(branches + 1) * width], row by row.

    Of a whole prompt, `hidden` says from where to before where in `ids` the upper layers of a shallow model see no
    token: the text behind the anchor.
    """

    ids: Sequence[int]
    label_ids: Sequence[int] = ()
    reads: Sequence[int] | None = None
    targets: Sequence[int] = ()
    branches: Sequence[Sequence[int]] = ()
    tail: Sequence[int] = ()
    hidden: tuple[int, int] = (0, 0)

    @property
    def packed(self) -> packing.Suffix:
        """What packing knows of it."""
        return packing.Suffix(self.ids, self.reads, self.branches, self.tail)


@dataclass(frozen=True)
class Shape:
    """The sizes that the KV cache needs; `shallow` layers run all tokens (None: all layers do), and a value of a cache
    takes `value_bytes`."""

    layers: int
    kv_heads: int
    head_dim: int
    context: int
    shallow: int | None = None
    value_bytes: int = 4

    @classmethod
    def of(cls, model: Mapping[str, Any]) -> Self:
        """That of `manifest["model"]`."""
        return cls(**model["shape"], shallow=model["shallow"]["layers"] if "shallow" in model else None)

    @property
    def token_bytes(self) -> int:
        """Memory that one token of a text takes in a cache."""
        layers = self.layers if self.shallow is None else self.shallow
        return 2 * layers * self.kv_heads * self.head_dim * self.value_bytes


@dataclass(frozen=True)
class Cache:
    """Keys and values of a prefilled prefix, by graph input; never written to, so caches may share them.

    `borrowed` names those that belong to another cache.
    """

    past: dict[str, NDArray[np.float32]]
    borrowed: frozenset[str] = frozenset()

    @property
    def length(self) -> int:
        """Tokens held."""
        tokens: int = next(iter(self.past.values())).shape[2]
        return tokens

    @property
    def upper(self) -> int:
        """Tokens that the last layer holds: of a shallow model, those of the anchor."""
        tokens: int = next(reversed(self.past.values())).shape[2]
        return tokens

    @property
    def bytes(self) -> int:
        """Memory taken, without what is borrowed."""
        return sum(array.nbytes for name, array in self.past.items() if name not in self.borrowed)

    @property
    def finite(self) -> bool:
        """Whether all that is held are numbers."""
        return all(bool(np.isfinite(array).all()) for array in self.past.values())


@dataclass(frozen=True)
class Totals:
    """What packed scoring cost: tokens run, tokens that sharing saved, and session runs."""

    tokens: int
    saved: int
    runs: int


@dataclass(frozen=True)
class _Reads:
    """What a run reads: rows of its tokens, labels whose logits are read at each row, and which of the rows are
    normalised over the whole vocabulary, as places in `rows`."""

    rows: Sequence[int] = (0,)
    labels: Sequence[int] = (0,)
    whole: Sequence[int] = ()

    @property
    def feeds(self) -> dict[str, NDArray[np.int64]]:
        """The graph's inputs that say so."""
        named = {"rows": self.rows, "label_ids": self.labels, "vocabulary_rows": self.whole}
        return {name: np.asarray(values, np.int64) for name, values in named.items()}


@dataclass(frozen=True)
class _Up:
    """What a run sends to the upper layers of a shallow model: places among its tokens, their mask [1, 1, U, Pu + U],
    and whether their keys and values are kept."""

    rows: Sequence[int]
    mask: NDArray[np.float32]
    keep: bool = False


class Wanted:
    """What is read of some suffixes in one run, each row and label once.

    Args: the suffixes, and for each of them the rows of its reads.
    """

    def __init__(self, suffixes: Sequence[Suffix], rows: Sequence[Sequence[int]]) -> None:
        self._pairs = list(zip(suffixes, rows, strict=True))
        self._columns = _places(i for suffix in suffixes for i in (*suffix.label_ids, *suffix.targets))
        self._rows = _places(row for _, own in self._pairs for row in own)
        self._whole = _places(row for suffix, own in self._pairs if suffix.targets for row in own)

    @property
    def reads(self) -> _Reads:
        """For the run."""
        return _Reads([*self._rows], [*self._columns] or [0], [self._rows[row] for row in self._whole])

    def of(self, read: Mapping[str, NDArray[np.float32]]) -> list[NDArray[np.float32]]:
        """Each suffix's own, from the outputs of the run."""
        found = []
        for suffix, own in self._pairs:
            at = [self._rows[row] for row in own]
            if suffix.branches:
                found.append(read["projections"][at].reshape(-1))
            elif suffix.targets:
                logits = read["label_logits"][at, [self._columns[i] for i in suffix.targets]]
                found.append(logits - read["normalizers"][[self._whole[row] for row in own]])
            else:
                found.append(read["label_logits"][at[0], [self._columns[i] for i in suffix.label_ids]])
        return found


class _Session:
    """One onnxruntime session over one graph."""

    def __init__(
        self,
        graph: bytes,
        data: Mapping[str, bytes | memoryview],
        shape: Shape,
        threads: int | None = None,
    ) -> None:
        """Args: the ONNX graph, its external data files by name, sizes, intra-op threads (None: all cores)."""
        options = ort.SessionOptions()
        options.log_severity_level = 3
        if threads is not None:
            options.intra_op_num_threads = threads
        # The runtime keeps pointers into these buffers until the session exists: they must outlive its creation.
        buffers = {name: bytes(view) for name, view in data.items()}
        if buffers:
            options.add_external_initializers_from_files_in_memory(
                list(buffers), list(buffers.values()), [len(b) for b in buffers.values()]
            )
        self._session: Any = ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        self._inputs = {i.name for i in self._session.get_inputs()}
        names = [o.name for o in self._session.get_outputs()]
        self._outputs = [name for name in names if not name.startswith("present.")]
        self.shape = shape

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the session."""
        self._session = None

    def _check(self, prefix: int, suffix: packing.Suffix) -> None:
        """TooLongError where a suffix does not fit behind `prefix` tokens, UnsupportedError for a joined one where
        the graph has no projections."""
        limit, depth = self.shape.context, suffix.depth
        tokens = prefix + depth
        if tokens > limit:
            room = f"behind the text's {prefix} the context of {limit} holds {limit - prefix} more"
            whole = f"the prompt has {tokens} tokens, the context holds {limit}"
            message = f"the question has {depth} tokens; {room}" if prefix else whole
            raise TooLongError(message, tokens=tokens, limit=limit, prefix=prefix, suffix=depth)
        if suffix.length > limit:
            message = f"the question has {suffix.length} tokens with all its options, one run holds {limit}"
            raise TooLongError(
                message, tokens=suffix.length, limit=limit, prefix=prefix, suffix=suffix.length
            )
        if suffix.branches and "projections" not in self._outputs:
            raise UnsupportedError(
                "this model has no pointer, which joined suffixes are read by", outputs=self._outputs
            )


class NativeModel(_Session):
    """One session over one graph.

    >>> cache = model.prefill(prefix_ids)                                       # doctest: +SKIP
    >>> (logits,), _ = model.score(cache, [Suffix(suffix_ids, label_ids)])      # doctest: +SKIP
    """

    chunk: int | None = None
    """Tokens of one prefill run, where that is not CHUNK."""

    _aborted: Callable[[], bool] | None = None

    @contextmanager
    def stopping(self, aborted: Callable[[], bool] | None) -> Iterator[None]:
        """Inside, `check_wanted`, which each run begins with, raises AbortedError once `aborted` says True."""
        before, self._aborted = self._aborted, aborted
        try:
            yield
        finally:
            self._aborted = before

    def check_wanted(self) -> None:
        """AbortedError where nobody wants the results any more."""
        if self._aborted is not None and self._aborted():
            raise AbortedError("the caller gave up")

    def prefill(self, ids: Sequence[int], base: Cache | None = None, anchor: int = 0) -> Cache:
        """The KV cache of `ids`; `base` is that of their first `base.length`, which are not computed again.

        In a shallow model the upper layers get the first `anchor` of the ids.

        Raises:
            TooLongError: the context does not hold them.
            ValueError: the base has another anchor.
        """
        limit = self.shape.context
        if len(ids) > limit:
            message = f"the text has {len(ids)} tokens, the context holds {limit}"
            raise TooLongError(message, tokens=len(ids), limit=limit)
        cache = base or self._empty()
        if self.shape.shallow is not None and cache.upper != min(anchor, cache.length):
            raise ValueError(f"The anchor is {anchor} tokens, of which the base has {cache.upper}.")
        step = self.chunk or CHUNK
        for start in range(cache.length, len(ids), step):
            chunk = ids[start : start + step]
            mask = tree_mask(start, range(-1, len(chunk) - 1))
            positions = range(start, start + len(chunk))
            up = _anchored(cache, min(len(chunk), anchor - start))
            _, cache = self._run(cache, chunk, positions, mask, _Reads(), True, up)
        if base is None:
            return cache
        return Cache(
            cache.past, frozenset(name for name, array in cache.past.items() if array is base.past[name])
        )

    def score(
        self,
        cache: Cache,
        suffixes: Sequence[Suffix],
        budget: int | None = None,
        on_logits: Callable[[int, NDArray[np.float32]], None] = lambda *_: None,
    ) -> tuple[list[NDArray[np.float32]], Totals]:
        """Label logits, targets' log-probabilities or projections of each suffix after a cached prefix.

        Suffixes are packed into runs of at most `budget` tokens (None: as many as the context holds), in which what
        they share from their start is computed once. `on_logits(suffix, logits)` is told each result as its run ends.
        """
        packed = [suffix.packed for suffix in suffixes]
        for suffix in packed:
            self._check(cache.length, suffix)
        most = self.shape.context  # RotaryEmbedding takes no more tokens than it has positions
        plan = packing.plan_runs(packed, most if budget is None else min(budget, most))
        found: dict[int, NDArray[np.float32]] = {}
        for run in plan:
            for index, logits in zip(run.suffixes, self._packed(cache, run, suffixes), strict=True):
                found[index] = logits
                on_logits(index, logits)
        totals = Totals(sum(len(r.ids) for r in plan), sum(r.saved for r in plan), len(plan))
        return [found[i] for i in range(len(suffixes))], totals

    def score_full(self, suffix: Suffix) -> NDArray[np.float32]:
        """What is read of a whole prompt, without the cache: the plain path that others are compared with.

        All its tokens go through all layers; the upper ones of a shallow model do not see those that are `hidden`.
        """
        self._check(0, suffix.packed)
        (run,) = packing.plan_runs([suffix.packed], suffix.packed.length)
        return self._packed(self._empty(), run, [suffix], suffix.hidden)[0]

    def _packed(
        self,
        cache: Cache,
        run: packing.Run,
        suffixes: Sequence[Suffix],
        hidden: tuple[int, int] = (0, 0),
    ) -> list[NDArray[np.float32]]:
        """One packed run: what is read of its suffixes."""
        past = cache.length
        wanted = Wanted([suffixes[i] for i in run.suffixes], run.rows)
        positions = [past + depth for depth in run.depths]
        mask = tree_mask(past, run.parents, run.joins)
        up = None
        if self.shape.shallow is not None:
            up = _Up(range(len(run.ids)), hide(tree_mask(cache.upper, run.parents, run.joins), *hidden))
        read, _ = self._run(cache, run.ids, positions, mask, wanted.reads, False, up)
        return wanted.of(read)

    def _run(
        self,
        cache: Cache,
        ids: Sequence[int],
        positions: Sequence[int],
        mask: NDArray[np.float32],
        reads: _Reads,
        keep: bool,
        up: _Up | None = None,
    ) -> tuple[dict[str, NDArray[np.float32]], Cache]:
        """One session run: the graph's outputs, and the cache, with the new tokens when `keep`.

        `up` is for a shallow model.
        """
        self.check_wanted()
        total = mask.shape[-1]
        feeds: dict[str, Any] = {
            "input_ids": np.asarray([ids], np.int64),
            "position_ids": np.asarray([positions], np.int64),
            "mask": mask,
            **reads.feeds,
            **cache.past,
        }
        if "seqlens_k" in self._inputs:
            feeds["seqlens_k"] = np.asarray([total - 1], np.int32)
            feeds["total_sequence_length"] = np.asarray([total], np.int32)
        kept = [name for name in cache.past if keep]
        if self.shape.shallow is not None and up is not None:
            feeds |= self._up_feeds(up)
            kept = [name for name in kept if up.keep or name not in self._upper]
        present = [name.replace("past.", "present.", 1) for name in kept]
        wanted = [*self._outputs, *present]
        results = dict(zip(wanted, self._session.run(wanted, feeds), strict=True))
        new = {name: results.pop(output) for name, output in zip(kept, present, strict=True)}
        return results, Cache({**cache.past, **new}) if new else cache

    def _up_feeds(self, up: _Up) -> dict[str, Any]:
        """The inputs of the upper layers."""
        total = up.mask.shape[-1]
        feeds = {"up_rows": np.asarray(up.rows, np.int64), "up_mask": up.mask}
        if "up_seqlens_k" in self._inputs:
            feeds["up_seqlens_k"] = np.asarray([total - 1], np.int32)
            feeds["up_total_sequence_length"] = np.asarray([total], np.int32)
        return feeds

    @property
    def _upper(self) -> frozenset[str]:
        """Names of the cached keys and values of the upper layers."""
        layers = range(
            self.shape.layers if self.shape.shallow is None else self.shape.shallow, self.shape.layers
        )
        return frozenset(f"past.{i}.{part}" for i in layers for part in ("key", "value"))

    def _empty(self) -> Cache:
        shape = (1, self.shape.kv_heads, 0, self.shape.head_dim)
        names = [f"past.{i}.{part}" for i in range(self.shape.layers) for part in ("key", "value")]
        return Cache({name: np.zeros(shape, np.float32) for name in names})


class BatchedModel(_Session):
    """One session over the graph `batched`: whole prompts, several in one run, without any cache.

    >>> (one, other) = model.score([Suffix(ids, label_ids), Suffix(other_ids, label_ids)])      # doctest: +SKIP
    """

    def score(self, prompts: Sequence[Suffix], budget: int) -> list[NDArray[np.float32]]:
        """What is read of whole prompts, as `NativeModel.score_full` gives it.

        Prompts of like length run together, padded on the left, in batches of at most `budget` tokens with the padding;
        one that is longer has a run of its own.
        """
        for prompt in prompts:
            self._check(0, prompt.packed)
        return score_batches(prompts, budget, self._batch)

    def _batch(self, prompts: Sequence[Suffix], runs: Sequence[packing.Run]) -> list[NDArray[np.float32]]:
        """One run over B prompts padded to S tokens."""
        size, longest = len(runs), max(len(run.ids) for run in runs)
        ids, positions = np.zeros((2, size, longest), np.int64)
        mask = np.full((size, 1, longest, longest), HIDDEN, np.float32)
        rows = []
        for number, run in enumerate(runs):
            start = longest - len(run.ids)
            ids[number, start:], positions[number, start:] = run.ids, run.depths
            mask[number, :, start:, start:] = tree_mask(0, run.parents, run.joins)[0]
            rows.append([number * longest + start + row for row in run.rows[0]])
        wanted = Wanted(prompts, rows)
        feeds = {"input_ids": ids, "position_ids": positions, "mask": mask, **wanted.reads.feeds}
        if "up_mask" in self._inputs:
            starts = (longest - len(run.ids) for run in runs)
            pairs = zip(mask, prompts, starts, strict=True)
            feeds["up_mask"] = np.stack(
                [hide(one, *(start + place for place in prompt.hidden)) for one, prompt, start in pairs]
            )
        return wanted.of(dict(zip(self._outputs, self._session.run(self._outputs, feeds), strict=True)))


def score_batches(
    prompts: Sequence[Suffix],
    budget: int,
    score: Callable[[Sequence[Suffix], Sequence[packing.Run]], list[NDArray[np.float32]]],
) -> list[NDArray[np.float32]]:
    """What `score` reads of whole prompts, those of like length together, in their own order.

    Args:
        prompts: the prompts.
        budget: tokens of a batch, were all its prompts as long as the longest; a longer prompt is a batch of its own.
        score: what is read of the prompts of one batch, and how each of them runs.
    """
    runs = [packing.plan_runs([one.packed], one.packed.length)[0] for one in prompts]
    order = sorted(range(len(prompts)), key=lambda index: len(runs[index].ids))
    found: dict[int, NDArray[np.float32]] = {}
    while order:
        longest = len(runs[order[-1]].ids)
        batch = order[-max(1, budget // longest) :]
        del order[-len(batch) :]
        read = score([prompts[index] for index in batch], [runs[index] for index in batch])
        found.update(zip(batch, read, strict=True))
    return [found[index] for index in range(len(prompts))]


def _places(values: Iterable[int]) -> dict[int, int]:
    """Distinct values in order, each with its place."""
    return {value: place for place, value in enumerate(dict.fromkeys(values))}


def _anchored(cache: Cache, count: int) -> _Up:
    """The first `count` tokens of a run are sent up and kept; where that is none, one as filler, which is not."""
    rows = range(max(count, 1))
    return _Up(rows, tree_mask(cache.upper, range(-1, len(rows) - 1)), count > 0)


def hide(mask: NDArray[np.float32], start: int, stop: int) -> NDArray[np.float32]:
    """A mask [..., S, S] in which no token sees those from place `start` to before `stop`, but each sees itself."""
    hidden = mask.copy()
    hidden[..., start:stop] = HIDDEN
    places = np.arange(start, stop)
    hidden[..., places, places] = mask[..., places, places]
    return hidden


def tree_mask(
    past: int, parents: Sequence[int], joins: packing.Joins = packing.NO_JOINS
) -> NDArray[np.float32]:
    """Additive mask [1, 1, S, past + S]: each token sees the whole prefix, what its parent and the tokens that it
    joins see, these themselves, and itself."""
    packing.check_tree(parents, joins)
    mask = np.full((1, 1, len(parents), past + len(parents)), HIDDEN, np.float32)
    mask[..., :past] = 0
    for row, parent in enumerate(parents):
        if parent >= 0:
            mask[0, 0, row] = mask[0, 0, parent]
        for end in joins.get(row, ()):
            np.maximum(mask[0, 0, row], mask[0, 0, end], out=mask[0, 0, row])
        mask[0, 0, row, past + row] = 0
    return mask
