"""Python in a browser: the page's engine, asked from Pyodide with the questions and results of every other engine.

Importing it is possible everywhere, connecting only in Pyodide, on the page's main thread or in a worker. Knows no
tensors and no prompts. What crosses to JavaScript and back are texts and numbers; nothing that one side makes for the
other outlives the call that needed it.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Self, TypeVar, Unpack

from typedecide import javascript
from typedecide.errors import (
    BundleError,
    InvalidQuestionError,
    TypedecideError,
    UnsupportedError,
    revive_error,
)
from typedecide.frames import OnRow, answered
from typedecide.options import Options
from typedecide.orderings import Level
from typedecide.prompt import check_state
from typedecide.questions import Question, to_wire
from typedecide.results import Debiased, Decided, OnDecided

T = TypeVar("T")

Progress = Callable[[Mapping[str, Any]], None]
"""Receives what the engine reports while it loads: `phase`, `message`, `file`, `loadedBytes`, `totalBytes`."""

_offered: Any = None


def offer(engine: Any) -> None:
    """What `connect()` takes when it is given no address, from now on; None for nothing.

    For the page that Python runs in: where it has an engine already, the model is not loaded twice, and where its
    policy forbids `eval`, this is the only way.

    Args:
        engine: the `Engine` of `web/index.js`, what `borrow` of `web/port.js` gives, or a JavaScript function without
            arguments that gives a promise of one of them.
    """
    global _offered
    _offered = engine


async def connect(
    url: str | None = None,
    *,
    device: str | None = None,
    format: str | None = None,
    threads: int | None = None,
    candidates: Sequence[str] | None = None,
    state_bytes: int | None = None,
    keep_weights: bool | None = None,
    weights: str | None = None,
    calibration: str | Mapping[str, Any] | bool | None = None,
    on_progress: Progress | None = None,
) -> BrowserEngine:
    """Load a bundle's engine, in a worker of its own; or take the one that the page offers.

    >>> engine = await connect()                                                      # doctest: +SKIP
    >>> done = await engine.decide("I was charged twice!", {"angry": Noul("Angry?")})  # doctest: +SKIP

    Args:
        url: address of the bundle's folder, relative to the page or worker that Python runs in. None: the page's own
            engine, where it offers one; else the bundle that this package was loaded from.
        device, format, threads, candidates, state_bytes, keep_weights, weights, calibration: as `createEngine` takes
            them; None leaves them to it.
        on_progress: told what the engine reports while it loads. An error of its own stops that, and is raised here.

    Raises:
        UnsupportedError: this is not Pyodide, the bundle cannot be told, or the browser lacks something.
        BundleError: there is no bundle at `url`.
        TypedecideError: whatever else `createEngine` throws, as the Python error of the same name.
    """
    js = _javascript()
    options = {
        "device": device,
        "format": format,
        "threads": threads,
        "candidates": None if candidates is None else [*candidates],
        "stateBytes": state_bytes,
        "keepWeights": keep_weights,
        "weights": weights,
        "calibration": calibration,
    }
    given = {name: value for name, value in options.items() if value is not None}
    if url is None and _offered is not None:
        if given:
            raise UnsupportedError(
                f"the page offers its own engine, which is loaded already: leave out {', '.join(given)},"
                " or say which bundle to load",
                **given,
            )
        return BrowserEngine(await _borrowed(), owned=False)
    address = _folder(js, url)
    create = (await _module(js, address)).createEngine
    request = _object(js, {**given, "bundle": address})
    kept = _Kept()
    if not address.startswith(f"{js.location.origin}/"):
        # A worker's script must be of this origin: here one that only imports the other.
        kept.script(js, f"import {json.dumps(f'{address}worker.js')};")
        request.worker = kept.address
    controller = js.AbortController.new()
    request.signal = controller.signal
    failed: list[Exception] = []
    if on_progress is not None:

        def tell(told: Any) -> None:
            on_progress(_plain(js, told))

        request.onProgress = kept.proxy(_telling(tell, failed, controller))
    loading = _started(create(request))
    try:
        engine = await _finished(loading, controller, failed)
    except BaseException:
        # Until it has seen the abort, JavaScript reports progress, and may even succeed.
        loading.add_done_callback(lambda done: _discard(done, kept))
        raise
    return BrowserEngine(engine, owned=True, kept=kept)


class BrowserEngine:
    """Answers questions with an engine of the page. Safe for several tasks at once: they are answered in turn.

    `connect` makes it. Errors that the engine throws arrive as the Python errors of the same names. A task that is
    cancelled stops the engine before its next run of the model.
    """

    def __init__(self, engine: Any, *, owned: bool, kept: _Kept | None = None) -> None:
        self._engine, self._owned, self._kept = engine, owned, kept or _Kept()

    @property
    def info(self) -> Mapping[str, Any]:
        """What `engine.info` says: model, format, device, candidate, self-test, versions."""
        found: dict[str, Any] = _plain(_javascript(), self._engine.info)
        return found

    async def decide(
        self,
        state: str,
        questions: Mapping[str, Question],
        orderings: Level | None = None,
        *,
        on_answer: OnDecided | None = None,
        **options: Unpack[Options],
    ) -> Decided:
        """Prefill a text and answer questions about it, by id.

        Args:
            state: the text.
            questions: what to ask, by id.
            orderings: orders of its options in which the `labels` readout reads each question; default "auto".
            on_answer: told the id of a question and its answer, as soon as it is there. An error of its own stops the
                engine, and is raised here.
            options: `typedecide.options.Options`.
        """
        return await self._decide(state, _wire(questions), orderings, on_answer, options)

    async def stream(
        self,
        state: str,
        questions: Mapping[str, Question],
        orderings: Level | None = None,
        **options: Unpack[Options],
    ) -> AsyncIterator[tuple[str, Debiased]]:
        """The same, each answer with its question's id as soon as it is there.

        >>> async for id, answer in engine.stream(text, questions):  # doctest: +SKIP
        ...     print(id, answer.answer.choice)

        Leaving the loop early stops the engine; `contextlib.aclosing` makes that happen at once.
        """
        queue: asyncio.Queue[tuple[str, Debiased] | None] = asyncio.Queue()

        def tell(id: str, answer: Debiased) -> None:
            queue.put_nowait((id, answer))

        work = asyncio.ensure_future(self.decide(state, questions, orderings, on_answer=tell, **options))

        def end(done: asyncio.Future[Decided]) -> None:
            queue.put_nowait(None)
            _settled(done)

        work.add_done_callback(end)
        try:
            while (found := await queue.get()) is not None:
                yield found
            await work
        finally:
            work.cancel()

    async def decide_frame(
        self,
        frame: Any,
        column: str,
        questions: Mapping[str, Question],
        orderings: Level | None = None,
        *,
        on_row: OnRow | None = None,
        **options: Unpack[Options],
    ) -> Any:
        """A copy of a pandas DataFrame with the answers about each text of a column, in new columns.

        They are those of `typedecide batch`: for each question `ID.answer`, `ID.confidence` and `ID.p.OPTION`, and
        `ID.abstain` and `ID.x_shallow` where a calibration or a shallow model answered. A row whose text is missing,
        blank, too long or otherwise no good has no answers, and `fault` says why. Equal texts are asked about once.

        Args:
            frame: a DataFrame.
            column: the column of the texts.
            questions: what to ask, by id.
            orderings, options: as for `decide`.
            on_row: told how many rows are answered, and of how many.
        """
        wire = _wire(questions)

        def decide(text: str) -> Awaitable[Decided]:
            return self._decide(text, wire, orderings, None, options)

        return await answered(frame, column, questions, decide, on_row)

    async def _decide(
        self,
        state: str,
        questions: Mapping[str, Any],
        orderings: Level | None,
        on_answer: OnDecided | None,
        options: Options,
    ) -> Decided:
        js = _javascript()
        request = js.Object.new()
        request.state = check_state(state)
        # A Map, because an object would ask about "10" first.
        request.questions = js.Map.new(_object(js, [[id, wire] for id, wire in questions.items()]))
        given = _object(js, javascript.options(orderings, options))
        controller, kept = js.AbortController.new(), _Kept()
        given.signal = controller.signal
        failed: list[Exception] = []
        if on_answer is not None:

            def tell(id: str, answer: Any) -> None:
                on_answer(id, javascript.debiased(_plain(js, answer)))

            given.onAnswer = kept.proxy(_telling(tell, failed, controller))
        deciding = _started(self._engine.decide(request, given))
        deciding.add_done_callback(lambda _: kept.free())
        done = _plain(js, await _finished(deciding, controller, failed))
        return javascript.decided(done, questions, [done["answers"][id] for id in questions])

    async def release(self) -> None:
        """Free all kept texts; the engine stays usable."""
        await _awaited(self._engine.release())

    def close(self) -> None:
        """End the engine and free everything; one that the page offered goes on."""
        if self._owned:
            self._engine.close()
        self._kept.free()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


def _telling(tell: Callable[..., None], failed: list[Exception], controller: Any) -> Callable[..., None]:
    """A callback's form for JavaScript, which could do nothing about an error: that goes to `failed`, and aborts."""

    def told(*given: Any) -> None:
        if not failed:
            try:
                tell(*given)
            except Exception as error:
                failed.append(error)
                controller.abort()

    return told


class _Kept:
    """What JavaScript holds of Python, or by an address, until it is freed here."""

    def __init__(self) -> None:
        self._proxies: list[Any] = []
        self.address: str | None = None

    def proxy(self, function: Callable[..., None]) -> Any:
        from pyodide.ffi import create_proxy

        self._proxies.append(create_proxy(function))
        return self._proxies[-1]

    def script(self, js: Any, text: str) -> None:
        options = js.Object.new()
        options.type = "text/javascript"
        self.address = js.URL.createObjectURL(js.Blob.new(js.Array.of(text), options))

    def free(self) -> None:
        while self._proxies:
            self._proxies.pop().destroy()
        if self.address is not None:
            _javascript().URL.revokeObjectURL(self.address)
            self.address = None


def _javascript() -> Any:
    """JavaScript's global names."""
    try:
        import js
    except ImportError as error:
        raise UnsupportedError(
            "typedecide.browser works in Pyodide, that is in a browser: elsewhere take typedecide.native or"
            " typedecide.page.",
            module="js",
        ) from error
    return js


async def _borrowed() -> Any:
    return await _awaited(_offered()) if callable(_offered) else _offered


def _folder(js: Any, url: str | None) -> str:
    """The full address of a bundle's folder, which ends with a slash."""
    address = js.URL.new(_origin() if url is None else url, js.location.href)
    if not address.pathname.endswith("/"):
        address.pathname += "/"
    return str(address.href)


def _origin() -> str:
    """The bundle that this package came from, as its installer noted."""
    import pyodide_js

    files = importlib.metadata.distribution("typedecide")
    address = files.read_text("PYODIDE_URL") or files.read_text("PYODIDE_SOURCE")
    if address is not None and address.strip() == "pyodide":
        address = getattr(pyodide_js, "lockfileBaseUrl", None)
        address = address and f"{address}pyodide-lock.json"
    if not address or ":" not in address:
        raise UnsupportedError(
            "it cannot be told which bundle typedecide came from: say connect(url), with the address of its folder",
            source=address,
        )
    base = address.strip().rsplit("/", 1)[0]
    return f"{base}/../"


async def _module(js: Any, folder: str) -> Any:
    """A bundle's index.js."""
    try:
        # Python has no words for import(), and a function made by eval needs the page's leave.
        load = js.eval("(address) => import(address)")
    except Exception as error:
        raise UnsupportedError(
            f"this page's policy lets Python load no code: {error}; load the engine in JavaScript, and hand it over"
            " with typedecide.browser.offer(engine)",
            bundle=folder,
        ) from error
    from pyodide.ffi import JsException

    address = f"{folder}index.js"
    try:
        return await load(address)
    except JsException as error:
        raise BundleError(f"cannot load the module {address}: {error}", url=address) from None


def _object(js: Any, value: object) -> Any:
    """A JavaScript object of JSON, made over there in one go."""
    return js.JSON.parse(json.dumps(value))


def _plain(js: Any, value: Any) -> Any:
    """A JavaScript value of JSON in Python: `to_py` would make another None of null, and which depends on Pyodide."""
    return json.loads(js.JSON.stringify(value))


def _wire(questions: Mapping[str, Question]) -> dict[str, Any]:
    for id in questions:
        if not isinstance(id, str):
            raise InvalidQuestionError("A question's id must be a string.", value=id)
    return {id: to_wire(question) for id, question in questions.items()}


def _started(promise: Awaitable[T]) -> asyncio.Future[T]:
    """A promise under way, as what Python waits for."""
    work = asyncio.ensure_future(_awaited(promise))
    work.add_done_callback(_settled)
    return work


async def _finished(work: asyncio.Future[T], controller: Any, failed: Sequence[Exception]) -> T:
    """What it gives, or the error of a callback that stopped it; cancelling aborts it, and waits for nothing."""
    try:
        # Not awaited itself: cancelling that would cancel what JavaScript still works for.
        await asyncio.wait([work])
    except asyncio.CancelledError:
        controller.abort()
        raise
    if failed:
        raise failed[0]
    return work.result()


def _settled(done: asyncio.Future[Any]) -> None:
    # Looked at, so that nobody is told of an error after a task that has left.
    if not done.cancelled():
        done.exception()


def _discard(loaded: asyncio.Future[Any], kept: _Kept) -> None:
    """Close an engine that was loaded for nobody, if it was, and free what its loading kept."""
    if not loaded.cancelled() and loaded.exception() is None:
        loaded.result().close()
    kept.free()


async def _awaited(promise: Awaitable[T]) -> T:
    """What a promise gives; its errors as Python's."""
    from pyodide.ffi import JsException

    try:
        return await promise
    except JsException as error:
        raise _revived(error) from None


def _revived(error: Any) -> TypedecideError:
    """The Python error for one that JavaScript threw; one without a code of ours keeps its name."""
    code, message = getattr(error, "code", None), str(getattr(error, "message", error))
    if not isinstance(code, str) or code == TypedecideError.code:
        name = str(getattr(error, "name", type(error).__name__))
        return TypedecideError(f"The page failed: {name}: {message}", name=name)
    data = getattr(error, "data", None)
    return revive_error(
        {"code": code, "message": message, "data": {} if data is None else _plain(_javascript(), data)}
    )
