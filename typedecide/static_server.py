"""A small static file server for one folder, with the headers a page needs to run threads and WebAssembly.

Knows HTTP and files only, not what is in them. Standard library only. It is for this machine and for tests: a public
site wants a real web server, and any will do.
"""

from __future__ import annotations

import os
import re
import socket
import socketserver
import sys
import threading
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO, Self
from urllib.parse import quote, unquote_to_bytes

from typedecide.errors import BundleError
from typedecide.hosts import host_name, is_loopback

# Fixed, because the types that the operating system lists differ from machine to machine.
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".gz": "application/gzip",  # sent as it is: no Content-Encoding
    ".html": "text/html; charset=utf-8",
    ".ico": "image/vnd.microsoft.icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".md": "text/plain; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".wasm": "application/wasm",
    ".webmanifest": "application/manifest+json",
    ".whl": "application/zip",
    ".zip": "application/zip",
}
_OTHER_TYPE = "application/octet-stream"

# With these two a page is "cross-origin isolated" and may share memory between threads.
_ISOLATION = {"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp"}
_ALWAYS = {
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}

POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'; "
    "style-src 'self'; img-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'"
)
"""What a bundle's page may do: run and ask for files of its own origin, and nothing else. index.html says the same."""

PAGE_HEADERS = {"Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'"}
"""Headers for a bundle: its policy, and no page of another origin may frame it."""

_CHUNK = 1 << 18
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")


class StaticServer:
    """Serves the folder `root` from its own thread, for as long as it is entered.

    >>> with StaticServer(".") as server:
    ...     server.url.startswith("http://127.0.0.1:")
    True

    `port` 0 takes any free port. `isolated=False` leaves out COOP and COEP, as many static hosts do. `headers` are sent
    with every answer, such as a content security policy, or leave for pages of other origins to read. Bound to a
    loopback address, it answers to loopback names only, so that no foreign site can reach it by a name of its own.
    Pages of other origins get nothing, unless `headers` allow them to read.
    Raises `BundleError` when `root` is no folder, and `OSError` when the port cannot be had.
    """

    def __init__(
        self,
        root: str | Path,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        isolated: bool = True,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.root = Path(root).resolve()
        if not self.root.is_dir():
            raise BundleError(f"There is no folder {root} to serve.", path=str(root))
        common = {**_ALWAYS, **(_ISOLATION if isolated else {}), **(headers or {})}
        self._server = _Server(self.root, host, port, common)
        # The interval is how long stopping may take.
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="static-server", daemon=True
        )
        self.host = host
        self.port: int = self._server.server_address[1]

    @property
    def url(self) -> str:
        """The address of the folder, with a slash at its end."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # A page asks for many modules and shards at once.
    request_queue_size = 128
    # On Windows this option would let two servers share one port.
    allow_reuse_address = os.name != "nt"

    def __init__(self, root: Path, host: str, port: int, headers: Mapping[str, str]) -> None:
        self.root = root
        self.loopback_only = is_loopback(host)
        self.common_headers = headers
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        # HTTPServer would ask DNS for the host's name here, which can hang for seconds and is not needed.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A browser that leaves in the middle of a transfer is no fault of ours; anything else is.
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class _Refusal(Exception):
    """A request that gets an error status, with the words for it."""

    def __init__(self, status: HTTPStatus, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version = "typedecide"
    sys_version = ""
    timeout = 60

    def do_GET(self) -> None:
        try:
            self._answer()
        except _Refusal as refusal:
            self._refuse(refusal)

    do_HEAD = do_GET

    def _not_allowed(self) -> None:
        # The request may carry a body that nobody reads: the connection cannot go on after it.
        self.close_connection = True
        self._refuse(
            _Refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"{self.command} is not allowed.", Allow="GET, HEAD")
        )

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _not_allowed

    def _answer(self) -> None:
        if "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            # A body that nobody reads would be taken for the next request.
            self.close_connection = True
        self._check_host()
        self._check_origin()
        path, query = _split_target(self.path)
        file = _locate(self.server.root, path)
        if file.is_dir() and not path.endswith("/"):
            self._redirect(path, query)
            return
        if file.is_dir():
            file = file / "index.html"
        if not file.is_file():
            raise _Refusal(HTTPStatus.NOT_FOUND, f"There is no {path} here.")
        try:
            stream = file.open("rb")
        except PermissionError:
            raise _Refusal(HTTPStatus.FORBIDDEN, f"{path} may not be read.") from None
        with stream:
            self._send_file(file, stream)

    def _check_host(self) -> None:
        host = self.headers.get("Host")
        if host is None and self.request_version == "HTTP/1.1":
            raise _Refusal(HTTPStatus.BAD_REQUEST, "The Host header is missing.")
        if self.server.loopback_only and host is not None and not is_loopback(host_name(host)):
            raise _Refusal(HTTPStatus.MISDIRECTED_REQUEST, f"This server does not answer to the name {host}.")

    def _check_origin(self) -> None:
        origin = self.headers.get("Origin")
        if origin is None or "Access-Control-Allow-Origin" in self.server.common_headers:
            return
        if origin.partition("://")[2] != self.headers.get("Host"):
            raise _Refusal(HTTPStatus.FORBIDDEN, f"Pages of {origin} may not ask here.")

    def _redirect(self, path: str, query: str) -> None:
        # One leading slash only: two would name another host.
        where = "/" + quote(path.strip("/")) + "/" + (f"?{query}" if query else "")
        self.send_response(HTTPStatus.MOVED_PERMANENTLY)
        self.send_header("Location", where)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send_file(self, file: Path, stream: BinaryIO) -> None:
        info = os.fstat(stream.fileno())
        tag = f'"{info.st_mtime_ns:x}-{info.st_size:x}"'
        if _matches(self.headers.get("If-None-Match"), tag):
            self.send_response(HTTPStatus.NOT_MODIFIED)
            self.send_header("ETag", tag)
            self.end_headers()
            return
        span = self._range(info.st_size, tag)
        start, length = span or (0, info.st_size)
        self.send_response(HTTPStatus.PARTIAL_CONTENT if span else HTTPStatus.OK)
        if span:
            self.send_header("Content-Range", f"bytes {start}-{start + length - 1}/{info.st_size}")
        self.send_header("Content-Type", _TYPES.get(file.suffix.lower(), _OTHER_TYPE))
        self.send_header("Content-Length", str(length))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", tag)
        self.end_headers()
        if self.command != "HEAD":
            self._send_bytes(stream, start, length)

    def _range(self, size: int, tag: str) -> tuple[int, int] | None:
        """The part asked for as (start, length); None for the whole file, as for a range that is no single one."""
        match = _RANGE.fullmatch(self.headers.get("Range", "").strip())
        if self.command != "GET" or match is None or match.groups() == ("", ""):
            return None
        if self.headers.get("If-Range", tag) != tag:
            return None
        first, last = match.groups()
        if first and last and int(last) < int(first):
            return None
        start = int(first) if first else max(0, size - int(last))
        end = min(int(last), size - 1) if first and last else size - 1
        if start >= size:
            raise _Refusal(
                HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
                f"The file has {size} bytes.",
                Content_Range=f"bytes */{size}",
            )
        return start, end - start + 1

    def _send_bytes(self, stream: BinaryIO, start: int, length: int) -> None:
        stream.seek(start)
        while length:
            chunk = stream.read(min(_CHUNK, length))
            if not chunk:
                # The file was cut meanwhile. The promised length can't be kept: only closing tells the client.
                self.close_connection = True
                return
            self.wfile.write(chunk)
            length -= len(chunk)

    def _refuse(self, refusal: _Refusal) -> None:
        body = f"{refusal}\n".encode("utf-8", "replace")
        self.send_response(refusal.status)
        for name, value in refusal.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def end_headers(self) -> None:
        for name, value in self.server.common_headers.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: the pages and tests that use this server report what they miss themselves."""


def _split_target(target: str) -> tuple[str, str]:
    """The decoded path and the raw query of a request target."""
    raw, _, query = target.partition("?")
    try:
        path = unquote_to_bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        raise _Refusal(HTTPStatus.BAD_REQUEST, f"The path is not UTF-8: {raw}") from None
    if not path.startswith("/") or "\0" in path or "\\" in path:
        raise _Refusal(HTTPStatus.BAD_REQUEST, f"Not a path: {raw}")
    return path, query


def _locate(root: Path, path: str) -> Path:
    """The file that `path` names, which is inside `root` also after every symbolic link is followed."""
    parts = [part for part in path.split("/") if part]
    missing = _Refusal(HTTPStatus.NOT_FOUND, f"There is no {path} here.")
    # A drive letter or stream name (Windows) must not reach the file system either.
    if any(part in (".", "..") or (os.name == "nt" and ":" in part) for part in parts):
        raise missing
    try:
        file = root.joinpath(*parts).resolve(strict=True)
    except (OSError, RuntimeError):  # not there, a name too long, a loop of links
        raise missing from None
    if not file.is_relative_to(root):
        raise missing
    return file


def _matches(header: str | None, tag: str) -> bool:
    """Whether an If-None-Match header names `tag`."""
    if header is None:
        return False
    tags = [part.strip().removeprefix("W/") for part in header.split(",")]
    return "*" in tags or tag in tags
