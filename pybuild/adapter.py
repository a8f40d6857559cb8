"""Low-rank adapters: the files that `python -m pybuild tune` writes, and a base model's weights with one merged in.

The base may have an adapter of its own; its pointer stays where the new adapter brings none.

A folder holds `adapter.safetensors` (float16: for each adapted layer `{layer}.lora_A` [rank, in] and `{layer}.lora_B`
[out, rank], and `pointer.weight` [2 D + 1, hidden]) and `adapter.json` (`base`, `rank`, `alpha`, how it was made, and
`shallow` where it is for a shallow model).
An adapted layer's weight is that of the base plus alpha / rank · B A. Needs no PyTorch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pybuild.graph import POINTER
from pybuild.weights import Float32, SafetensorsFile, SourceError, Weights, missing_tensor

TENSORS, FACTS = "adapter.safetensors", "adapter.json"

_A, _B = ".lora_A", ".lora_B"


@dataclass(frozen=True)
class Adapter:
    """An adapter as its folder holds it.

    base: the name of the model that it changes.
    scale: what B A is multiplied with.
    tensors: A and B of each adapted layer, and the pointer's weights.
    sha256: of both files, so that what is built from them is built anew when either changes.
    shallow: the layers and the anchor of the shallow model that it was trained for; None for a whole one.
    """

    base: str
    scale: float
    tensors: SafetensorsFile
    sha256: str
    shallow: tuple[int, str] | None = None

    @property
    def layers(self) -> Sequence[str]:
        """Names of the adapted layers, such as `model.layers.0.self_attn.q_proj`."""
        return [name.removesuffix(_A) for name in self.tensors.entries if name.endswith(_A)]

    def delta(self, layer: str) -> Float32:
        """What is added to the weight of an adapted layer, [out, in]."""
        found: Float32 = (self.tensors.get(layer + _B) @ self.tensors.get(layer + _A)) * np.float32(
            self.scale
        )
        return found


def read_adapter(folder: Path) -> Adapter:
    """The adapter in a folder; SourceError says what is wrong with it."""
    try:
        text = (folder / FACTS).read_text("utf-8")
        facts = json.loads(text)
        base, rank, alpha = facts["base"], facts["rank"], facts["alpha"]
        trained = facts.get("shallow")
        shallow = None if trained is None else (int(trained["layers"]), str(trained["anchor"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SourceError(
            f"{folder.name}/{FACTS} does not state base, rank and alpha: {error!r}", file=FACTS
        ) from error
    if (
        not isinstance(base, str)
        or not isinstance(rank, int)
        or rank < 1
        or not isinstance(alpha, int | float)
    ):
        raise SourceError(
            f"{folder.name}/{FACTS}: base {base!r}, rank {rank!r}, alpha {alpha!r} are no name, whole number from 1"
            " and number.",
            file=FACTS,
            base=base,
            rank=rank,
            alpha=alpha,
        )
    tensors = SafetensorsFile(folder / TENSORS)
    digest = hashlib.sha256(text.encode() + (folder / TENSORS).read_bytes()).hexdigest()
    adapter = Adapter(base, alpha / rank, tensors, digest, shallow)
    for layer in adapter.layers:
        shapes = [tensors.entries.get(layer + part, {}).get("shape", [0, 0]) for part in (_A, _B)]
        if shapes[0][0] != rank or shapes[1][1] != rank:
            raise SourceError(
                f"{folder.name}: {layer} has A {shapes[0]} and B {shapes[1]}, which are not of rank {rank}.",
                layer=layer,
                shapes=shapes,
                rank=rank,
            )
    return adapter


def write_adapter(
    folder: Path,
    layers: Mapping[str, tuple[Float32, Float32]],
    pointer: Float32 | None,
    facts: Mapping[str, Any],
) -> None:
    """Write an adapter's folder.

    Args:
        folder: made where it is not there.
        layers: (A [rank, in], B [out, rank]) of each adapted layer by its name.
        pointer: the pointer's weights [2 D + 1, hidden]; None for an adapter of another readout.
        facts: the content of adapter.json: `base`, `rank`, `alpha`, and how the adapter was made.
    """
    from safetensors.numpy import save_file

    tensors = {} if pointer is None else {POINTER: pointer.astype(np.float16)}
    for layer, (a, b) in layers.items():
        tensors[layer + _A], tensors[layer + _B] = a.astype(np.float16), b.astype(np.float16)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / TENSORS)
    (folder / TENSORS).chmod(0o644)
    (folder / FACTS).write_text(json.dumps(facts, indent=1) + "\n", "utf-8")


class MergedWeights:
    """A base model's tensors with an adapter added to them, and the adapter's pointer, if it has one."""

    def __init__(self, base: Weights, adapter: Adapter) -> None:
        """Raises SourceError where the adapter does not fit the base."""
        self._base, self._adapter = base, adapter
        names = set(base.names())
        self._layers = {f"{layer}.weight": layer for layer in adapter.layers}
        for name in self._layers:
            if name not in names:
                raise missing_tensor(name, sorted(names))
        self._names = sorted(names | ({POINTER} & set(adapter.tensors.entries)))

    def names(self) -> Sequence[str]:
        """All tensor names, sorted."""
        return list(self._names)

    def get(self, name: str) -> Float32:
        """The tensor of that name as float32."""
        if name == POINTER and name in self._adapter.tensors.entries:
            return self._adapter.tensors.get(name)
        weight = self._base.get(name)
        if name not in self._layers:
            return weight
        delta = self._adapter.delta(self._layers[name])
        if delta.shape != weight.shape:
            raise SourceError(
                f"{name} is {list(weight.shape)}, the adapter is for {list(delta.shape)}.",
                tensor=name,
                shape=list(weight.shape),
                adapter=list(delta.shape),
            )
        return weight + delta
