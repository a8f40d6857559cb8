"""The engine that a command's arguments ask for."""

from __future__ import annotations

from pathlib import Path

from typedecide.calibration import Given
from typedecide.errors import UnsupportedError
from typedecide.results import DecisionEngine
from typedecide.terminal import Status

DEVICES = ("auto", "webgpu", "wasm", "native")
VARIANTS = ("explicit", "gqa")


def open_engine(
    device: str,
    bundle: Path,
    status: Status,
    *,
    format: str | None = None,
    variant: str | None = None,
    threads: int | None = None,
    calibration: Given = None,
) -> DecisionEngine:
    """The engine for one of `DEVICES`, loaded; `status` is told how far that is.

    Raises:
        UnsupportedError: what it needs is not installed.
    """
    try:
        if device == "native":
            from typedecide.native import NativeEngine

            status.say("Loading the model")
            return NativeEngine(bundle, format, variant, threads, calibration=calibration)
        from typedecide.page import PageEngine

        status.say("Starting the browser")
        return PageEngine(
            bundle,
            device,
            format,
            threads=threads,
            on_progress=status.page_progress,
            calibration=calibration,
        )
    except ImportError as error:
        extra = "native" if device == "native" else "page"
        raise UnsupportedError(
            f"{error}. This device needs `pip install typedecide[{extra}]`.", package=error.name
        ) from error
