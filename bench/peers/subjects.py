"""What is compared: ours and what a user would pick instead, each with its settings.

A subject opens in a page of the site (page/*.js). Each has what its makers offer for the CPU: threads, for which the
page is cross-origin isolated (wllama would take half of the cores, transformers.js at most half of them up to four);
SIMD; in wllama one slot, so that each prompt finds the one before, and its own defaults for batches, flash attention
and an f16 cache; in transformers.js the runtime's build for WASM alone, logits of the last position only, and its 8-bit
form, which is its default on WASM, beside fp32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

STOCK, DECIDE = "stock", "decide"
"""Under which names our bundles are served: of the weights that peers run, and of the default model."""

EXPORT = "export"


@dataclass(frozen=True)
class Subject:
    """One row.

    module: its page/*.js. options: for that module's `open`. files: those with the same share what the browser keeps.
    bundle: under which name our bundle is served; None for a peer.
    """

    name: str
    setting: str
    threads: int
    module: str
    files: str
    options: Mapping[str, Any] = field(default_factory=dict)
    debiased: bool = False
    probabilities: bool = True
    bundle: str | None = None

    @property
    def key(self) -> str:
        """Its name in messages and journals."""
        return f"{self.name}: {self.setting}, {self.threads} {'thread' if self.threads == 1 else 'threads'}"

    @property
    def needs_export(self) -> bool:
        """Whether it runs the ONNX export."""
        return self.files.startswith(EXPORT)


def subjects(formats: Sequence[str], decide_format: str, threads: Sequence[int]) -> list[Subject]:
    """All rows: ours in `formats`, the default model in its own format, and the peers."""
    return [
        one
        for count in threads
        for one in (
            *(_ours(name, debiased, count) for name in formats for debiased in (False, True)),
            _decide(decide_format, count),
            *(_wllama(cache, count) for cache in (False, True)),
            *(
                _transformers(dtype, way, count)
                for dtype in ("fp32", "q8")
                for way in ("full", "cached", "json")
            ),
        )
    ]


def _ours(name: str, debiased: bool, threads: int) -> Subject:
    orderings = "auto" if debiased else 1
    return Subject(
        name="typedecide",
        setting=f"{name}, letters, {'several orders' if debiased else 'one order'}",
        threads=threads,
        module="typedecide",
        files=f"{STOCK} {name}",
        options={"bundle": STOCK, "format": name, "readout": "labels", "orderings": orderings},
        debiased=debiased,
        bundle=STOCK,
    )


def _decide(name: str, threads: int) -> Subject:
    return Subject(
        name="typedecide",
        setting=f"{name}, tuned model, pointer",
        threads=threads,
        module="typedecide",
        files=f"{DECIDE} {name}",
        options={"bundle": DECIDE, "format": name, "readout": "pointer"},
        # Its options are a set: there is no order to take out.
        debiased=True,
        bundle=DECIDE,
    )


def _wllama(cache: bool, threads: int) -> Subject:
    return Subject(
        name="wllama",
        setting=f"GGUF, one token for each question, {'with' if cache else 'without'} prompt cache",
        threads=threads,
        module="wllama",
        files="gguf",
        options={"cache": cache},
    )


_WAYS = {
    "full": "whole prompts",
    "cached": "kept keys and values of the text",
    "json": "one JSON object, generated",
}


def _transformers(dtype: str, way: str, threads: int) -> Subject:
    return Subject(
        name="transformers.js",
        setting=f"{dtype}, {_WAYS[way]}",
        threads=threads,
        module="transformers",
        files=f"{EXPORT} {dtype}",
        options={"dtype": dtype, "way": way},
        probabilities=way != "json",
    )
