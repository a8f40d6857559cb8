"""What a page holds and how busy it is: memory of page and worker, buffers on the GPU, tasks of the main thread.

It asks the browser, through its debugging protocol and its traces, and adds a few lines to the worker's script as that
is served. Knows no questions; the page's own code knows nothing of it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from typedecide.errors import DeviceLostError
from typedecide.page import PageEngine

if TYPE_CHECKING:
    from playwright.sync_api import CDPSession, Page, Route

T = TypeVar("T")

LONG_TASK_MS = 50
"""A main-thread task that lasts longer keeps the page from answering its user: the Long Tasks API's own limit."""

ANSWER_S = 60
"""How long the worker may take to answer the debugger: it may be in the middle of a run."""

# Weak references, so that what is only forgotten, and not destroyed, is free as soon as it is collected.
HELD = """
{
  const memories = new Set();
  const buffers = new Set();
  const destroyed = new WeakSet();
  const living = (refs) =>
    [...refs].flatMap((ref) => {
      const found = ref.deref();
      if (!found || destroyed.has(found)) refs.delete(ref);
      return refs.has(ref) ? [found] : [];
    });
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  WebAssembly.Memory = class extends WebAssembly.Memory {
    constructor(descriptor) {
      super(descriptor);
      memories.add(new WeakRef(this));
    }
  };
  if (globalThis.GPUDevice) {
    const { createBuffer } = GPUDevice.prototype;
    const { destroy } = GPUBuffer.prototype;
    GPUDevice.prototype.createBuffer = function (descriptor) {
      const buffer = createBuffer.call(this, descriptor);
      buffers.add(new WeakRef(buffer));
      return buffer;
    };
    GPUBuffer.prototype.destroy = function () {
      destroyed.add(this);
      return destroy.call(this);
    };
  }
  globalThis.held = () => ({
    wasm: sum(living(memories).map((memory) => memory.buffer.byteLength)),
    buffers: living(buffers).length,
    bytes: sum(living(buffers).map((buffer) => buffer.size)),
  });
}
"""
"""Goes behind the worker's own script: the runtime makes its memory and its buffers later, with the model."""

_RESTART = """async (engine, options) => {
  const { createEngine } = await import("/index.js");
  engine.close();
  globalThis.typedecide.engine = await createEngine(options);
  return globalThis.typedecide.engine.info;
}"""


@dataclass(frozen=True)
class Held:
    """What page and worker hold after a garbage collection, in bytes, and how many GPU buffers there are.

    page_heap, worker_heap: JavaScript objects.
    worker_buffers: what the worker's typed arrays lie in; on WASM the kept states are among them.
    wasm_heap: the WebAssembly memories, ONNX Runtime's among them.
    """

    page_heap: int
    worker_heap: int
    worker_buffers: int
    wasm_heap: int
    gpu_buffers: int
    gpu_bytes: int


@dataclass(frozen=True)
class MainThread:
    """How busy the page's main thread was: number of its tasks, and milliseconds of the longest."""

    tasks: int
    longest_ms: float


class ProbedPage(PageEngine):
    """The page's engine, with its page open to measurements."""

    def on_page(self, work: Callable[[Page], T]) -> T:
        """Run `work` on the browser's thread, with the page."""
        return self._call(lambda: work(self._page))

    def restart(self, state_bytes: int, added: str = "", threads: int | None = None) -> None:
        """Close the engine and load it again, the same way, in a worker that can be asked what it holds.

        Args:
            state_bytes: memory for kept states.
            added: more JavaScript to add to the worker's script, such as a planted leak.
            threads: on WASM; None: as many as before.
        """

        def serve(route: Route) -> None:
            response = route.fetch()
            route.fulfill(response=response, body=response.text() + HELD + added)

        def route(page: Page) -> None:
            page.unroute("**/worker.js")
            page.route("**/worker.js", serve)

        self.on_page(route)
        info = self.info
        options = {name: info[name] for name in ("device", "format", "threads")}
        if threads is not None:
            options["threads"] = threads
        restarted = {**options, "candidates": [info["candidate"]], "stateBytes": state_bytes}
        self._info = self.evaluate(_RESTART, restarted)

    def in_worker(self, function: str, argument: object = None) -> Any:
        """What a JavaScript function of one JSON argument gives in the engine's worker, which has restarted."""

        def ask(page: Page) -> Any:
            # The runtime's threads are workers too, with a script of their own; a closed engine's may still be there.
            own = [worker for worker in page.workers if worker.url.endswith("/worker.js")]
            return own[-1].evaluate(function, argument)

        return self.on_page(ask)

    def watch(self, work: Callable[[], T]) -> tuple[T, MainThread]:
        """Do `work`, and say how busy the page's main thread was meanwhile."""
        self.on_page(lambda page: _browser(page).start_tracing(page=page, categories=["toplevel"]))
        try:
            done = work()
        finally:
            trace = self.on_page(lambda page: _browser(page).stop_tracing())
        return done, read_trace(trace)


def _browser(page: Page) -> Any:
    return page.context.browser


def read_trace(trace: bytes) -> MainThread:
    """The tasks of the renderer's main thread in a trace of Chromium's category `toplevel`."""
    events = json.loads(trace)["traceEvents"]
    main = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    tasks = [
        event["dur"] / 1e3
        for event in events
        if event["name"] == "ThreadControllerImpl::RunTask"
        and event["ph"] == "X"
        and (event["pid"], event["tid"]) in main
    ]
    # Another Chromium may name its events otherwise: nothing found is no proof of a free thread.
    if not tasks:
        raise DeviceLostError(
            "the browser's trace holds no task of the page's main thread", events=len(events)
        )
    return MainThread(len(tasks), max(tasks))


class Memory:
    """Reads what a page and its one worker hold. Make it after `restart`."""

    def __init__(self, page: ProbedPage) -> None:
        self._page = page
        self._replies: dict[int, dict[str, Any]] = {}
        self._workers: list[str] = []
        self._sent = 0
        self._session: CDPSession = page.on_page(self._attach)

    def _attach(self, page: Page) -> CDPSession:
        session = page.context.new_cdp_session(page)
        session.on("Target.attachedToTarget", lambda event: self._workers.append(event["sessionId"]))
        session.on("Target.detachedFromTarget", lambda event: self._workers.remove(event["sessionId"]))
        session.on("Target.receivedMessageFromTarget", self._receive)
        # Not flattened: Playwright's session would not pass on what comes under another session's id.
        settings = {"autoAttach": True, "waitForDebuggerOnStart": False, "flatten": False}
        session.send("Target.setAutoAttach", settings)
        # The worker of an engine that was closed goes a moment later.
        self._wait(page, lambda: len(self._workers) == 1)
        return session

    def _wait(self, page: Page, there: Callable[[], bool]) -> None:
        deadline = time.monotonic() + ANSWER_S
        while not there():
            if time.monotonic() > deadline:
                raise DeviceLostError("the worker does not answer the debugger", workers=len(self._workers))
            page.wait_for_timeout(5)

    def _receive(self, event: dict[str, Any]) -> None:
        reply = json.loads(event["message"])
        if "id" in reply:
            self._replies[reply["id"]] = reply

    def _in_worker(self, page: Page, method: str, **params: Any) -> dict[str, Any]:
        self._sent += 1
        sent = self._sent
        message = json.dumps({"id": sent, "method": method, "params": params})
        self._session.send("Target.sendMessageToTarget", {"sessionId": self._workers[0], "message": message})
        self._wait(page, lambda: sent in self._replies)
        reply = self._replies.pop(sent)
        if "result" not in reply or "exceptionDetails" in reply["result"]:
            raise DeviceLostError(f"the worker refused {method}", reply=reply)
        result: dict[str, Any] = reply["result"]
        return result

    def read(self) -> Held:
        """What is held now, after a garbage collection in both."""
        return self._page.on_page(self._read)

    def _read(self, page: Page) -> Held:
        self._session.send("HeapProfiler.collectGarbage")
        outside = self._session.send("Runtime.getHeapUsage")
        self._in_worker(page, "HeapProfiler.collectGarbage")
        inside = self._in_worker(page, "Runtime.getHeapUsage")
        held = self._in_worker(page, "Runtime.evaluate", expression="held()", returnByValue=True)
        found = held["result"]["value"]
        return Held(
            page_heap=outside["usedSize"],
            worker_heap=inside["usedSize"],
            worker_buffers=inside["backingStorageSize"],
            wasm_heap=found["wasm"],
            gpu_buffers=found["buffers"],
            gpu_bytes=found["bytes"],
        )
