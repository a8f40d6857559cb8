"""`python -m typedecide serve`: the System One API over HTTP, on this machine.

Knows arguments and the terminal; `server.py` does the work.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from typedecide.bundle import Bundle
from typedecide.cli_calibrate import given
from typedecide.cli_engine import DEVICES, open_engine
from typedecide.errors import UnsupportedError
from typedecide.hosts import is_loopback
from typedecide.inputs import InputError, add_asking_arguments, add_calibration_argument, whole
from typedecide.options import Options, resolve
from typedecide.terminal import Status, say

ENGINES = ("native", "page")
KEY_VARIABLE = "TYPEDECIDE_API_KEY"

EXAMPLES = f"""examples:
  python -m typedecide serve
  python -m typedecide serve dist --engine page --device wasm
  python -m typedecide serve --host 0.0.0.0 --allow-host decide.example.org --api-key "$KEY"
  curl http://127.0.0.1:8787/v1/systemone -H "Content-Type: application/json" -d '{{
    "state": "My card was charged twice.",
    "questions": {{"refund": {{"type": "noul", "instructions": "Does the customer want money back?"}}}}}}'

Clients of the System One API work unchanged with this address as their base URL. Only this machine is answered, and no
web page, unless you say otherwise: --host opens the server to a network, --allow-host adds a name that it answers to,
--allow-origin a site whose pages may ask. The key may also stand in the environment variable {KEY_VARIABLE}, where
other users of this machine do not see it.
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    command.add_argument(
        "bundle", nargs="?", type=Path, default=Path("dist"), metavar="BUNDLE", help="default: dist"
    )
    command.add_argument(
        "--engine",
        choices=ENGINES,
        default=ENGINES[0],
        help="native: Python's ONNX Runtime (default); page: the bundle's page in headless Chromium",
    )
    command.add_argument("--device", choices=DEVICES[:3], help="for page: what it runs on (default: auto)")
    command.add_argument("--format", help="weight format (default: the bundle's own)")
    command.add_argument("--threads", type=whole(1), metavar="N", help="processor threads")
    add_asking_arguments(command)
    add_calibration_argument(command)
    command.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: this machine only)"
    )
    command.add_argument(
        "--port", type=_port, default=8787, help="0 takes any free port (default: %(default)s)"
    )
    command.add_argument("--api-key", metavar="KEY", help="answer only requests that bear this key")
    command.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name to answer to; may be repeated; * for all",
    )
    command.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="a site whose pages may ask, such as https://example.org; may be repeated; * for all",
    )
    command.add_argument(
        "--queue",
        type=whole(0),
        default=16,
        metavar="N",
        help="requests that may wait; more are told to come back later (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> None:
    """Load the model and serve until Ctrl-C or SIGTERM."""
    if args.device is not None and args.engine != "page":
        raise InputError(f"--device {args.device}: only --engine page has devices.", device=args.device)
    try:
        from typedecide import server
    except ImportError as error:
        raise UnsupportedError(
            f"{error}. This needs `pip install typedecide[serve]`.", package=error.name
        ) from error
    key = args.api_key or os.environ.get(KEY_VARIABLE) or None
    loopback = is_loopback(args.host)
    access = server.Access(loopback, args.allow_host, args.allow_origin, key)
    bundle = Bundle.open(args.bundle)
    options = Options(readout=args.readout)
    calibration = given(
        args.calibration, bundle, args.format, resolve(bundle.manifest, "native", args.orderings, options)
    )
    try:
        # Before the model is loaded, which takes longer.
        bound = server.bind(args.host, args.port)
    except OSError as error:
        raise UnsupportedError(
            f"Cannot listen on {args.host} port {args.port}: {error.strerror}.",
            host=args.host,
            port=args.port,
        ) from error
    device = args.device or "auto" if args.engine == "page" else "native"
    with bound:
        with Status() as status:
            engine = open_engine(
                device,
                args.bundle,
                status,
                format=args.format,
                threads=args.threads,
                calibration=calibration,
            )
        with engine, server.Worker(engine, args.queue, args.orderings, options) as worker:
            host = f"[{args.host}]" if ":" in args.host else args.host
            address = f"http://{host}:{bound.getsockname()[1]}"
            info = engine.info

            def ready() -> None:
                print(
                    f"Serving {worker.name} ({info['format']}, {info['candidate']}) at {address}\nCtrl-C stops it.",
                    flush=True,
                )
                if not loopback and key is None:
                    say("Whoever reaches this port may ask: --api-key closes it.")

            server.run(worker, access, bound, ready)
    print("Stopped.")


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"not a port from 0 to 65535: {text!r}")
    return int(text)
