"""The model part of a bundle, built once and kept: weights, graphs, golden values and drift of one format.

A build lies in a cache folder named by the hash of all that goes into it: model, options, the code that makes it and
the libraries' versions. So a change of the page rebuilds no model.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from pybuild import drift, golden, moments, quantize
from pybuild.graph import (
    POINTER,
    Decoder,
    UnsupportedModelError,
    Variant,
    build,
    shallow_layers,
    weight_names,
)
from pybuild.labels import find_labels
from pybuild.profiles import (
    POINTER_ANSWER,
    POINTER_OPTION,
    POINTER_TAIL,
    TEXT_OPTION,
    TEXT_TAIL,
    profile_of,
)
from pybuild.progress import Steps
from pybuild.rotate import Rotated, can_rotate
from pybuild.sources import Source
from pybuild.weights import Weights
from typedecide.model import NativeModel, Shape
from typedecide.native import TextTokenizer
from typedecide.prompt import Prompt, PromptSpec
from typedecide.readouts import readouts
from typedecide.shallow import DEFAULT_ANCHOR, Shallow, anchor_tokens

ROOT = Path(__file__).resolve().parents[1]

SHARD_BYTES = 64_000_000
"""Largest file of weights in a bundle: small enough for every static host and for parallel, resumable downloads."""

KEPT_BYTES = 8_000_000_000
"""Size of the cache of built models: the ones used longest ago go first. One like the default takes 0.8 GB."""

GRAPHS: tuple[Variant, ...] = ("gqa", "explicit", "batched")
"""Graphs of each format. All read the same weights; `web/runtime.js` says which candidate runs which, and Python runs
`batched` to evaluate."""

ROUNDED_GRAPHS: tuple[Variant, ...] = ("explicit", "batched")
"""Those of a format whose inputs are rounded: sums over keys are exact in attention of our own only."""

PROMPT = {
    "tail": "\nCriterion: {criterion}\nOptions:\n{options}Answer:",
    "option": "{label}. {option}\n",
    "text_tail": TEXT_TAIL,
    "text_option": TEXT_OPTION,
    "pointer_tail": POINTER_TAIL,
    "pointer_option": POINTER_OPTION,
    "pointer_answer": POINTER_ANSWER,
}

_CODE = (
    *("adapter.py", "artifacts.py", "drift.py", "drift_prompts.json", "gguf_model.py", "golden.py"),
    *(
        "graph.py",
        "labels.py",
        "layout.py",
        "moments.py",
        "quantize.py",
        "rotate.py",
        "sources.py",
        "stock.py",
        "tokenizer.py",
        "weights.py",
    ),
    *("../typedecide/model.py", "../typedecide/packing.py", "../typedecide/prompt.py"),
    *("../typedecide/pointer.py", "../typedecide/questions.py", "../typedecide/readout.py"),
    *("../typedecide/readouts.py", "../typedecide/shallow.py", "../typedecide/stock.py"),
    *sorted(f"corpus/{path.name}" for path in moments.CORPUS.glob("*.jsonl")),
)
"""Files that decide what a built model is."""

_LIBRARIES = ("gguf", "numpy", "onnx", "onnx-ir", "onnxruntime", "onnxscript", "tokenizers")


@dataclass(frozen=True)
class Built:
    """A finished format: its folder, and what the manifest says of it (`graphs`, `data`, `golden`, `drift`)."""

    folder: Path
    facts: dict[str, Any]


class Build(ABC):
    """Builds the formats of one model.

    Args:
        source: the model; its `weights` may be left where they are.
        shape: of its caches.
        force: build what is there already.
        shallow: how the model is shallow; None where it is not.
        pointer_width: of a model with a pointer.
    """

    stock = False
    """Whether graphs are taken over as they are."""

    def __init__(
        self,
        source: Source,
        shape: Shape,
        steps: Steps,
        force: bool,
        shallow: Shallow | None = None,
        pointer_width: int | None = None,
    ) -> None:
        self.source, self.steps, self.force = source, steps, force
        self.shape, self.shallow, self.pointer_width = shape, shallow, pointer_width
        self.tokenizer_json = json.dumps(source.tokenizer, ensure_ascii=False, separators=(",", ":"))
        self.tokenizer = TextTokenizer(self.tokenizer_json)
        self.labels = find_labels(self.tokenizer)
        self.profile = profile_of(source.name, self.pointer_width is not None)
        self.prompt_spec = {"bos_ids": list(source.bos_ids), "head": self.profile.head, **PROMPT}
        manifest = {
            "model": {"pointer_width": self.pointer_width},
            "prompt": self.prompt_spec,
            "labels": self.labels,
        }
        self.prompt = Prompt(PromptSpec.from_manifest(manifest))
        anchor = DEFAULT_ANCHOR if shallow is None else shallow.anchor
        self.anchor = anchor_tokens(anchor, self.prompt.head_ids(self.tokenizer))
        known = readouts(manifest, self.tokenizer)
        # The option texts' readout would need blank evidence beside each prompt; letters show a format's cost as well.
        self.readout = known.get("pointer", known["labels"])

    @property
    @abstractmethod
    def sizes(self) -> dict[str, Any]:
        """What the manifest says of the model besides its shape: its family and sizes."""

    @property
    def own_inputs(self) -> dict[str, Any]:
        """What decides the result besides what decides that of every build."""
        return {}

    @property
    def reference_format(self) -> str:
        """The format that others are compared with."""
        return "fp32"

    @abstractmethod
    def _build(self, name: str, folder: Path) -> dict[str, Any]:
        """Build a format into a folder; its facts."""

    @cached_property
    def key(self) -> str:
        """Hash of everything that decides the result."""
        inputs = {
            "origin": self.source.origin,
            "config": dict(self.source.config),
            "tokenizer": hashlib.sha256(self.tokenizer_json.encode()).hexdigest(),
            "context": self.shape.context,
            "prompt": self.prompt_spec,
            "shallow": self.shallow and [self.shallow.k, self.shallow.anchor],
            "code": {name: _sha256(Path(__file__).parent / name) for name in _CODE},
            "libraries": {name: importlib.metadata.version(name) for name in _LIBRARIES},
            **self.own_inputs,
        }
        return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()

    def format(self, name: str) -> Built:
        """The built format, from the cache or made now."""
        folder = cache_folder() / self.key[:24] / name
        if self.force or not (folder / "facts.json").exists():
            with _replacing(folder) as fresh:
                facts = self._build(name, fresh)
                found = facts["probabilities"]
                reference = found if name == self.reference_format else self.reference
                facts["drift"] = drift.drift(reference, found)
                (fresh / "facts.json").write_text(json.dumps(facts), "utf-8")
            prune(cache_folder(), folder.parent, KEPT_BYTES)
        folder.parent.touch()
        return Built(folder, json.loads((folder / "facts.json").read_text("utf-8")))

    @cached_property
    def reference(self) -> drift.Probabilities:
        """Option probabilities of the fixed prompts in the format that others are compared with."""
        found: drift.Probabilities = self.format(self.reference_format).facts["probabilities"]
        return found

    def _measured(self, name: str, model: NativeModel) -> dict[str, Any]:
        """Option probabilities and golden values of a format."""
        with self.steps.step(f"{name}: option probabilities", drift.states()) as advance:
            found = drift.probabilities(
                model, self.prompt, self.readout, self.tokenizer, self.anchor, advance
            )
        labels = [label["id"] for label in self.labels]
        has_pointer, shallow = self.pointer_width is not None, self.shallow is not None
        cases = golden.golden_cases(model, self.tokenizer, labels, has_pointer, shallow)
        return {"golden": cases, "probabilities": found}

    def _shards(self, folder: Path, file: str, size: int) -> dict[str, Any]:
        """Cut a data file into shards, and drop it."""
        shards: list[str] = []
        with (folder / file).open("rb") as whole:
            while part := whole.read(SHARD_BYTES):
                shards.append(f"{file}.{len(shards):03d}")
                (folder / shards[-1]).write_bytes(part)
        (folder / file).unlink()
        return {"path": file, "bytes": size, "shards": shards}


class ModelBuild(Build):
    """Builds the formats of one model from its weights.

    Args:
        context: the number of positions, None for the model's own.
        force: build what is there already.
        shallow: the layers that texts go through; None for all.
        anchor, agreement: of a shallow model, as in `Shallow`.
    """

    def __init__(
        self,
        source: Source,
        context: int | None,
        steps: Steps,
        force: bool = False,
        shallow: int | None = None,
        anchor: str = DEFAULT_ANCHOR,
        agreement: float | None = None,
    ) -> None:
        self.decoder = Decoder.from_config(source.config)
        positions = min(context or self.decoder.positions, self.decoder.positions)
        cut = shallow_layers(self.decoder, shallow)
        shape = Shape(self.decoder.layers, self.decoder.kv_heads, self.decoder.head_dim, positions, cut)
        form = None if cut is None else Shallow(cut, anchor, agreement)
        super().__init__(source, shape, steps, force, form, _pointer_width(source, self.decoder))

    @property
    def sizes(self) -> dict[str, Any]:
        """Of the decoder."""
        decoder = self.decoder
        return {
            "family": decoder.family,
            "parameters": decoder.parameters,
            "hidden": decoder.hidden,
            "heads": decoder.heads,
            "ff": decoder.ff,
            "vocab": decoder.vocab,
        }

    def _build(self, name: str, folder: Path) -> dict[str, Any]:
        names = [n for group in weight_names(self.decoder) for n in group]
        rounded = quantize.FORMATS[name].is_rounded
        weights = self.rotated if rounded else self.source.weights
        seen = self._moments(name) if rounded else None
        with self.steps.step(f"{name}: weights", len(names)) as advance:
            layout = quantize.store(
                self.decoder, weights, name, folder, self.shape.context, lambda _: advance(), seen
            )
        graphs = {}
        variants = ROUNDED_GRAPHS if rounded else GRAPHS
        with self.steps.step(f"{name}: graphs", len(variants)) as advance:
            for variant in variants:
                graphs[variant] = f"{variant}-{name}.onnx"
                (folder / graphs[variant]).write_bytes(
                    build(self.decoder, layout, variant, self.shape.shallow)
                )
                advance()
        data = {file: (folder / file).read_bytes() for file, _ in layout.files()}
        with NativeModel((folder / graphs["explicit"]).read_bytes(), data, self.shape) as model:
            measured = self._measured(name, model)
        shards = [self._shards(folder, file, size) for file, size in layout.files()]
        limits = {"tolerance": golden.ROUNDED_TOLERANCE, "devices": ["wasm"]} if rounded else {}
        return {"graphs": graphs, "data": shards, **limits, **measured}

    @property
    def rotated(self) -> Weights:
        """The weights as formats whose inputs are rounded take them."""
        weights = self.source.weights
        return Rotated(self.decoder, weights) if can_rotate(self.decoder) else weights

    def _moments(self, name: str) -> moments.Moments:
        """What the matrices of the rotated model get."""
        runs = list(moments.prompts(self.prompt, self.readout, self.tokenizer))
        store = partial(quantize.store, self.decoder, self.rotated, "fp32", context=self.shape.context)
        with self.steps.step(f"{name}: inputs of matrices", len(runs)) as advance:
            return moments.measure(self.decoder, store, self.shape, runs, advance)


def _pointer_width(source: Source, decoder: Decoder) -> int | None:
    """Values of one projection of the model's pointer: a query, a key of the same size and a bias; None without one."""
    if POINTER not in source.weights.names():
        return None
    width, hidden = source.weights.get(POINTER).shape
    if hidden != decoder.hidden or width < 3 or width % 2 == 0:
        raise UnsupportedModelError(
            f"{POINTER} is [{width}, {hidden}]; queries, keys and a bias for {decoder.hidden} values are [2 D + 1,"
            f" {decoder.hidden}]",
            value=[width, hidden],
        )
    return int(width)


def cache_folder() -> Path:
    """Where built models are kept: `build/models` in the checkout, or TYPEDECIDE_BUILD_CACHE."""
    named = os.environ.get("TYPEDECIDE_BUILD_CACHE")
    return Path(named) if named else ROOT / "build" / "models"


def prune(cache: Path, used: Path, limit: int) -> None:
    """Remove the models used longest ago, never `used`, until the cache takes at most `limit` bytes."""
    sizes = {model: _size(model) for model in cache.iterdir() if model.is_dir()}
    for model in sorted(sizes, key=lambda one: one.stat().st_mtime):
        if sum(sizes.values()) <= limit:
            return
        if model != used:
            shutil.rmtree(model, ignore_errors=True)
            del sizes[model]


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@contextmanager
def _replacing(folder: Path) -> Iterator[Path]:
    """A fresh folder that takes the place of `folder` once it is complete; nothing half-built is ever seen."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        yield fresh
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
