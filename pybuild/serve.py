"""`python -m pybuild serve`: show a bundle on this machine, with the headers its threads need.

Knows a folder, a port and the terminal; the serving itself is `typedecide.static_server`.
"""

from __future__ import annotations

import argparse
import errno
import signal
import threading
from pathlib import Path
from types import FrameType

from typedecide.errors import BundleError, UnsupportedError
from typedecide.static_server import PAGE_HEADERS, StaticServer

DEFAULT_PORT = 8765
MORE_PORTS = 10
"""How many ports after a taken one are tried."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the `serve` command, whose `func` is `run`."""
    parser = subparsers.add_parser("serve", help="serve a bundle on this machine")
    parser.add_argument(
        "dist", nargs="?", type=Path, default=Path("dist"), help="bundle folder (default: dist)"
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: this machine only)"
    )
    parser.add_argument(
        "--port", type=_port, default=DEFAULT_PORT, help="0 takes any free port (default: %(default)s)"
    )
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C (or SIGTERM), and then leave with exit status 0."""
    dist: Path = args.dist
    if not (dist / "manifest.json").is_file():
        raise BundleError(
            f"{dist} is no bundle: it has no manifest.json. `make bundle` builds one.", path=str(dist)
        )
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    with bind(dist, args.host, args.port) as server:
        if args.port not in (0, server.port):
            print(f"Port {args.port} is taken: using {server.port} instead.")
        print(f"Serving {dist} at {server.url}\nCtrl-C stops it.", flush=True)
        # Windows delivers Ctrl-C only between waits, so none may be endless.
        while not stop.wait(timeout=0.5):
            pass
    print("Stopped.")
    return 0


def bind(dist: Path, host: str, port: int) -> StaticServer:
    """A server for `dist` at `port`, or at the first free one of the ten after it."""
    last = port if port == 0 else min(port + MORE_PORTS, 65535)
    for number in range(port, last + 1):
        try:
            return StaticServer(dist, host, number, headers=PAGE_HEADERS)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise UnsupportedError(
                    f"Cannot listen on {host} port {number}: {error.strerror}.", host=host, port=number
                ) from error
    raise UnsupportedError(
        f"Ports {port} to {last} are all taken: choose another with --port.", host=host, port=port
    )


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"not a port from 0 to 65535: {text!r}")
    return int(text)
