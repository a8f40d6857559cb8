"""Progress of long builds on standard error: a bar on a terminal, a line a step elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Steps:
    """Reports named steps. Use as a context manager around the whole build."""

    def __init__(self, quiet: bool = False) -> None:
        console = Console(file=sys.stderr, quiet=quiet)
        self._plain = not console.is_terminal and not quiet
        self._bars = Progress(
            TextColumn("{task.description:<34}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=quiet or not console.is_terminal,
        )

    def __enter__(self) -> Steps:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    @contextmanager
    def step(self, name: str, total: int) -> Iterator[Callable[[], None]]:
        """A step of `total` units; call what it yields after each unit."""
        began = time.perf_counter()
        task = self._bars.add_task(name, total=total)
        yield lambda: self._bars.advance(task)
        if self._plain:
            print(f"{name}: done in {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
