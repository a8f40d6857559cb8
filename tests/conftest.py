"""Bundles and the browser that the tests share. Every browser test runs the real thing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.tiny import build_tiny
from pybuild import npm
from pybuild.bundle import build
from pybuild.sources import DEFAULT_MODEL, STOCK_MODEL
from typedecide.chromium import LAUNCH_ARGS, SANDBOX, find_chromium
from typedecide.static_server import StaticServer

ROOT = Path(__file__).resolve().parents[1]
FIXTURES = ROOT / "tests" / "fixtures"
BUNDLES = ROOT / "build" / "bench"

_browser_tests = 0


@pytest.fixture(scope="session")
def dist() -> Path:
    """The default bundle, as `make bundle` leaves it."""
    return build(ROOT / "dist", quiet=True)


@pytest.fixture(scope="session")
def dist_fp32() -> Path:
    """The default model in fp32."""
    return build(BUNDLES / f"{DEFAULT_MODEL}-fp32", formats=("fp32",), quiet=True)


@pytest.fixture(scope="session")
def dist_fp32_4l() -> Path:
    """The default model's first four layers in fp32: what the software WebGPU adapter can run in a test."""
    return build(BUNDLES / f"{DEFAULT_MODEL}-fp32-4-layers", formats=("fp32",), layers=4, quiet=True)


@pytest.fixture(scope="session")
def dist_stock() -> Path:
    """The stock model in fp32: no pointer, read by option texts, worked examples before every text."""
    return build(BUNDLES / f"{STOCK_MODEL}-fp32", source=STOCK_MODEL, formats=("fp32",), quiet=True)


@pytest.fixture(scope="session")
def dist_pointer() -> Path:
    """A tiny random model with a random pointer: a bundle that has every readout."""
    return build_tiny()


@pytest.fixture(scope="session")
def dist_pointer_shallow() -> Path:
    """The same model, whose texts go through two of its three layers."""
    return build_tiny("-shallow", shallow=2, anchor="instruction")


@pytest.fixture(scope="session")
def npm_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The npm package of this checkout."""
    return npm.pack(tmp_path_factory.mktemp("npm"))


@pytest.fixture(scope="session")
def dist_url(dist: Path) -> Iterator[str]:
    """Address of the served default bundle, without a slash at the end."""
    with StaticServer(dist) as server:
        yield server.url.rstrip("/")


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    """Start the Chromium that typedecide finds, with its switches."""
    return {
        **browser_type_launch_args,
        "executable_path": str(find_chromium()),
        "args": list(LAUNCH_ARGS),
        "chromium_sandbox": SANDBOX,
    }


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count the browser tests that really ran."""
    global _browser_tests
    if report.when == "call" and "browser" in report.keywords and report.outcome != "skipped":
        _browser_tests += 1


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many tests drove a real browser."""
    terminalreporter.write_line(f"browser tests that ran: {_browser_tests}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever uses pytest-playwright's page is a browser test."""
    for item in items:
        if "page" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)
