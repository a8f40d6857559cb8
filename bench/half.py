"""A bundle's fp32 graphs with weights and activations in float16: for the question whether GPUs get them right.

It is no format of bundles. Inputs, outputs and kept keys and values stay float32, so that engines run it as it is.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx
from onnxruntime.transformers.float16 import convert_float_to_float16

from pybuild.golden import behind_cache, logits_of
from pybuild.layout import ALIGNMENT
from pybuild.stock import HALF_TOLERANCE
from typedecide.bundle import MANIFEST, Bundle
from typedecide.model import NativeModel, Shape

NAME, SOURCE = "fp16", "fp32"
"""What the half bundle's only format is called, and the format that it is made of."""

WEIGHTS = "weights-fp16.bin"

LARGE = 1024
"""Bytes from which a tensor goes into the file of weights; smaller ones, such as sizes of a Reshape, stay inside."""


def half(bundle: Path) -> Path:
    """The half bundle of a bundle, beside it: made, or kept from before where it is of the same one."""
    source = Bundle.open(bundle)
    out = bundle.with_name(f"{bundle.name}-half")
    stamp = hashlib.sha256((bundle / MANIFEST).read_bytes() + Path(__file__).read_bytes()).hexdigest()
    if (out / MANIFEST).is_file() and Bundle.open(out).manifest["build"]["inputs"] == stamp:
        return out
    shutil.rmtree(out, ignore_errors=True)
    # What is the same on disk is the same file.
    left = shutil.ignore_patterns("*.onnx", "weights-*", MANIFEST)
    shutil.copytree(bundle, out, copy_function=os.link, ignore=left)
    graphs = convert(source, out / "model")
    (out / MANIFEST).write_text(json.dumps(manifest_of(source, out, graphs, stamp)), "utf-8")
    return out


def convert(source: Bundle, folder: Path) -> dict[str, str]:
    """Write the graphs and the file of their weights; gives the graphs' paths by variant."""
    data = dict(source.weights(SOURCE))
    places: dict[str, tuple[int, int]] = {}
    found = {}
    with (folder / WEIGHTS).open("wb") as weights:
        for variant in ("gqa", "explicit"):
            model = onnx.load(source.graph_path(SOURCE, variant), load_external_data=False)
            _take_in(model.graph, data)
            model = convert_float_to_float16(model, keep_io_types=True, disable_shape_infer=True)
            for tensor in _large(model.graph):
                if tensor.name not in places:
                    weights.write(b"\0" * (-weights.tell() % ALIGNMENT))
                    places[tensor.name] = (weights.tell(), len(tensor.raw_data))
                    weights.write(tensor.raw_data)
                _take_out(tensor, *places[tensor.name])
            path = folder / f"{variant}-{NAME}.onnx"
            path.write_bytes(model.SerializeToString(deterministic=True))
            found[variant] = f"{folder.name}/{path.name}"
    return found


def _take_in(graph: onnx.GraphProto, data: Mapping[str, memoryview]) -> None:
    """Bring external weights into the graph."""
    for tensor in graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            told = {entry.key: entry.value for entry in tensor.external_data}
            start = int(told["offset"])
            tensor.raw_data = bytes(data[told["location"]][start : start + int(told["length"])])
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]


def _large(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    return (tensor for tensor in graph.initializer if len(tensor.raw_data) >= LARGE)


def _take_out(tensor: onnx.TensorProto, offset: int, length: int) -> None:
    """Leave only where in the file of weights a tensor lies."""
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", WEIGHTS), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))


def manifest_of(source: Bundle, out: Path, graphs: Mapping[str, str], stamp: str) -> dict[str, Any]:
    """The source's manifest with the half format in place of all others, with golden values of its own."""
    weights = out / "model" / WEIGHTS
    entry = {
        **source.manifest["formats"][SOURCE],
        "graphs": graphs,
        "data": [{"path": WEIGHTS, "bytes": weights.stat().st_size, "shards": [f"model/{WEIGHTS}"]}],
        "bytes": weights.stat().st_size,
        "tolerance": HALF_TOLERANCE,
    }
    graph = (out / graphs["explicit"]).read_bytes()
    with NativeModel(graph, {WEIGHTS: weights.read_bytes()}, Shape.of(source.model)) as model:
        score = behind_cache(model)
        entry["golden"] = [{**case, "logits": logits_of(score, case)} for case in entry["golden"]]
    files = {path: told for path, told in source.manifest["files"].items() if (out / path).is_file()}
    for path in (weights, *(out / graph for graph in graphs.values())):
        told = {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        files[path.relative_to(out).as_posix()] = told
    kept = {name: value for name, value in source.manifest.items() if name != "calibration"}
    build = {**source.manifest["build"], "inputs": stamp}
    return {**kept, "build": build, "default_format": NAME, "formats": {NAME: entry}, "files": files}
