"""The npm package: what is in it, and that a plain page decides with it, wherever its parts lie and however strict."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserType, Page

from tests.sites import READABLE, Traffic, origin, outcome, strict
from typedecide import Noul, __version__
from typedecide.chromium import LAUNCH_ARGS, webgpu_args
from typedecide.native import NativeEngine
from typedecide.static_server import StaticServer

PAGE = Path(__file__).parent / "fixtures" / "plain-page"
TEXT = "My card was charged twice."
REFUND = Noul("Does the customer want money back?")
WEIGHTS = "model/weights-fp32-0.bin.000"


@pytest.fixture(scope="module")
def refund(dist_pointer: Path) -> float:
    """The right answer, from native code."""
    with NativeEngine(dist_pointer) as engine:
        value = engine.decide(TEXT, {"refund": REFUND}, readout="pointer").answers["refund"].answer.value
    assert isinstance(value, float)
    return value


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, npm_package: Path, dist_pointer: Path) -> Path:
    """A site with the package's files, a page of two lines, and a bundle, each in a folder of its own."""
    root = tmp_path_factory.mktemp("site")
    with tarfile.open(npm_package) as tar:
        tar.extractall(root, filter="data")
    (root / "package").rename(root / "lib")
    shutil.copytree(PAGE, root / "deep" / "page")
    shutil.copytree(dist_pointer, root / "deep" / "bundle")
    return root


def only_weights(site: Path, target: Path) -> Path:
    """Take the weights out of a copy of the site; the folder of a bundle that has nothing else."""
    shutil.copytree(site, target / "site")
    (target / "weights" / "model").mkdir(parents=True)
    (target / "site" / "deep" / "bundle" / WEIGHTS).rename(target / "weights" / WEIGHTS)
    return target / "weights"


def runtime_files(traffic: Traffic, server: StaticServer) -> set[str]:
    """Names of the files of ONNX Runtime Web that were asked for."""
    return {Path(path).name for path in traffic.paths(server) if "/ort/" in path}


@pytest.fixture
def traffic(page: Page) -> Traffic:
    return Traffic(page.context)


# ---------------------------------------------------------------- what is in it


def test_it_holds_the_library_and_nothing_else(npm_package: Path) -> None:
    assert npm_package.name == f"typedecide-{__version__}.tgz"
    with tarfile.open(npm_package) as tar:
        files = {member.name.removeprefix("package/"): member for member in tar.getmembers()}
        package = json.load(tar.extractfile("package/package.json"))  # type: ignore[arg-type]
        modules = {
            name: tar.extractfile(member).read().decode()  # type: ignore[union-attr]
            for name, member in files.items()
            if name.endswith((".js", ".d.ts"))
        }
    others = {name for name in files if not re.fullmatch(r"web/\w+\.js|types/\w+\.d\.ts", name)}
    assert others == {"LICENSE", "README.md", "package.json"}
    # Nothing comes along with it, and nothing runs when it is installed.
    assert "dependencies" not in package and not {"install", "preinstall", "postinstall"} & set(
        package["scripts"]
    )
    targets = {
        t
        for entry in package["exports"].values()
        for t in (entry.values() if isinstance(entry, dict) else [entry])
    }
    assert {target.removeprefix("./") for target in targets} <= set(files)
    for name, text in modules.items():
        for target in re.findall(r"""(?:from |import\(|new URL\()"(\.[^"]*\.js)""", text):
            wanted = (Path(name).parent / target).as_posix()
            assert wanted in files or wanted.replace(".js", ".d.ts") in files, (name, target)
        bare = set(re.findall(r"""^(?:import|export) .*from "([^."][^"]*)\"""", text, re.M))
        assert bare <= ({"react"} if name == "web/react.js" else set()), name


# ---------------------------------------------------------------- a plain page


def test_a_plain_page_under_a_strict_policy(page: Page, traffic: Traffic, site: Path, refund: float) -> None:
    with StaticServer(site, headers=strict()) as server:
        done = outcome(page, f"{server.url}deep/page/", {"bundle": "../bundle"})
    assert done["refund"] == pytest.approx(refund, abs=1e-5)
    assert traffic.complaints == []
    asked = traffic.paths(server)
    assert asked.total() == len(traffic.urls)
    assert asked["deep/bundle/manifest.json"] == asked[f"deep/bundle/{WEIGHTS}"] == 1
    assert done["info"]["ort"]["build"] == "wasm"
    stem = "ort-wasm-simd-threaded"
    assert runtime_files(traffic, server) == {"ort.wasm.min.mjs", f"{stem}.mjs", f"{stem}.wasm.gzip"}


def test_weights_on_another_origin(
    page: Page, traffic: Traffic, site: Path, refund: float, tmp_path: Path
) -> None:
    weights = only_weights(site, tmp_path)
    with (
        StaticServer(weights, headers=READABLE) as other,
        StaticServer(tmp_path / "site", headers=strict(connect=origin(other))) as server,
    ):
        done = outcome(page, f"{server.url}deep/page/", {"bundle": "../bundle/", "weights": other.url})
        assert done["refund"] == pytest.approx(refund, abs=1e-5)
        assert traffic.complaints == []
        assert traffic.paths(other) == {WEIGHTS: 1}
        assert traffic.paths(server).total() == len(traffic.urls) - 1
        # It is data, checked as all data is.
        (weights / WEIGHTS).write_bytes(bytes((weights / WEIGHTS).stat().st_size))
        again = {"bundle": "../bundle/", "weights": other.url, "keepWeights": False}
        wrong = outcome(page, f"{server.url}deep/page/", again)
    assert (wrong["code"], wrong["data"]["path"], wrong["data"]["what"]) == ("INTEGRITY", WEIGHTS, "sha256")


def test_a_whole_bundle_on_another_origin(page: Page, site: Path, dist_pointer: Path, refund: float) -> None:
    with StaticServer(dist_pointer, headers=READABLE) as other:
        policy = strict(connect=origin(other), script=origin(other))
        with StaticServer(site, headers=policy) as server:
            done = outcome(page, f"{server.url}deep/page/", {"bundle": other.url})
        with StaticServer(site, headers=strict(connect=origin(other))) as server:
            refused = outcome(page, f"{server.url}deep/page/", {"bundle": other.url})
    assert done["refund"] == pytest.approx(refund, abs=1e-5)
    assert done["info"]["threads"] == 1
    assert refused["code"] == "BUNDLE" and refused["data"]["url"].startswith(other.url)


def test_an_origin_that_is_not_readable_is_named(page: Page, site: Path, dist_pointer: Path) -> None:
    with StaticServer(dist_pointer) as other, StaticServer(site) as server:
        refused = outcome(page, f"{server.url}deep/page/", {"bundle": other.url})
    assert refused["code"] == "BUNDLE" and refused["data"]["url"] == f"{other.url}manifest.json"


def test_the_library_on_another_origin_needs_a_worker_of_the_pages_own(
    page: Page, site: Path, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    shutil.copytree(site, here)
    with StaticServer(site, headers=READABLE) as other, StaticServer(here) as server:
        script = here / "deep" / "page" / "main.js"
        script.write_text(script.read_text().replace("../../lib/", f"{other.url}lib/"))
        refused = outcome(page, f"{server.url}deep/page/", {"bundle": "../bundle"})
        assert refused["code"] == "UNSUPPORTED" and refused["data"]["worker"].startswith(other.url)
        missing = outcome(page, f"{server.url}deep/page/", {"bundle": "../bundle", "worker": "/none.js"})
        assert missing["code"] == "BUNDLE" and "option `worker`" in missing["message"]
        own = {"bundle": "../bundle", "worker": "../bundle/worker.js"}
        assert "refund" in outcome(page, f"{server.url}deep/page/", own)


# ---------------------------------------------------------------- what the browser must have

CLASSIC_WORKER = "const { Worker } = window; window.Worker = function (url) { return new Worker(url); };"
LACKS = {
    "WebAssembly": "delete window.WebAssembly;",
    "WebAssembly SIMD": "WebAssembly.validate = () => false;",
    "BigInt64Array": "delete window.BigInt64Array;",
    "DecompressionStream": "delete window.DecompressionStream;",
    "module workers": CLASSIC_WORKER,
    "crypto.subtle (open the page over HTTPS or from localhost)": "delete Crypto.prototype.subtle;",
}


@pytest.mark.parametrize("feature", LACKS)
def test_an_unsupported_browser_downloads_nothing(
    page: Page, traffic: Traffic, site: Path, feature: str
) -> None:
    page.add_init_script(LACKS[feature])
    with StaticServer(site) as server:
        refused = outcome(page, f"{server.url}deep/page/", {"bundle": "../bundle"})
        page.wait_for_timeout(200)
    assert refused["code"] == "UNSUPPORTED" and feature in refused["data"]["missing"]
    assert feature in refused["message"]
    asked = traffic.paths(server)
    assert {path for path in asked if "worker" in path or path.startswith("deep/bundle")} == set()
    # What was fetched is the page, and what its import of the library names.
    assert {path for path in asked if not path.startswith("lib/web/")} == {"deep/page/", "deep/page/main.js"}
    assert not {f"lib/web/{name}.js" for name in ("worker", "decider", "engine", "runtime")} & {*asked}


@pytest.mark.parametrize(
    ("options", "data"),
    [
        ({"device": "webgpu"}, "missing"),
        ({"candidates": ["webgpu-gqa", "webgpu-explicit"]}, "missing"),
        ({"candidates": ["webgpu-fast"]}, "candidate"),
    ],
    ids=str,
)
def test_a_device_that_is_not_there_downloads_nothing(
    page: Page, traffic: Traffic, site: Path, options: dict[str, Any], data: str
) -> None:
    with StaticServer(site) as server:
        refused = outcome(page, f"{server.url}deep/page/", {"bundle": "../bundle", **options})
        page.wait_for_timeout(200)
    assert refused["code"] == "UNSUPPORTED" and data in refused["data"]
    asked = traffic.paths(server)
    assert {path for path in asked if "worker" in path or path.startswith("deep/bundle")} == set()


# ---------------------------------------------------------------- the build of ONNX Runtime Web

LOADERS = {"jspi": "jspi", "webgpu": "asyncify"}


@pytest.fixture(scope="module")
def gpu_page(browser_type: BrowserType, browser_type_launch_args: dict[str, Any]) -> Iterator[Page]:
    """A page with WebGPU, on the software adapter."""
    arguments = {**browser_type_launch_args, "args": [*LAUNCH_ARGS, *webgpu_args(software=True)]}
    browser = browser_type.launch(**arguments)
    yield browser.new_page()
    browser.close()


@pytest.mark.browser
@pytest.mark.parametrize("build", LOADERS)
def test_only_the_webgpu_build_that_fits_is_fetched(
    gpu_page: Page, site: Path, refund: float, tmp_path: Path, build: str
) -> None:
    own = tmp_path / "site"
    shutil.copytree(site, own)
    if build == "webgpu":
        worker = own / "lib" / "web" / "worker.js"
        worker.write_text("delete WebAssembly.Suspending;\n" + worker.read_text())
    traffic = Traffic(gpu_page.context)
    with StaticServer(own, headers=strict()) as server:
        options = {"bundle": "../bundle", "device": "webgpu", "candidates": ["webgpu-explicit"]}
        done = outcome(gpu_page, f"{server.url}deep/page/", options)
    assert done["refund"] == pytest.approx(refund, abs=1e-5)
    assert done["info"]["ort"]["build"] == build
    stem = f"ort-wasm-simd-threaded.{LOADERS[build]}"
    assert runtime_files(traffic, server) == {f"ort.{build}.min.mjs", f"{stem}.mjs", f"{stem}.wasm.gzip"}
