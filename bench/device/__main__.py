"""`python -m bench.device pack|run`: what bench/device.sh calls, here and on the machine with the GPU."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typedecide
from bench import common
from bench.device import NAME, libraries, summarise
from bench.device.package import PLAN, PackageError, pack
from bench.device.parts import MINUTES, budget, parts, run_parts
from bench.tabs import Tab, chromium
from typedecide.chromium import VARIABLE, gpu_args
from typedecide.errors import TypedecideError
from typedecide.static_server import PAGE_HEADERS, StaticServer

SOFTWARE = ("swiftshader", "llvmpipe", "lavapipe")
"""Names of adapters that compute on the processor."""

_ADAPTER = """async () => {
  const adapter = await navigator.gpu?.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) return null;
  const { vendor, architecture, device, description, subgroupMinSize, subgroupMaxSize } = adapter.info;
  return {
    name: [vendor, architecture, device, description].filter(Boolean).join(" "),
    fallback: adapter.info.isFallbackAdapter ?? adapter.isFallbackAdapter ?? false,
    subgroups: [subgroupMinSize ?? null, subgroupMaxSize ?? null],
    features: [...adapter.features].sort(),
    maxBufferSize: adapter.limits.maxBufferSize,
  };
}"""


class DeviceError(TypedecideError):
    """A machine on which the parts cannot run, or would say nothing about a GPU."""

    code = "DEVICE"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="bench/device.sh", description=(__doc__ or "").split(": ", 1)[1])
    commands = top.add_subparsers(dest="action", required=True)
    packing = commands.add_parser(
        "pack", help="write the package, on the machine where the project is set up"
    )
    packing.add_argument("out", type=Path, metavar="FILE", help="ends in .tar, .tar.gz, .tgz or .tar.xz")
    packing.add_argument("--tiny", action="store_true", help="a tiny model: to try the path, not to measure")
    running = commands.add_parser("run", help="run all parts; device.sh has unpacked the package")
    running.add_argument("--results", type=Path, required=True, help="folder for results and logs")
    running.add_argument("--began", type=float, help="when unpacking began, in seconds since 1970")
    running.add_argument(
        "--minutes",
        type=float,
        default=MINUTES,
        help=f"for everything (default: {MINUTES:g}), shared by the parts",
    )
    running.add_argument(
        "--allow-software",
        action="store_true",
        help="go on where WebGPU runs on the processor: with a tiny model, to try the path",
    )
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Pack or run; gives the exit status, 1 where a part is not done."""
    args = parser().parse_args(arguments)
    try:
        if args.action == "pack":
            pack(args.out, args.tiny)
            return 0
        return run(args)
    except TypedecideError as error:
        print(f"error: {error.code}: {error.message}", file=sys.stderr)
        return 1


def _command(args: argparse.Namespace) -> str:
    """How device.sh was called, without where this machine keeps its files."""
    minutes = [] if args.minutes == MINUTES else ["--minutes", f"{args.minutes:g}"]
    software = ["--allow-software"] if args.allow_software else []
    return " ".join(["bench/device.sh", "run", "FILE", "RESULTS", *minutes, *software])


def run(args: argparse.Namespace) -> int:
    """Run the parts in what device.sh has unpacked, and write what they were."""
    began = args.began or time.time()
    plan = _plan()
    prepare_browser(plan["browser"])
    chosen = parts(plan["model"], args.minutes)
    print(f"unpacked after {time.time() - began:.0f} s", flush=True)
    print(budget(chosen, args.minutes), flush=True)
    adapter, browser = find_adapter(args.allow_software)
    print(f"adapter: {adapter['name']}, features {', '.join(adapter['features'])}", flush=True)
    args.results.mkdir(parents=True, exist_ok=True)
    about = {
        "benchmark": NAME,
        "model": plan["model"],
        "adapter": adapter,
        "processor": common.processor(),
        "cores": os.cpu_count(),
        "versions": {
            "typedecide": typedecide.__version__,
            "chromium": browser,
            "python": platform.python_version(),
        },
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": _command(args),
        "minutes": args.minutes,
    }

    def note(done: Sequence[Mapping[str, Any]]) -> None:
        result = {**about, "seconds": time.time() - began, "parts": [*done]}
        (args.results / f"{NAME}.json").write_text(json.dumps(result, indent=2) + "\n", "utf-8")
        if len(done) == len(chosen):
            print(summarise(result), flush=True)

    done = run_parts(chosen, args.results, began + 60 * args.minutes, note)
    return 0 if all(part["status"] == "done" for part in done) else 1


def _plan() -> dict[str, str]:
    """What is in the package; PackageError where there is none, or one for another kind of machine."""
    file = common.ROOT / PLAN
    if not file.is_file():
        raise PackageError(
            "this is no unpacked package: `sh device.sh run FILE RESULTS` unpacks one and runs it"
        )
    plan: dict[str, str] = json.loads(file.read_bytes())
    here, there = (sys.platform, platform.machine()), (plan["system"], plan["machine"])
    if here != there:
        raise PackageError(
            f"the package is for {' '.join(there)}, this machine is {' '.join(here)}", machine=here
        )
    return plan


def prepare_browser(name: str) -> None:
    """Have the packed browser used, unless one is named, with the libraries and fonts that this machine lacks."""
    if VARIABLE not in os.environ:
        program = common.ROOT / "chromium" / name
        folder = common.ROOT / "supplied"
        if libraries.supply(program, common.ROOT / "libraries", folder):
            paths = (str(folder), os.environ.get("LD_LIBRARY_PATH", ""))
            os.environ["LD_LIBRARY_PATH"] = ":".join(filter(None, paths))
        os.environ[VARIABLE] = str(program)
    if not Path("/etc/fonts/fonts.conf").is_file():
        fonts = common.ROOT / "site/matplotlib/mpl-data/fonts/ttf"
        config = common.ROOT / "fonts.conf"
        config.write_text(
            f"<fontconfig><dir>{fonts}</dir><cachedir>/tmp/fontconfig</cachedir></fontconfig>", "utf-8"
        )
        os.environ["FONTCONFIG_FILE"] = str(config)


def find_adapter(allow_software: bool) -> tuple[dict[str, Any], str]:
    """The adapter that a page gets, and the browser's version; DeviceError where it is none or a software one."""
    from playwright.sync_api import sync_playwright

    bundle = next(path for path in sorted(common.BUNDLES.iterdir()) if path.is_dir())
    with (
        StaticServer(bundle, headers=PAGE_HEADERS) as server,
        sync_playwright() as playwright,
        chromium(playwright, extra=gpu_args("webgpu")) as browser,
    ):
        adapter = Tab(browser.new_page(), server.url).evaluate(_ADAPTER)
        version = browser.version
    check_adapter(adapter, allow_software)
    return adapter, version


def check_adapter(adapter: Mapping[str, Any] | None, allow_software: bool) -> None:
    """DeviceError where a page gets no adapter, or one that says nothing about a GPU."""
    if adapter is None:
        raise DeviceError(
            "WebGPU finds no adapter here. Is the GPU's Vulkan driver installed? `vulkaninfo --summary` should list the"
            " GPU. Where the driver's description (such as nvidia_icd.json) lies in an unusual place, VK_DRIVER_FILES"
            " names it; a container must be given the driver's graphics part (NVIDIA_DRIVER_CAPABILITIES=all)."
        )
    if not allow_software and (adapter["fallback"] or any(name in adapter["name"] for name in SOFTWARE)):
        raise DeviceError(
            f"WebGPU got the software adapter {adapter['name']!r}: figures from it say nothing about a GPU."
            " --allow-software goes on all the same.",
            adapter=adapter["name"],
        )


if __name__ == "__main__":
    sys.exit(main())
