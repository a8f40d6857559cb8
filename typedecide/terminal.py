"""What the command line shows: the package that draws its tables, and how far long work is, on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Self, TypeVar

from typedecide.errors import UnsupportedError

Item = TypeVar("Item")

EVERY_S = 10
"""How often progress is told where there is no terminal."""


def rich() -> Any:
    """The `rich` package with the modules used here; only the terminal needs it, so it is imported late."""
    try:
        import rich.console
        import rich.markup
        import rich.progress
        import rich.progress_bar
        import rich.table
    except ImportError as error:
        raise UnsupportedError(
            "Tables need `pip install rich`; --json does without.", package="rich"
        ) from error
    return rich


def track(items: Iterable[Item], total: int, what: str) -> Iterator[Item]:
    """The items, with a bar, the rate and the time left on a terminal, else a line every `EVERY_S` seconds."""
    if sys.stderr.isatty():
        yield from _bar(items, total, what)
        return
    began = told = time.monotonic()
    done = 0
    for done, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        if now - told > EVERY_S:
            told = now
            rate = done / (now - began)
            left = (total - done) / rate
            say(f"{what}: {done} of {total}, {rate:.1f}/s, {_span(left)} left")
    say(f"{what}: {done} of {total} in {_span(time.monotonic() - began)}")


def _bar(items: Iterable[Item], total: int, what: str) -> Iterator[Item]:
    progress = rich().progress
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[rate]}"),
        progress.TimeRemainingColumn(),
    )
    began = time.monotonic()
    with progress.Progress(*columns, console=rich().console.Console(stderr=True)) as bars:
        task = bars.add_task(what, total=total, rate="")
        for done, item in enumerate(items, start=1):
            yield item
            bars.update(task, advance=1, rate=f"{done / (time.monotonic() - began):.1f}/s")


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} min" if minutes else f"{rest} s"


def say(text: str) -> None:
    """A line on standard error."""
    print(text, file=sys.stderr, flush=True)


class Status:
    """Says on standard error what is going on: one live line on a terminal, else a line a second at most."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._live: Any = None
        self._last = time.monotonic()

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            console = rich().console.Console(stderr=True)
            self._live = self._stack.enter_context(console.status("Starting"))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def say(self, message: str) -> None:
        """What happens now."""
        if self._live is not None:
            self._live.update(rich().markup.escape(message))
        elif time.monotonic() - self._last > 1:
            self._last = time.monotonic()
            print(message, file=sys.stderr, flush=True)

    def page_progress(self, event: Mapping[str, Any]) -> None:
        """What the page reports while it loads."""
        loaded, total = event.get("loadedBytes"), event.get("totalBytes")
        share = f": {loaded / total:.0%} of {total / 1e6:.0f} MB" if loaded is not None and total else ""
        self.say(f"{event.get('message', event['phase'])}{share}")
