"""A community export -> the model part of a bundle: its ONNX graphs as they are, checked, with golden values and drift.

The layout is that of onnx-community/Qwen3-0.6B-ONNX: config.json, tokenizer.json, and onnx/model.onnx, model_fp16.onnx,
model_q4.onnx, … with their external data beside them. The graphs are run by `typedecide/stock.py` and `web/stock.js`.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import onnx
from onnxruntime.capi import onnxruntime_pybind11_state as runtime

from pybuild.artifacts import Build
from pybuild.golden import TOLERANCE
from pybuild.graph import UnsupportedModelError
from pybuild.progress import Steps
from pybuild.sources import SourceError, load_export
from typedecide.errors import UnsupportedError
from typedecide.model import Shape
from typedecide.stock import StockModel

GRAPHS = "onnx"
"""The folder of the graphs."""

FIRST = ("fp32", "fp16")
"""The formats that others are compared with, where they are there."""

HALF_TOLERANCE = 0.05
"""As TOLERANCE, for graphs that compute in float16: a logit of about 10 has steps of 0.008 there."""

COARSE_TOLERANCE = 0.5
"""As TOLERANCE, for graphs that let a device round what they compute with to 8 bits, or not: 4-bit SmolLM2-135M is 0.16
apart between Python and WASM."""

RUNTIME_ERRORS = (
    runtime.Fail,
    runtime.InvalidGraph,
    runtime.InvalidProtobuf,
    runtime.NotImplemented,
    runtime.RuntimeException,
)
"""What ONNX Runtime says of a graph that it cannot load."""

_PLAIN = {"input_ids", "attention_mask", "position_ids"}
_FLOAT, _HALF = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16
_COARSE = {"DynamicQuantizeLinear", "DynamicQuantizeMatMul", "MatMulInteger"}


@dataclass(frozen=True)
class Export:
    """One graph of an export: its file, and the files beside it that hold its weights."""

    path: Path
    variant: str
    data: tuple[Path, ...]
    tolerance: float

    @classmethod
    def read(cls, path: Path, config: Mapping[str, Any]) -> Export:
        """Look at a graph without its weights; UnsupportedModelError where it is not of the kind that can be run."""
        model = onnx.load(path, load_external_data=False)
        _check(path.name, model.graph, config)
        locations = sorted({*_locations(model.graph)})
        for location in locations:
            if Path(location).name != location or not (path.parent / location).is_file():
                raise SourceError(
                    f"{path.name} has weights in {location!r}, which is not beside it.", file=location
                )
        kinds = {node.op_type for node in model.graph.node}
        variant = "gqa" if "GroupQueryAttention" in kinds else "explicit"
        return cls(path, variant, tuple(path.parent / one for one in locations), _tolerance(model.graph))

    @cached_property
    def sha256(self) -> list[str]:
        """Of the graph and its data."""
        found = []
        for one in (self.path, *self.data):
            with one.open("rb") as file:
                found.append(hashlib.file_digest(file, "sha256").hexdigest())
        return found


def _locations(graph: onnx.GraphProto) -> Iterator[str]:
    for tensor in graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            yield next(entry.value for entry in tensor.external_data if entry.key == "location")


def _check(name: str, graph: onnx.GraphProto, config: Mapping[str, Any]) -> None:
    """UnsupportedModelError, with what is at fault, where a graph is no text decoder with a cache."""
    layers = range(config["num_hidden_layers"])
    past = {f"past_key_values.{i}.{part}" for i in layers for part in ("key", "value")}
    present = {one.replace("past_key_values", "present") for one in past}
    weights = {one.name for one in graph.initializer}
    inputs = {one.name: one for one in graph.input if one.name not in weights}
    outputs = {one.name for one in graph.output}
    needed = {"input_ids", "attention_mask", *past}
    for what, wrong in (
        ("lacks the inputs", needed - set(inputs)),
        ("has the further inputs", set(inputs) - needed - _PLAIN),
        ("lacks the outputs", {"logits", *present} - outputs),
    ):
        if wrong:
            raise UnsupportedModelError(
                f"{name} {what} {', '.join(sorted(wrong))}: it is no text decoder with a cache of {len(layers)} layers",
                value=sorted(wrong),
            )
    sizes = (config["num_key_value_heads"], config["head_dim"])
    for cache in sorted(past):
        tensor = inputs[cache].type.tensor_type
        dims = [one.dim_value for one in tensor.shape.dim]
        # A dimension without a number has 0 here.
        fits = len(dims) == 4 and dims[1] in (0, sizes[0]) and dims[3] in (0, sizes[1])
        if not fits or tensor.elem_type not in (_FLOAT, _HALF):
            kind = onnx.TensorProto.DataType.Name(tensor.elem_type)
            raise UnsupportedModelError(
                f"{name}: {cache} is {kind} {dims}; config.json has {sizes[0]} heads of {sizes[1]}, float or float16",
                value=dims,
            )


def _tolerance(graph: onnx.GraphProto) -> float:
    """How far devices that are right may be apart."""
    for node in graph.node:
        levels = [one.i for one in node.attribute if one.name == "accuracy_level"]
        if node.op_type in _COARSE or 4 in levels:
            return COARSE_TOLERANCE
    caches = (one for one in graph.input if one.name.startswith("past_key_values."))
    half = any(one.type.tensor_type.elem_type == _HALF for one in caches)
    return HALF_TOLERANCE if half else TOLERANCE


class StockBuild(Build):
    """The formats of an export.

    Args:
        folder: the export.
        formats: those to build, None for all that it has.
        context: the number of positions, None for the model's own.
        force: build what is there already.
    """

    stock = True

    def __init__(
        self,
        folder: Path,
        formats: Sequence[str] | None,
        context: int | None,
        steps: Steps,
        force: bool = False,
    ) -> None:
        source = load_export(folder)
        config = source.config
        positions = int(config["max_position_embeddings"])
        shape = Shape(
            layers=config["num_hidden_layers"],
            kv_heads=config["num_key_value_heads"],
            head_dim=config["head_dim"],
            context=min(context or positions, positions),
        )
        super().__init__(source, shape, steps, force)
        found = {}
        for path in sorted((folder / GRAPHS).glob("model*.onnx")):
            if stem := re.fullmatch(r"model(?:_(\w+))?", path.stem):
                found[stem[1] or "fp32"] = path
        if not found:
            raise SourceError(f"{folder.name} has no {GRAPHS}/model*.onnx.", folder=folder.name)
        for name in formats or ():
            if name not in found:
                raise UnsupportedError(
                    f"{folder.name} has no format {name!r}; it has {', '.join(found)}", format=name
                )
        first = [name for name in FIRST if name in found]
        self.formats = tuple(formats or dict.fromkeys([*first, *found]))
        # The others are not even looked at.
        self.paths: Mapping[str, Path] = {
            name: found[name] for name in dict.fromkeys([*first[:1], *self.formats])
        }
        self._exports: dict[str, Export] = {}

    @property
    def sizes(self) -> dict[str, Any]:
        """As config.json states them."""
        config = self.source.config
        return {
            "family": config.get("model_type"),
            "hidden": config["hidden_size"],
            "heads": config["num_attention_heads"],
            "ff": config["intermediate_size"],
            "vocab": config["vocab_size"],
        }

    @property
    def own_inputs(self) -> dict[str, Any]:
        """The graphs and their data."""
        return {"exports": {name: self.export(name).sha256 for name in self.paths}}

    @property
    def reference_format(self) -> str:
        """float32, or what comes nearest to it here."""
        return next(iter(self.paths))

    def export(self, name: str) -> Export:
        """One graph, checked."""
        if name not in self._exports:
            self._exports[name] = Export.read(self.paths[name], self.source.config)
        return self._exports[name]

    def _build(self, name: str, folder: Path) -> dict[str, Any]:
        export = self.export(name)
        graph = shutil.copyfile(export.path, folder / export.path.name)
        data = {path.name: path.read_bytes() for path in export.data}
        try:
            session = StockModel(graph.read_bytes(), data, self.shape, self.source.config["vocab_size"])
        except RUNTIME_ERRORS as error:
            first = str(error).splitlines()[0][:300]
            raise SourceError(
                f"ONNX Runtime cannot load {export.path.name}: {first}", file=export.path.name, reason=first
            ) from error
        with session as model:
            measured = self._measured(name, model)
        sizes = {file: len(content) for file, content in data.items()}
        del data
        for path in export.data:
            shutil.copyfile(path, folder / path.name)
        return {
            "graphs": {export.variant: graph.name},
            "data": [self._shards(folder, file, size) for file, size in sizes.items()],
            "tolerance": export.tolerance,
            **measured,
        }
