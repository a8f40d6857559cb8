"""Does everything survive when things break?

Each fault is planted in a real browser with a tiny model: broken files, a server that dies, full storage, a lost GPU
device, a worker that ends, a runtime that traps, numbers that are none. Reports what happened, and how long it took
until answers came that are right: those of the native engine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from bench import common
from bench.link import Link
from bench.malformed import malformed
from bench.tabs import Tab, chromium
from bench.tiny import build_tiny
from typedecide.errors import TypedecideError
from typedecide.native import NativeEngine
from typedecide.page import PageEngine
from typedecide.questions import parse_questions
from typedecide.static_server import PAGE_HEADERS, StaticServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright

NAME = "faults"
DEVICES = ("wasm",)

HANG_MS = 10_000
"""What takes longer than this, beyond the time that a plain load takes, counts as a hang."""

STATE = "My card was charged twice for order 4412, and nobody has answered me for four days. I want it back today."
OTHER_STATE = "The parcel is late, but nothing is broken."
QUESTIONS: dict[str, Any] = {
    "team": {"type": "choice", "instructions": "Which team?", "criteria": ["billing", "shipping", "support"]},
    "angry": {"type": "noul", "instructions": "Is the customer angry?"},
    "urgency": {
        "type": "score",
        "instructions": "How urgent is it?",
        "criteria": ["not", "somewhat", "very"],
    },
}
TOLERANCE = 1e-5
MALFORMED = 50
SHARD = "model/weights-fp32-0.bin.000"
GPU = {"device": "webgpu", "candidates": ["webgpu-explicit"]}

# Small runs, so that a fault comes between two of them.
SLOWLY = {"readout": "labels", "orderings": "all", "runTokens": 40}

_WATCH_DEVICE = """
{
  const { requestDevice } = GPUAdapter.prototype;
  GPUAdapter.prototype.requestDevice = async function (...args) {
    return (globalThis.lastDevice = await requestDevice.apply(this, args));
  };
}
"""

# The first buffer asked for from then on is larger than any may be, as if the GPU had no memory left.
_REFUSE = """
{
  const { createBuffer } = GPUDevice.prototype;
  GPUDevice.prototype.createBuffer = function (descriptor) {
    const size = globalThis.refuse ? 2 * this.limits.maxBufferSize : descriptor.size;
    globalThis.refuse = false;
    return createBuffer.call(this, { ...descriptor, size });
  };
}
"""

# Around each run of the runtime; `fault` is a function of the run.
_AROUND = """
for (const path of %s)
  import(new URL(path, import.meta.url)).then((module) => {
    const { InferenceSession } = module.default ?? module;
    const { run } = InferenceSession.prototype;
    InferenceSession.prototype.run = function (...args) {
      const plain = () => run.apply(this, args);
      return globalThis.fault ? globalThis.fault(plain) : plain();
    };
  });
"""

# Of one run; caches that stay on the GPU are out of reach.
_POISON = """() => {
  globalThis.fault = async (run) => {
    globalThis.fault = null;
    const results = await run();
    for (const tensor of Object.values(results)) if (tensor.location === "cpu") tensor.data.fill(NaN);
    return results;
  };
}"""

# What WebAssembly does at a failed assertion, and from then on.
_TRAP = """(left) => {
  globalThis.fault = async (run) => {
    left -= 1;
    if (left > 0) return run();
    throw new WebAssembly.RuntimeError("unreachable");
  };
}"""

_END_IN_RUN = """(left) => {
  globalThis.fault = (run) => {
    left -= 1;
    if (left > 0) return run();
    self.close();
    return new Promise(() => {});
  };
}"""

_PREFILL = "async (text) => void (await globalThis.engine.prefill(text))"

_LOADED = "() => globalThis.engine.info.loadMs"

_FORGET = """async (name) => {
  const top = await (await navigator.storage.getDirectory()).getDirectoryHandle("typedecide");
  for await (const folder of top.values()) await folder.removeEntry(name);
}"""

_SCORE_ALL = """async (questions) =>
  (await globalThis.engine.scoreAll(questions)).answers.map((answer) => answer.probabilities)"""

# Several callers at once; what each one gets.
_CROWD = """async ({ calls, questions }) => {
  const { engine } = globalThis;
  const asked = new Map(questions);
  const list = questions.map(([, question]) => question);
  const told = [];
  const onAnswer = (id) => told.push(id);
  const of = ({ answers }) => Object.values(answers).map((answer) => answer.probabilities);
  const doing = {
    prefill: (state) => engine.prefill(state).then(({ tokens }) => tokens),
    decide: (state) => engine.decide({ state, questions: asked }).then(of),
    slowly: (state, options) => engine.decide({ state, questions: asked }, { ...options, onAnswer }).then(of),
    scoreAll: () => engine.scoreAll(list).then(of),
    release: () => engine.release(),
  };
  const done = calls.map(([name, ...given]) => doing[name](...given).catch((error) => error.code));
  return { done: await Promise.all(done), told };
}"""

# The fault comes from outside once the first answer is there.
_BEGIN = """async ({ questions, options }) => {
  let begun;
  const first = new Promise((resolve) => (begun = resolve));
  globalThis.told = [];
  const onAnswer = (index) => (globalThis.told.push(index), begun());
  globalThis.running = globalThis.engine.scoreAll(questions, { ...options, onAnswer });
  globalThis.running.catch(begun);
  await first;
}"""

_END = """async () => {
  const { answers } = await globalThis.running;
  return { told: globalThis.told, answers: answers.map((answer) => answer.probabilities) };
}"""

_REFUSED = """async (questions) => {
  const codes = [];
  for (const question of questions)
    codes.push(await globalThis.engine.score(question).then(() => "ANSWER", (error) => error.code));
  return codes;
}"""


LONG = "word " * 900
"""A text that takes some runs to read, and fits: the tiny model's tokenizer makes four tokens of each word."""


class WrongError(TypedecideError):
    """A fault did harm: a wrong answer, a hang, a wrong error, or something good was lost."""

    code = "WRONG"


@dataclass(frozen=True)
class Outcome:
    """What a fault led to: in words, and the milliseconds until right answers were there again."""

    happened: str
    ms: float


class Stage:
    """A bundle, right answers about it, and browsers to break things in."""

    def __init__(self, playwright: Playwright, bundle: Path, scratch: Path) -> None:
        self._playwright = playwright
        self.bundle = bundle
        self._scratch = scratch
        self._stack = ExitStack()
        self._browsers: dict[bool, Browser] = {}
        self.load_ms = 0.0
        """What the slowest load of the window before took."""
        with NativeEngine(bundle) as engine:
            questions = parse_questions(QUESTIONS)
            plain = engine.decide(STATE, questions)
            self.right = [list(one.answer.probabilities) for one in plain.answers.values()]
            engine.prefill(STATE)
            slow = engine.score_all(list(questions.values()), "all", readout="labels")
            self.right_slowly = [list(one.answer.probabilities) for one in slow.answers]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def browser(self, gpu: bool) -> Browser:
        """The browser, with WebGPU or without; started when it is first asked for."""
        if gpu not in self._browsers:
            self._browsers[gpu] = self._stack.enter_context(chromium(self._playwright, gpu))
        return self._browsers[gpu]

    def copy(self, name: str) -> Path:
        """A bundle to break: its files are links, so replace them and never write into them."""
        target = self._scratch / name
        shutil.copytree(self.bundle, target, copy_function=os.link)
        return target

    def around_runs(self) -> str:
        """Script for a worker, in which `globalThis.fault` is then called around each run of the runtime."""
        manifest = json.loads((self.bundle / "manifest.json").read_text("utf-8"))
        modules = {f"./{build['module']}" for build in manifest["runtime"]["builds"].values()}
        return _AROUND % json.dumps(sorted(modules))

    @contextmanager
    def served(self, folder: Path, gpu: bool = False) -> Iterator[Window]:
        """A window with storage of its own, and a server for `folder` behind a link that can be cut."""
        with StaticServer(folder, headers=PAGE_HEADERS) as server, Link(server.port) as link:
            context = self.browser(gpu).new_context()
            context.set_default_timeout(60_000)
            window = Window(context, link)
            try:
                yield window
                self.load_ms = max((ms for tab in window.tabs for ms in tab.load_ms), default=0.0)
            finally:
                context.close()

    def check(self, answers: list[list[float]], slowly: bool = False) -> None:
        """Raise WrongError unless the answers about STATE are the native engine's."""
        right = self.right_slowly if slowly else self.right
        off = [
            abs(a - b)
            for one, other in zip(answers, right, strict=True)
            for a, b in zip(one, other, strict=True)
        ]
        # A comparison with NaN is false.
        if worst := [one for one in off if not one <= TOLERANCE]:
            raise WrongError(f"answers are off by {worst[0]}", found=answers, right=right)

    def ask(self, tab: Tab) -> None:
        """Ask about STATE, and check the answers."""
        self.check(tab.decide(STATE, QUESTIONS))


class Window:
    """Tabs that share their storage, and the link behind them."""

    def __init__(self, context: Any, link: Link) -> None:
        self._context = context
        self.link = link
        self.tabs: list[Tab] = []

    def tab(self, added: str = "") -> Tab:
        """A new tab at the bundle; `added` goes behind the script of its worker."""
        tab = Tab(self._context.new_page(), self.link.url, added)
        self.tabs.append(tab)
        return tab


def expect(what: bool, message: str, /, **data: Any) -> None:
    """Raise WrongError unless `what` holds."""
    if not what:
        raise WrongError(message, **data)


def refused(work: Callable[[], object], code: str) -> TypedecideError:
    """The error that `work` must end in."""
    try:
        done = work()
    except TypedecideError as error:
        expect(error.code == code, f"{code} was due, not {error.code}: {error.message}", **error.data)
        return error
    raise WrongError(f"{code} was due, and there was none", result=done)


class Clock:
    """Milliseconds since it was made."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    @property
    def ms(self) -> float:
        """Until now."""
        return (time.perf_counter() - self._began) * 1e3


def replace(folder: Path, path: str, data: bytes) -> None:
    """Put other bytes in the place of a file, whose old bytes may be another folder's too."""
    (folder / path).unlink()
    (folder / path).write_bytes(data)


def hashes(folder: Path) -> dict[str, str]:
    """sha256 of the files that the manifest lists."""
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    return {path: entry["sha256"] for path, entry in manifest["files"].items()}


def flipped(data: bytes) -> bytes:
    """The same with one bit in the middle turned over."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 16]) + data[middle + 1 :]


# -- files ---------------------------------------------------------------------------------------------------


def flipped_bit_on_the_server(stage: Stage) -> Outcome:
    """A flipped bit in a shard as it is served."""
    return _broken_shard(stage, "flipped", flipped, "sha256")


def truncated_shard(stage: Stage) -> Outcome:
    """A shard that is cut short on the server."""
    return _broken_shard(stage, "truncated", lambda data: data[: len(data) // 3], "size")


def _broken_shard(stage: Stage, name: str, damage: Callable[[bytes], bytes], what: str) -> Outcome:
    folder = stage.copy(name)
    good = (folder / SHARD).read_bytes()
    replace(folder, SHARD, damage(good))
    with stage.served(folder) as window:
        tab = window.tab()
        error = refused(tab.load, "INTEGRITY")
        expect(error.data["path"] == SHARD and error.data["what"] == what, "wrong details", **error.data)
        replace(folder, SHARD, good)
        clock, before = Clock(), len(window.link.paths)
        tab.load()
        stage.ask(tab)
        again = [path for path in window.link.paths[before:] if path.endswith((".gzip", ".json"))]
        expect(not any(p.endswith(".gzip") for p in again), "a good file was fetched again", paths=again)
        return Outcome(
            "INTEGRITY names the shard; mended, it loads and fetches no other file again", clock.ms
        )


def flipped_bit_in_storage(stage: Stage) -> Outcome:
    """A flipped bit in a shard that the browser keeps."""
    with stage.served(stage.bundle) as window:
        tab = window.tab()
        tab.load()
        tab.evaluate(
            """async (name) => {
              const top = await (await navigator.storage.getDirectory()).getDirectoryHandle("typedecide");
              for await (const folder of top.values()) {
                const handle = await folder.getFileHandle(name);
                const bytes = new Uint8Array(await (await handle.getFile()).arrayBuffer());
                const middle = bytes.length >> 1;
                const stream = await handle.createWritable({ keepExistingData: true });
                await stream.write({ type: "write", position: middle, data: Uint8Array.of(bytes[middle] ^ 1) });
                await stream.close();
              }
            }""",
            hashes(stage.bundle)[SHARD],
        )
        clock, before = Clock(), len(window.link.paths)
        info = tab.load()
        stage.ask(tab)
        size = (stage.bundle / SHARD).stat().st_size
        expect(
            info["storage"]["downloadedBytes"] == size, "not that shard alone was fetched", **info["storage"]
        )
        expect(f"/{SHARD}" in window.link.paths[before:], "the shard was not fetched")
        return Outcome("the shard is fetched again, and nothing else", clock.ms)


def server_dies_and_comes_back(stage: Stage) -> Outcome:
    """The server dies in the middle of a download, and is there again two seconds later."""
    with stage.served(stage.bundle) as window:
        tab, link = window.tab(), window.link
        whole = sum(_model_files(stage).values())
        link.cut_after(whole // 2)
        mending = threading.Thread(target=_mend, args=(link, 2.0))
        mending.start()
        clock = Clock()
        info = tab.load()
        stage.ask(tab)
        ms = clock.ms
        mending.join()
        storage = info["storage"]
        expect(storage["downloadedBytes"] == whole, "bytes were fetched twice", whole=whole, **storage)
        return Outcome("the load waits, goes on at the byte where it broke, and ends well", ms)


def _mend(link: Link, seconds: float) -> None:
    while not link.is_cut:
        time.sleep(0.01)
    time.sleep(seconds)
    link.mend()


def _model_files(stage: Stage) -> dict[str, int]:
    """Bytes of the files that a load on WASM keeps."""
    manifest = json.loads((stage.bundle / "manifest.json").read_text("utf-8"))
    one = manifest["formats"][manifest["default_format"]]
    shards = [shard for data in one["data"] for shard in data["shards"]]
    runtime = manifest["runtime"]["builds"]["wasm"]["wasm"]
    paths = [manifest["tokenizer"], one["graphs"]["explicit"], runtime, *shards]
    return {path: manifest["files"][path]["bytes"] for path in paths}


def server_stays_away(stage: Stage) -> Outcome:
    """The server dies in the middle of a download, and is back only for the next visit."""
    with stage.served(stage.bundle) as window:
        tab, link = window.tab(), window.link
        whole = sum(_model_files(stage).values())
        link.cut_after(whole // 2)
        clock = Clock()
        refused(tab.load, "BUNDLE")
        gave_up = clock.ms
        expect(gave_up < HANG_MS + 5000, "it took too long to give up", ms=gave_up)
        link.mend()
        clock = Clock()
        storage = tab.load()["storage"]
        stage.ask(tab)
        expect(storage["keptBytes"] > 0, "what was there was fetched again", **storage)
        expect(storage["keptBytes"] + storage["downloadedBytes"] == whole, "more than the rest", **storage)
        return Outcome(f"BUNDLE after {gave_up / 1e3:.1f} s; the next load fetches the rest only", clock.ms)


def silent_server(stage: Stage) -> Outcome:
    """The server takes requests and answers none, that for the worker's script too, until the next visit."""
    return _silence(stage, None)


def silent_bundle(stage: Stage) -> Outcome:
    """The server answers no request from that for the manifest on, until the next visit."""
    return _silence(stage, "/manifest.json")


def _silence(stage: Stage, path: str | None) -> Outcome:
    with stage.served(stage.bundle) as window:
        tab, link = window.tab(), window.link
        tab.evaluate("async () => void (await import('./index.js'))")
        link.hush(path)
        clock = Clock()
        refused(tab.load, "BUNDLE")
        gave_up = clock.ms
        expect(gave_up < 4 * HANG_MS, "it took too long to give up", ms=gave_up)
        link.speak()
        clock = Clock()
        tab.load()
        stage.ask(tab)
        return Outcome(f"BUNDLE after {gave_up / 1e3:.1f} s; the next load ends well", clock.ms)


def newer_manifest(stage: Stage) -> Outcome:
    """A new bundle with another shard, where the browser keeps the old one's files."""
    folder = stage.copy("newer")
    with stage.served(folder) as window:
        tab = window.tab()
        tab.load()
        old = hashes(folder)
        shard = bytearray((folder / SHARD).read_bytes())
        shard[0] ^= 1  # the last bit of one weight
        replace(folder, SHARD, bytes(shard))
        _renew(folder, SHARD)
        clock = Clock()
        storage = tab.load()["storage"]
        stage.ask(tab)
        ms = clock.ms
        kept = tab.files()
        expect(storage["downloadedBytes"] == len(shard), "not the new shard alone was fetched", **storage)
        expect(old[SHARD] not in kept, "the old shard is still kept")
        expect(set(kept) <= set(hashes(folder).values()), "files of no manifest are kept", kept=kept)
        return Outcome("the new shard is fetched, the old one deleted, the others stay", ms)


def _renew(folder: Path, path: str) -> None:
    """Have the manifest name a file as it is now."""
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    data = (folder / path).read_bytes()
    manifest["files"][path] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    replace(folder, "manifest.json", json.dumps(manifest).encode())


def quota_full(stage: Stage) -> Outcome:
    """The browser's storage for the site is full."""
    with stage.served(stage.bundle) as window:
        tab = window.tab()
        files = _model_files(stage)
        tab.load()
        tab.evaluate(_FORGET, hashes(stage.bundle)[SHARD])
        session = tab.page.context.new_cdp_session(tab.page)
        origin = window.link.url.rstrip("/")
        quota = sum(tab.files().values()) + files[SHARD] // 2
        session.send("Storage.overrideQuotaForOrigin", {"origin": origin, "quotaSize": quota})
        error = refused(tab.load, "QUOTA")
        expect(0 < error.data["needed"] <= files[SHARD], "wrong need", **error.data)
        # Chromium's estimate of its room knows nothing of a quota that was set for a test.
        expect(error.data["available"] is None, "wrong room", **error.data)
        good = tab.files()
        clock = Clock()
        # Nothing is kept, so everything comes from the server, and it works.
        info = tab.load(keepWeights=False)
        stage.ask(tab)
        ms = clock.ms
        expect(not info["storage"]["kept"], "weights were kept", **info["storage"])
        session.send("Storage.overrideQuotaForOrigin", {"origin": origin})
        storage = tab.load()["storage"]
        expect(storage["downloadedBytes"] <= files[SHARD], "good files were lost", files=good, **storage)
        return Outcome("QUOTA says what is needed; good files stay; it loads with keepWeights: false", ms)


def two_tabs(stage: Stage) -> Outcome:
    """Two tabs load at the same time."""
    with stage.served(stage.bundle) as window:
        tabs = [window.tab(), window.tab()]
        begin = """async () => {
          const { createEngine } = await import("./index.js");
          globalThis.loading = createEngine({ device: "wasm" });
          globalThis.loading.catch(() => {});
        }"""
        end = "async () => (globalThis.engine = await globalThis.loading).info.storage"
        clock = Clock()
        for tab in tabs:
            tab.evaluate(begin)
        storages = [tab.evaluate(end) for tab in tabs]
        for tab in tabs:
            tab.load_ms.append(tab.evaluate("async () => globalThis.engine.info.loadMs"))
            stage.ask(tab)
        ms = clock.ms
        whole = sum(_model_files(stage).values())
        sums = [sum(storage[part] for storage in storages) for part in ("downloadedBytes", "keptBytes")]
        expect(sums == [whole, whole], "a file was fetched twice", storages=storages)
        for path in _model_files(stage):
            times = window.link.paths.count(f"/{path}")
            expect(times == 1, f"{path} was fetched {times} times")
        return Outcome("each file is fetched once, by one of the two", ms)


def missing_format(stage: Stage) -> Outcome:
    """A bundle without the format that is asked for."""
    with stage.served(stage.bundle) as window:
        tab = window.tab()
        error = refused(lambda: tab.load(format="int3"), "UNSUPPORTED")
        expect("fp32" in error.message and error.data["format"] == "int3", "wrong details", **error.data)
        fetched = [path for path in window.link.paths if "model/" in path or path.endswith(".gzip")]
        expect(not fetched, "something was downloaded", paths=fetched)
        clock = Clock()
        tab.load()
        stage.ask(tab)
        return Outcome("UNSUPPORTED names the formats that there are, and nothing is downloaded", clock.ms)


# -- devices and workers -------------------------------------------------------------------------------------


def device_lost(stage: Stage) -> Outcome:
    """The WebGPU device is lost in the middle of `scoreAll`."""
    with stage.served(stage.bundle, gpu=True) as window:
        tab = window.tab(_WATCH_DEVICE)
        tab.load(**GPU)
        return _broken_run(stage, tab, lambda: tab.in_worker("() => globalThis.lastDevice.destroy()"))


def gpu_process_crash(stage: Stage) -> Outcome:
    """The browser's GPU process crashes in the middle of `scoreAll`."""
    with stage.served(stage.bundle, gpu=True) as window:
        tab = window.tab()
        tab.load(**GPU)
        browser = stage.browser(gpu=True)
        return _broken_run(
            stage, tab, lambda: browser.new_browser_cdp_session().send("Browser.crashGpuProcess")
        )


def buffer_refused(stage: Stage) -> Outcome:
    """The GPU has no room for a buffer: no exception tells, and what is read of it would be zeros."""
    with stage.served(stage.bundle, gpu=True) as window:
        tab = window.tab(_REFUSE)
        tab.load(**GPU)
        tab.in_worker("() => void (globalThis.refuse = true)")
        clock = Clock()
        stage.ask(tab)
        return Outcome(
            "the device counts as lost: the engine loads itself again, and its answers are right", clock.ms
        )


def runtime_traps(stage: Stage) -> Outcome:
    """The runtime traps in the middle of `scoreAll`, after which it runs nothing any more."""
    with stage.served(stage.bundle) as window:
        tab = window.tab(stage.around_runs())
        tab.load()
        return _broken_run(stage, tab, in_run=_TRAP)


def worker_ends(stage: Stage) -> Outcome:
    """The worker ends in the middle of `scoreAll`."""
    with stage.served(stage.bundle) as window:
        tab = window.tab(stage.around_runs())
        tab.load()
        return _broken_run(stage, tab, in_run=_END_IN_RUN)


def worker_ends_in_prefill(stage: Stage) -> Outcome:
    """The worker ends while it reads a long text, and three callers wait."""
    calls = [["prefill", LONG], ["decide", STATE], ["scoreAll"], ["decide", STATE]]
    return _crowd(stage, calls, 3)


def worker_ends_in_decide(stage: Stage) -> Outcome:
    """The worker ends in the middle of `decide`, and three callers wait."""
    calls: list[list[Any]] = [
        ["slowly", STATE, SLOWLY],
        ["decide", OTHER_STATE],
        ["prefill", STATE],
        ["scoreAll"],
    ]
    return _crowd(stage, calls, 5)


def _crowd(stage: Stage, calls: list[list[Any]], run: int) -> Outcome:
    """Several callers, in a run of whose first call the worker ends: each gets its own answers, each of them once."""
    with stage.served(stage.bundle) as window:
        tab = window.tab(stage.around_runs())
        tab.load()
        tab.in_worker(_END_IN_RUN, run)
        clock = Clock()
        found = tab.evaluate(_CROWD, {"calls": calls, "questions": list(QUESTIONS.items())})
        ms = clock.ms
        for (name, *given), done in zip(calls, found["done"], strict=True):
            if name == "prefill":
                expect(isinstance(done, int) and done > 0, "the text was not read", done=done)
            elif OTHER_STATE not in given:
                stage.check(done, slowly=name == "slowly")
        told, slow = found["told"], any(name == "slowly" for name, *_ in calls)
        expect(sorted(told) == (sorted(QUESTIONS) if slow else []), "answers told twice or never", told=told)
        stage.ask(tab)
        return Outcome("the engine loads itself again, and all callers get right answers, in their order", ms)


def idle_worker_ends(stage: Stage) -> Outcome:
    """The worker ends between two calls, the next of which is about no text."""
    with stage.served(stage.bundle) as window:
        tab = window.tab()
        tab.load()
        stage.ask(tab)
        tab.in_worker("() => self.close()")
        tab.page.wait_for_timeout(200)
        clock = Clock()
        expect(tab.evaluate("() => globalThis.engine.states()") == [], "the worker did not end")
        stage.check(tab.evaluate(_SCORE_ALL, list(QUESTIONS.values())))
        return Outcome("the next call starts another worker, which reads the text again", clock.ms)


def _begin(tab: Tab) -> None:
    """Start `scoreAll`, and wait for its first answer."""
    tab.evaluate(_BEGIN, {"questions": list(QUESTIONS.values()), "options": SLOWLY})


def _expect_more(tab: Tab) -> None:
    expect(tab.evaluate("() => globalThis.told.length") < len(QUESTIONS), "the fault came too late")


def _broken_run(
    stage: Stage, tab: Tab, fault: Callable[[], object] | None = None, in_run: str | None = None
) -> Outcome:
    """Break `scoreAll`, which must still give right answers, and each of them once.

    The fault comes from outside after the first answer, or it is a function for the worker that breaks its second run.
    """
    tab.evaluate(_PREFILL, STATE)
    before = tab.evaluate(_LOADED)
    if in_run:
        tab.in_worker(in_run, 2)
    clock = Clock()
    _begin(tab)
    if fault:
        _expect_more(tab)
        clock = Clock()
        fault()
    done = tab.evaluate(_END)
    ms = clock.ms
    stage.check(done["answers"], slowly=True)
    expect(tab.evaluate(_LOADED) != before, "nothing broke: the engine was not loaded again")
    expect(
        sorted(done["told"]) == list(range(len(QUESTIONS))), "answers told twice or never", told=done["told"]
    )
    stage.ask(tab)
    return Outcome(
        "the engine loads itself again, reads the text again, and ends the call with right answers", ms
    )


# -- requests ------------------------------------------------------------------------------------------------


def context_overflow(stage: Stage) -> Outcome:
    """A text, and then a question, that do not fit the context."""
    with stage.served(stage.bundle) as window:
        tab = window.tab()
        tab.load()
        tab.evaluate(_PREFILL, STATE)
        clock = Clock()
        error = refused(lambda: tab.decide("word " * 9000, QUESTIONS), "TOO_LONG")
        expect(error.data["tokens"] > error.data["limit"] > 0, "wrong lengths", **error.data)
        long = {"type": "noul", "instructions": "why " * 9000}
        refused(lambda: tab.evaluate("(question) => globalThis.engine.score(question)", long), "TOO_LONG")
        # The text before is still there.
        stage.check(tab.evaluate(_SCORE_ALL, list(QUESTIONS.values())))
        return Outcome("TOO_LONG gives both lengths; the text before stays", clock.ms)


def malformed_requests(stage: Stage) -> Outcome:
    """50 malformed questions of each kind."""
    with stage.served(stage.bundle) as window:
        tab = window.tab()
        tab.load()
        tab.evaluate(_PREFILL, STATE)
        clock = Clock()
        for kind in ("choice", "noul", "score"):
            questions = malformed(kind, MALFORMED)
            codes = tab.evaluate(_REFUSED, questions)
            odd = [(q, code) for q, code in zip(questions, codes, strict=True) if code != "INVALID_QUESTION"]
            expect(not odd, "malformed questions were not refused by name", odd=odd)
        stage.ask(tab)
        return Outcome(f"all {3 * MALFORMED} are INVALID_QUESTION", clock.ms)


def not_a_number(stage: Stage) -> Outcome:
    """The runtime gives NaN: in one run of a prefill, and in one of a scoring."""
    with stage.served(stage.bundle) as window:
        tab = window.tab(stage.around_runs())
        tab.load()
        tab.evaluate(_PREFILL, OTHER_STATE)
        # Of a text that is new, the first run is the prefill: its cache is spoilt.
        tab.in_worker(_POISON)
        refused(lambda: tab.decide(STATE, QUESTIONS), "INTEGRITY")
        clock = Clock()
        stage.ask(tab)
        ms = clock.ms
        _poisoned_score(stage, tab)
        return Outcome("INTEGRITY; what may be spoilt is computed again, and the next call is right", ms)


def not_a_number_on_the_gpu(stage: Stage) -> Outcome:
    """The runtime gives NaN in a scoring on WebGPU."""
    with stage.served(stage.bundle, gpu=True) as window:
        tab = window.tab(stage.around_runs())
        tab.load(**GPU)
        stage.ask(tab)
        clock = Clock()
        _poisoned_score(stage, tab)
        return Outcome(
            "INTEGRITY; what may be spoilt is computed again, and the next call is right", clock.ms
        )


def _poisoned_score(stage: Stage, tab: Tab) -> None:
    """NaN in a scoring about STATE: an error, and the next answers are right."""
    tab.in_worker(_POISON)
    refused(lambda: tab.evaluate(_SCORE_ALL, list(QUESTIONS.values())), "INTEGRITY")
    stage.check(tab.evaluate(_SCORE_ALL, list(QUESTIONS.values())))


def release_during_run(stage: Stage) -> Outcome:
    """`release()` is called during `scoreAll`."""
    with stage.served(stage.bundle) as window:
        tab = window.tab()
        tab.load()
        tab.evaluate(_PREFILL, STATE)
        _begin(tab)
        _expect_more(tab)
        clock = Clock()
        tab.evaluate("async () => void (globalThis.released = globalThis.engine.release())")
        stage.check(tab.evaluate(_END)["answers"], slowly=True)
        kept = tab.evaluate("async () => (await globalThis.released, globalThis.engine.states())")
        expect(kept == [], "texts are still kept", kept=kept)
        stage.ask(tab)
        return Outcome("the run ends with right answers, then the texts are freed", clock.ms)


def release_in_a_crowd(stage: Stage) -> Outcome:
    """`release()` is called during a prefill and during `decide`, and calls wait behind it."""
    with stage.served(stage.bundle) as window:
        tab = window.tab()
        tab.load()
        calls: list[list[Any]] = [
            *(["prefill", LONG], ["release"], ["scoreAll"]),
            *(["slowly", STATE, SLOWLY], ["release"], ["decide", STATE]),
        ]
        clock = Clock()
        found = tab.evaluate(_CROWD, {"calls": calls, "questions": list(QUESTIONS.items())})["done"]
        ms = clock.ms
        expect(
            isinstance(found[0], int) and found[2] == "INVALID_STATE",
            "a text that was freed is asked about",
            found=found,
        )
        stage.check(found[3], slowly=True)
        stage.check(found[5])
        return Outcome("what runs ends well; then the texts are freed, and the next call reads its own", ms)


FAULTS: Mapping[str, Callable[[Stage], Outcome]] = {
    fault.__name__: fault
    for fault in (
        flipped_bit_on_the_server,
        flipped_bit_in_storage,
        truncated_shard,
        server_dies_and_comes_back,
        server_stays_away,
        silent_server,
        silent_bundle,
        newer_manifest,
        quota_full,
        two_tabs,
        missing_format,
        device_lost,
        gpu_process_crash,
        buffer_refused,
        runtime_traps,
        worker_ends,
        worker_ends_in_prefill,
        worker_ends_in_decide,
        idle_worker_ends,
        context_overflow,
        malformed_requests,
        not_a_number,
        not_a_number_on_the_gpu,
        release_during_run,
        release_in_a_crowd,
    )
}
"""Every fault, by name."""


# -- the command ---------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The faults to plant."""
    parser.add_argument(
        "--only", metavar="A,B", help=f"these faults only; known: {', '.join(FAULTS)} (default: all)"
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Plant the faults, publish and return what happened; WrongError when one did harm."""
    from playwright.sync_api import sync_playwright

    names = args.only.split(",") if args.only else list(FAULTS)
    if unknown := [name for name in names if name not in FAULTS]:
        raise common.ArgumentError(f"there is no fault {unknown[0]!r}: {', '.join(FAULTS)}", fault=unknown[0])
    bundle = args.bundle or build_tiny()
    with PageEngine(bundle, "wasm") as engine:
        facts = common.describe(NAME, engine)
    with sync_playwright() as playwright, set_up(playwright, bundle) as stage:
        rows = [plant(stage, name) for name in names]
    result = {**facts, "hang_ms": HANG_MS, "rows": rows, "survived": all(row["survived"] for row in rows)}
    if args.json is None and not args.quick:
        args.json = str(common.RESULTS / f"{NAME}.json")
    common.publish(args, result, summarise(result))
    if not result["survived"]:
        bad = [row["fault"] for row in rows if not row["survived"]]
        raise WrongError(f"did not survive: {', '.join(bad)}", faults=bad)
    return result


@contextmanager
def set_up(playwright: Playwright, bundle: Path) -> Iterator[Stage]:
    """A stage with a folder for broken copies of the bundle."""
    # Beside the bundle, so that copies can be links.
    with (
        tempfile.TemporaryDirectory(prefix=".faults-", dir=bundle.parent) as scratch,
        Stage(playwright, bundle, Path(scratch)) as stage,
    ):
        yield stage


def plant(stage: Stage, name: str) -> dict[str, Any]:
    """One fault's row: what it is, what happened, the time to recover, and whether no harm was done."""
    fault = FAULTS[name]
    print(f"fault: {name}", file=sys.stderr, flush=True)
    row = {"fault": name, "about": fault.__doc__}
    try:
        outcome = fault(stage)
    except TypedecideError as error:
        return {
            **row,
            "happened": f"{error.code}: {error.message}",
            "ms": None,
            "load_ms": None,
            "survived": False,
        }
    survived = outcome.ms <= HANG_MS + stage.load_ms
    return {
        **row,
        "happened": outcome.happened,
        "ms": outcome.ms,
        "load_ms": stage.load_ms,
        "survived": survived,
    }


def summarise(result: Mapping[str, Any]) -> str:
    """A line for each fault."""
    lines = [f"{NAME}: {len(result['rows'])} faults, model {result['model']}"]
    for row in result["rows"]:
        verdict = "survived" if row["survived"] else "HARM"
        time_taken = (
            "" if row["ms"] is None else f" ({row['ms']:.0f} ms, a plain load {row['load_ms']:.0f} ms)"
        )
        lines.append(f"  {row['fault']}: {verdict}{time_taken}: {row['happened']}")
    return "\n".join(lines)
