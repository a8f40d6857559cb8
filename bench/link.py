"""A network link to a local server that can be slow, silent, or cut.

It passes bytes on between sockets, and sees of HTTP only which paths are asked for.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from contextlib import suppress
from typing import Self

_CHUNK = 1 << 14
_REQUEST = re.compile(rb"(?:GET|HEAD|POST) (\S+) HTTP/1\.1\r\n")


class Link:
    """Listens on a port of its own and passes on to the server on `port`, for as long as it is entered.

    Args:
        port: the server's.
        bits_per_second: of all answers together; None does not limit them.
    """

    def __init__(self, port: int, bits_per_second: float | None = None) -> None:
        self._target = port
        self._rate = bits_per_second and bits_per_second / 8
        self._lock = threading.Lock()
        self._free_at = time.monotonic()
        self._sockets: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        self._left: int | None = None
        self._speaking = threading.Event()
        self._speaking.set()
        self._last_word: str | None = None
        self.port = 0
        self.received = 0
        """Bytes of all answers so far, with their headers."""
        self.paths: list[str] = []
        """Paths asked for, in order."""

    @property
    def url(self) -> str:
        """The address of the server's root, by way of this link."""
        return f"http://127.0.0.1:{self.port}/"

    def cut(self) -> None:
        """Break all connections, and refuse new ones."""
        with self._lock:
            listener, self._listener = self._listener, None
            sockets, self._sockets = self._sockets, set()
        for one in (listener, *sockets):
            if one is not None:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()

    def cut_after(self, count: int) -> None:
        """Cut once so many more bytes of answers have come."""
        self._left = count

    def hush(self, path: str | None = None) -> None:
        """Take requests, and hold all answers back: from now on, or from the request for a path on."""
        self._last_word = path
        if path is None:
            self._speaking.clear()

    def speak(self) -> None:
        """Let answers through again."""
        self._last_word = None
        self._speaking.set()

    @property
    def is_cut(self) -> bool:
        """Whether new connections are refused."""
        return self._listener is None

    def mend(self) -> None:
        """Take connections again, on the same port."""
        self._left = None
        listener = socket.create_server(("127.0.0.1", self.port), backlog=128)
        self.port = listener.getsockname()[1]
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def __enter__(self) -> Self:
        self.mend()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self.speak()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                with suppress(OSError):
                    server = socket.create_connection(("127.0.0.1", self._target))
                    with self._lock:
                        self._sockets |= {client, server}
                    for ends in ((client, server, True), (server, client, False)):
                        threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, asking: bool) -> None:
        try:
            while data := source.recv(_CHUNK):
                if asking:
                    asked = [path.decode() for path in _REQUEST.findall(data)]
                    self.paths += asked
                    if self._last_word in asked:
                        self._speaking.clear()
                else:
                    self._wait(len(data))
                target.sendall(data)
        except OSError:
            pass
        finally:
            for one in (source, target):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def _wait(self, count: int) -> None:
        """Hold bytes back until the link speaks and has time for them; cut it when its bytes are used up."""
        self._speaking.wait()
        with self._lock:
            self.received += count
            if self._left is not None:
                self._left -= count
            end = self._left is not None and self._left < 0
            now = time.monotonic()
            self._free_at = max(now, self._free_at) + (count / self._rate if self._rate else 0)
            pause = self._free_at - now
        if end:
            self.cut()
            raise ConnectionAbortedError
        if pause > 0:
            time.sleep(pause)
