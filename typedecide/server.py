"""An engine behind the System One API over HTTP.

Knows HTTP, who may ask, and how many at a time; `systemone.py` knows what is in requests and answers. Neither texts nor
answers are stored or logged. Needs the `serve` extra (starlette, uvicorn).
"""

from __future__ import annotations

import asyncio
import hmac
import signal
import socket
import threading
import traceback
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any, Self

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from typedecide import decisions, systemone, wire_json
from typedecide.errors import AbortedError, DeviceLostError, TypedecideError
from typedecide.hosts import host_name, is_address, is_loopback, normal
from typedecide.options import Options
from typedecide.orderings import Level
from typedecide.results import DecisionEngine
from typedecide.systemone import Reply, failure
from typedecide.terminal import say

MAX_BODY = 4 * 2**20
"""Bytes of a request; a text that fits a context is far smaller."""

BODY_S = 30
"""Seconds that a request may take to arrive."""

MAX_CONNECTIONS = 512
"""Connections at a time; what comes beyond is told 503."""

GRACE_S = 3
"""Seconds that answers under way have when the server is told to stop."""

_RUN_S = 30
"""Seconds that one run of the model may take after that."""

_HEALTH = "/health"
_ALWAYS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_CLOSE = {"Connection": "close"}


@dataclass(frozen=True)
class Access:
    """Who may ask.

    loopback: the server is bound to this machine only: no Host but its own names is answered.
    hosts: further names to answer to; "*" for all.
    origins: sites whose pages may ask; "*" for all. Others are refused, also where they would not see the answer.
    key: what an `Authorization: Bearer` header must hold; None asks for none.
    """

    loopback: bool = True
    hosts: Collection[str] = ()
    origins: Collection[str] = ()
    key: str | None = None

    def refusal(self, host: str | None, origin: str | None) -> Reply | None:
        """Why a request with these headers is not answered."""
        if host is not None and not self._answers_to(normal(host_name(host))):
            message = f"This server does not answer to the name {host}; --allow-host adds one."
            return failure(421, "misdirected_request", message)
        if origin is not None and not {origin, "*"}.intersection(self.origins):
            message = f"Pages of {origin} may not ask here; --allow-origin adds an origin."
            return failure(403, "permission_error", message)
        return None

    def _answers_to(self, name: str) -> bool:
        if {name, "*"}.intersection(map(normal, self.hosts)) or is_loopback(name):
            return True
        # Names may come to mean this machine whoever owns them, addresses cannot.
        return not self.loopback and is_address(name)

    def unauthorized(self, authorization: str | None) -> Reply | None:
        """Why this Authorization header will not do."""
        if self.key is None:
            return None
        scheme, _, given = (authorization or "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(
            given.strip().encode("latin-1"), self.key.encode()
        ):
            return None
        message = "The API key is wrong." if authorization else "An API key is needed: Authorization: Bearer."
        return failure(401, "authentication_error", message, headers={"WWW-Authenticate": "Bearer"})


class Worker:
    """Runs decisions one after another on a thread of their own, and keeps a bounded number waiting.

    Args:
        engine: what answers.
        waiting: decisions that may wait for the one that runs.
        orderings: as in `DecisionEngine.decide`.
        options: as there.
    """

    def __init__(
        self,
        engine: DecisionEngine,
        waiting: int,
        orderings: Level | None = None,
        options: Options | None = None,
    ) -> None:
        self.engine, self._orderings, self._options = engine, orderings, options or {}
        self.lost: DeviceLostError | None = None
        self.pending = 0
        self._most = waiting + 1
        self._counting = threading.Lock()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="decide")
        self._stopping = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._thread.shutdown(cancel_futures=True)

    def stop(self) -> None:
        """Let what runs or waits end before its next run."""
        self._stopping.set()

    def decide(
        self, asked: systemone.Request, aborted: threading.Event
    ) -> asyncio.Future[dict[str, Any]] | None:
        """The JSON form of what is decided, to come in a running event loop; None where too many wait already.

        Once `aborted` is set, the work stops before its next run.
        """
        with self._counting:
            if self.pending == self._most:
                return None
            self.pending += 1
        job = self._thread.submit(self._decide, asked, aborted)
        job.add_done_callback(self._leave)
        return asyncio.wrap_future(job)

    def _leave(self, _: object) -> None:
        with self._counting:
            self.pending -= 1

    def _decide(self, asked: systemone.Request, aborted: threading.Event) -> dict[str, Any]:
        def unwanted() -> bool:
            return aborted.is_set() or self._stopping.is_set()

        try:
            if unwanted():
                raise AbortedError("the caller gave up before it began")
            done = self.engine.decide(
                asked.state, asked.questions, self._orderings, aborted=unwanted, **self._options
            )
        except DeviceLostError as error:
            self.lost = error
            raise
        self.lost = None
        answers = {id: one.to_dict() for id, one in done.answers.items()}
        return {**vars(done), "answers": answers, "prefill": vars(done.prefill)}

    @property
    def name(self) -> str:
        """The name of the model."""
        return str(self.engine.info["model"]["name"])


def make_app(worker: Worker, access: Access) -> Starlette:
    """The ASGI application: `POST /v1/systemone`, `POST /v1/decisions`, `GET /v1/models`, `GET /health`."""

    async def decide(request: Request) -> Response:
        return respond(await _decide(worker, request, _read_systemone))

    async def openai(request: Request) -> Response:
        reply = await _decide(worker, request, _read_openai)
        return respond(reply) if reply.status == 200 else _refuse(decisions.PATH, reply)

    async def models(request: Request) -> Response:
        return respond(systemone.models(worker.engine.info))

    async def health(request: Request) -> Response:
        if worker.lost is not None:
            return respond(failure(503, "internal_error", worker.lost.message, {"x_code": worker.lost.code}))
        return respond(Reply(200, {"status": "ok", "model": worker.name, "pending": worker.pending}, {}))

    cors = Middleware(
        CORSMiddleware,
        allow_origins=[*access.origins],
        allow_methods=["GET", "POST"],
        allow_headers=["*"],
        expose_headers=["Retry-After"],
    )
    app = Starlette(
        routes=[
            Route(systemone.PATH, decide, methods=["POST"]),
            Route(decisions.PATH, openai, methods=["POST"]),
            Route(systemone.MODELS_PATH, models, methods=["GET"]),
            Route(_HEALTH, health, methods=["GET"]),
        ],
        middleware=[
            Middleware(_Doors, access=access),
            *([cors] if access.origins else []),
            Middleware(_Key, access=access),
        ],
        exception_handlers={HTTPException: _http_error},
    )
    app.router.redirect_slashes = False
    return app


def respond(reply: Reply) -> Response:
    """A reply as JSON over HTTP."""
    # What is told of a fault may hold a lone surrogate, which UTF-8 cannot carry.
    content = wire_json.dump(reply.body).encode("utf-8", "replace")
    return Response(content, reply.status, {**_ALWAYS, **reply.headers}, "application/json")


Asked = tuple[systemone.Request, Callable[[str, Mapping[str, Any]], Reply]]
"""A request, and what makes a reply of the model's name and what it decided."""


def _read_systemone(body: bytes) -> Asked:
    asked = systemone.parse_request(body)
    return asked, partial(systemone.answered, asked)


def _read_openai(body: bytes) -> Asked:
    asked, questions = decisions.parse_request(body)
    return asked, partial(decisions.answered, questions)


async def _decide(worker: Worker, request: Request, read: Callable[[bytes], Asked]) -> Reply:
    """The reply to one request for decisions."""
    try:
        asked, answer = read(await _read_body(request))
        systemone.check_model(asked, worker.name)
        return answer(worker.name, await _wait(worker, asked, request))
    except _Refusal as refusal:
        return refusal.reply
    except AbortedError:
        return failure(503, "overloaded_error", "The server stops.", headers=_CLOSE)
    except TypedecideError as error:
        reply = systemone.refused(error)
        if reply.status >= 500:
            say(f"error: {error.code}: {reply.status} was answered")
        return reply
    except Exception as error:
        # Without the message: it may tell of the text.
        say(f"error: {type(error).__name__}, in:\n{''.join(traceback.format_tb(error.__traceback__))}")
        return failure(500, "internal_error", "The engine failed.")


class _Refusal(Exception):
    """A request that is not looked into."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply)
        self.reply = reply


async def _read_body(request: Request) -> bytes:
    """The body, if it is of a size and kind that is read."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding != "identity":
        message = f"Bodies in {encoding} are not read."
        raise _Refusal(failure(415, "unsupported_media_type", message, headers=_CLOSE))
    declared = request.headers.get("content-length", "0")
    too_large = _Refusal(
        failure(
            413,
            "request_too_large",
            f"The body has more than {MAX_BODY} bytes.",
            {"x_limit": MAX_BODY},
            _CLOSE,
        )
    )
    if declared.isdecimal() and int(declared) > MAX_BODY:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY:
                    raise too_large
    except TimeoutError:
        message = f"The body took more than {BODY_S} s to arrive."
        raise _Refusal(failure(408, "request_timeout", message, headers=_CLOSE)) from None
    except ClientDisconnect:
        raise _Refusal(_NOBODY) from None
    return bytes(body)


_NOBODY = failure(499, "client_closed_request", "The client is gone.")
"""What is answered where nobody listens any more."""


async def _wait(worker: Worker, asked: systemone.Request, request: Request) -> dict[str, Any]:
    """What is decided, once it is; the work stops when the client leaves."""
    aborted = threading.Event()
    job = worker.decide(asked, aborted)
    if job is None:
        message = "Too many requests wait already."
        raise _Refusal(failure(429, "rate_limit_error", message, headers={"Retry-After": "1"}))
    gone = asyncio.ensure_future(_disconnected(request.receive))
    try:
        both: set[asyncio.Future[Any]] = {job, gone}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not job.done():
            raise _Refusal(_NOBODY)
        return job.result()
    finally:
        aborted.set()
        gone.cancel()
        job.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _http_error(request: Request, error: Exception) -> Response:
    """Starlette's own refusals, in the standard's shape."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    if error.status_code == 405:
        allowed = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
        return _refuse(path, systemone.not_allowed(request.method, allowed))
    if error.status_code == 404:
        return _refuse(path, systemone.not_found(path))
    return _refuse(path, failure(error.status_code, "api_usage_error", error.detail))


def _refuse(path: str, reply: Reply) -> Response:
    """An error in the shape that clients of a path know."""
    return respond(decisions.failed(reply) if path == decisions.PATH else reply)


class _Doors:
    """Lets only those in whose Host and Origin will do."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await _pass(
            self._app, scope, receive, send, lambda h: self._access.refusal(h.get("host"), h.get("origin"))
        )


class _Key:
    """Lets only those in who have the key; whether the server is well, anyone may ask."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        def check(headers: Any) -> Reply | None:
            return (
                None if scope["path"] == _HEALTH else self._access.unauthorized(headers.get("authorization"))
            )

        await _pass(self._app, scope, receive, send, check)


async def _pass(
    app: ASGIApp, scope: Scope, receive: Receive, send: Send, check: Callable[[Any], Reply | None]
) -> None:
    reply = check(Request(scope).headers) if scope["type"] == "http" else None
    await (app if reply is None else _refuse(scope["path"], reply))(scope, receive, send)


def bind(host: str, port: int) -> socket.socket:
    """A socket at an address, which does not listen yet; OSError where it cannot be had."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    bound = socket.socket(family, kind, protocol)
    try:
        with suppress(AttributeError):
            # On Windows SO_REUSEADDR would let two servers share one port; this is its opposite.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)  # type: ignore[attr-defined]
        if not hasattr(socket, "SO_EXCLUSIVEADDRUSE"):
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


def run(worker: Worker, access: Access, bound: socket.socket, on_ready: Callable[[], None]) -> None:
    """Serve on a socket until SIGINT or SIGTERM; answers under way have `GRACE_S` seconds then."""
    server = _Server(
        uvicorn.Config(
            make_app(worker, access),
            lifespan="off",
            ws="none",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_graceful_shutdown=GRACE_S + _RUN_S,
        ),
        worker,
        on_ready,
    )

    def stop(number: int, frame: FrameType | None) -> None:
        server.should_exit = True

    # uvicorn raises a signal again once it has ended: it comes here, and not to Python's own handler.
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        server.run([bound])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Server(uvicorn.Server):
    """Says when it listens, and stops the worker in time."""

    def __init__(self, config: uvicorn.Config, worker: Worker, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._worker, self._on_ready = worker, on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().call_later(GRACE_S, self._worker.stop)
        await super().shutdown(sockets)
