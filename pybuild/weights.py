"""A model's tensors: the protocol that all sources meet, safetensors files, and a model cut to its first layers.

Names and shapes are those of Hugging Face: `model.layers.0.self_attn.q_proj.weight`, rows are outputs. Knows nothing
about graphs, tokenizers or number formats of the bundle.
"""

from __future__ import annotations

import json
import mmap
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from typedecide.errors import TypedecideError

Float32 = NDArray[np.float32]


class SourceError(TypedecideError):
    """A model cannot be had or read: an unknown name, a missing file, a format that this build does not know."""

    code = "SOURCE"


class Weights(Protocol):
    """A model's tensors by name. Nothing is read before it is asked for, and nothing is kept."""

    def names(self) -> Sequence[str]:
        """All tensor names, sorted."""
        ...

    def get(self, name: str) -> Float32:
        """The tensor of that name as float32, with outputs as rows; SourceError when there is none."""
        ...


def missing_tensor(name: str, names: Sequence[str]) -> SourceError:
    """The error for a name that is not there."""
    return SourceError(f"The model has no tensor {name!r}.", tensor=name, tensors=len(names))


# ---------------------------------------------------------------------------------------------------- safetensors

_DTYPES: Mapping[str, str] = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


class SafetensorsFile:
    """One safetensors file, memory-mapped. Read here because the library has no bfloat16 for numpy.

    The format: 8 bytes little-endian header length, a JSON header with dtype, shape and data offsets, then the data.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            length = int.from_bytes(self._map[:8], "little")
            header = json.loads(self._map[8 : 8 + length])
            header.pop("__metadata__", None)
            self._start = 8 + length
            self.entries: dict[str, dict[str, Any]] = header
            end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise SourceError(
                f"{path.name} is not a readable safetensors file: {error}", file=path.name
            ) from error
        if self._start + end > len(self._map):
            raise SourceError(
                f"{path.name} is cut short: its header speaks of {self._start + end} bytes, it has {len(self._map)}.",
                file=path.name,
                expected=self._start + end,
                found=len(self._map),
            )

    def get(self, name: str) -> Float32:
        """The tensor widened to float32. Widening from float16 and bfloat16 is exact."""
        entry = self.entries[name]
        dtype, shape = entry["dtype"], entry["shape"]
        if dtype not in _DTYPES:
            raise SourceError(
                f"Tensor {name!r} has the number type {dtype}; {', '.join(_DTYPES)} can be read.",
                tensor=name,
                dtype=dtype,
            )
        begin, end = entry["data_offsets"]
        raw = np.frombuffer(self._map[self._start + begin : self._start + end], dtype=_DTYPES[dtype])
        if dtype == "BF16":  # a bfloat16 is the upper half of a float32
            raw = (raw.astype(np.uint32) << 16).view(np.float32)
        return raw.reshape(shape).astype(np.float32, copy=False)


class SafetensorsWeights:
    """All safetensors files of a Hugging Face folder as one set of tensors."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files: dict[str, SafetensorsFile] = {}
        for path in files:
            file = SafetensorsFile(path)
            for name in file.entries:
                if name in self._files:
                    raise SourceError(
                        f"Tensor {name!r} is in two files: {self._files[name].path.name} and {path.name}.",
                        tensor=name,
                    )
                self._files[name] = file

    def names(self) -> Sequence[str]:
        """All tensor names, sorted."""
        return sorted(self._files)

    def get(self, name: str) -> Float32:
        """The tensor of that name as float32."""
        if name not in self._files:
            raise missing_tensor(name, list(self._files))
        return self._files[name].get(name)


# ---------------------------------------------------------------------------------------------------- cut-down models


class FirstLayers:
    """The same tensors without those of layer `layers` and above."""

    def __init__(self, weights: Weights, layers: int) -> None:
        self._weights = weights
        self._names = [name for name in weights.names() if _layer_of(name) < layers]

    def names(self) -> Sequence[str]:
        """All tensor names, sorted."""
        return list(self._names)

    def get(self, name: str) -> Float32:
        """The tensor of that name as float32."""
        if name not in self._names:
            raise missing_tensor(name, self._names)
        return self._weights.get(name)


def _layer_of(name: str) -> int:
    """The layer that a tensor belongs to; -1 for those outside the layers."""
    layer = re.match(r"model\.layers\.(\d+)\.", name)
    return int(layer[1]) if layer else -1
