"""What a decoder's matrices get as inputs on some texts: the second moments that their rounding goes by.

The texts are the first of each file of `corpus/`, which the default model was trained on: none that anything is
evaluated on, and none of those that drift is measured on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pybuild.graph import INPUTS, Decoder, build
from pybuild.layout import Layout
from typedecide.model import Cache, NativeModel, Shape, Suffix
from typedecide.prompt import Prompt, Tokenizer
from typedecide.questions import parse_questions
from typedecide.readouts import Readout

CORPUS = Path(__file__).with_name("corpus")

TEXTS, QUESTIONS = 2, 3
"""Texts of each file, and questions about each: about 6,000 tokens in all."""

Moments = Mapping[str, NDArray[np.float64]]
"""For a matrix's name, the sum of x x^T over its inputs x, [in, in]; one of those that share their inputs
(`SHARED_INPUTS`) stands for all."""

Text = tuple[Sequence[int], Sequence[Sequence[int]]]
"""Token ids of a text's prompt up to its questions, and what follows for each question."""


def texts() -> Iterator[Mapping[str, Any]]:
    """The texts with their questions, as the wire has them."""
    for path in sorted(CORPUS.glob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            yield from (json.loads(line) for line, _ in zip(lines, range(TEXTS), strict=False))


def prompts(prompt: Prompt, readout: Readout, tokenizer: Tokenizer) -> Iterator[Text]:
    """The texts' token ids, by a readout of one suffix a question."""
    for text in texts():
        prefix = prompt.state_prefix_ids(tokenizer, text["state"])
        asked = list(parse_questions(text["questions"]).values())[:QUESTIONS]
        yield prefix, [_in_line(*readout.suffixes(text["state"], prefix, one, 0)) for one in asked]


def _in_line(suffix: Suffix) -> list[int]:
    """A suffix as one chain of tokens, whose branches follow each other."""
    return [*suffix.ids, *(token for branch in suffix.branches for token in branch), *suffix.tail]


def measure(
    decoder: Decoder,
    store: Callable[[Path], Layout],
    shape: Shape,
    runs: Sequence[Text],
    advance: Callable[[], None] = lambda: None,
) -> Moments:
    """The moments of every matrix of the layers.

    Args:
        decoder: the model, all of whose layers run all tokens.
        store: writes its weights in float32 into a folder, in the coordinates in which they will be rounded.
        shape: of its caches.
        runs: what it reads.
        advance: told after each of them.
    """
    with TemporaryDirectory() as folder:
        layout = store(Path(folder))
        data = {file: (Path(folder) / file).read_bytes() for file, _ in layout.files()}
        graph = build(decoder, layout, "explicit", inputs=True)
    whole = Shape(shape.layers, shape.kv_heads, shape.head_dim, shape.context)
    with _Listening(graph, data, whole) as model:
        del data
        for prefix, suffixes in runs:
            cache = model.prefill(prefix)
            for suffix in suffixes:
                model.prefill([*prefix, *suffix], base=cache)
            advance()
    return model.moments


class _Listening(NativeModel):
    """Adds up what the matrices get, of every token that is run."""

    moments: dict[str, NDArray[np.float64]]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.moments = {}

    def _run(self, cache: Cache, ids: Sequence[int], *args: Any) -> tuple[dict[str, Any], Cache]:
        read, after = super()._run(cache, ids, *args)
        for output, rows in read.items():
            if output.startswith(INPUTS):
                flat = rows.reshape(-1, rows.shape[-1])
                name = output.removeprefix(INPUTS)
                self.moments[name] = self.moments.get(name, 0) + (flat.T @ flat).astype(np.float64)
        return read, after
