"""Python in the browser: typedecide in Pyodide, on the page's main thread, over the bundle's own engine.

Pyodide starts once. The tiny model answers at random: it is the way there and back that is tested here.
"""

from __future__ import annotations

import base64
import io
import json
import statistics
import textwrap
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from bench.tiny import build_tiny
from pybuild import pyodide, wheel
from tests import make_decide_vectors
from tests.sites import READABLE
from tests.test_decide import VECTORS, check
from tests.test_frames import finish
from tests.vector_checks import FOLDER, TOKENIZERS
from typedecide import __version__, browser
from typedecide.errors import UnsupportedError
from typedecide.native import NativeEngine
from typedecide.questions import Choice, Noul, Question, Score, to_wire
from typedecide.static_server import StaticServer

pytestmark = pytest.mark.browser

ROOT = Path(__file__).resolve().parents[1]

START = """async (url) => {
  const { loadPyodide } = await import(`${url}pyodide/pyodide.mjs`);
  const { createEngine } = await import(`${url}index.js`);
  globalThis.engine = await createEngine({ device: "wasm" });
  globalThis.python = await loadPyodide();
  python._module.enable_pyproxy_allocation_tracing();
  globalThis.asked = [];
  await python.loadPackage("typedecide", { messageCallback: (text) => asked.push(text) });
}"""

NAMES = """
import asyncio, gc, js, typedecide.browser
from typedecide import *

class Frame:
    '''What decide_frame asks of a DataFrame: pandas for Pyodide is neither on PyPI nor on npm.'''
    def __init__(self, columns):
        self.data = columns
    columns = property(lambda self: list(self.data))
    def __getitem__(self, name):
        return self.data[name]
    def assign(self, **columns):
        return Frame({**self.data, **columns})

QUESTIONS = parse_questions(json.loads(questions))
MANY = {f"q{i}": Noul(f"Is it number {i}?") for i in range(60)}

engine = await typedecide.browser.connect(device="wasm")
None
"""

QUESTIONS: dict[str, Question] = {
    "10": Choice("Which team should handle this?", {"billing": "charges", "shipping": "", "other": None}),
    "angry": Noul("Is the customer angry?"),
    "2": Score("How urgent?", ["low", "middle", "high"]),
}


@dataclass
class Python:
    """Pyodide in a page, with a connected `engine`, what `NAMES` has, and all of typedecide's names."""

    page: Page
    url: str
    requests: list[str]
    complaints: list[str]

    def run(self, code: str, **values: Any) -> Any:
        """Run code with values by name; what its last expression gives, through JSON."""
        source = f"import json\nglobals().update(json.loads(values))\n{textwrap.dedent(code)}"
        function = """({ source, values }) => {
          python.globals.set("values", values);
          return python.runPythonAsync(source);
        }"""
        found = self.page.evaluate(function, {"source": source, "values": json.dumps(values)})
        return None if found is None else json.loads(found)

    def javascript(self, function: str, argument: Any = None) -> Any:
        """Call a JavaScript function in the page."""
        return self.page.evaluate(function, argument)


@pytest.fixture(scope="session")
def python(browser: Browser, dist_pointer: Path) -> Iterator[Python]:
    """Pyodide, started once for all tests."""
    with StaticServer(dist_pointer) as server:
        page = browser.new_page()
        page.set_default_timeout(120_000)
        requests: list[str] = []
        complaints: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda m: complaints.append(m.text) if m.type in {"error", "warning"} else None)
        page.goto(f"{server.url}manifest.json")
        page.evaluate(START, server.url)
        found = Python(page, server.url, requests, complaints)
        found.run(NAMES, questions=json.dumps({id: to_wire(one) for id, one in QUESTIONS.items()}))
        # A page asks for its icon by itself.
        complaints[:] = [text for text in complaints if "404" not in text]
        yield found
        page.close()


def test_the_package_comes_from_the_bundle_alone(python: Python) -> None:
    assert [url for url in python.requests if not url.startswith((python.url, "blob:"))] == []
    wheels = [url for url in python.requests if url.endswith(".whl")]
    assert wheels == [f"{python.url}pyodide/{wheel.file_name()}"]
    assert python.javascript("() => python.loadedPackages") == {"typedecide": "default channel"}
    assert python.run("json.dumps([typedecide.__version__, typedecide.__file__])")[0] == __version__


def test_manifest_lists_python(dist_pointer: Path, tmp_path: Path) -> None:
    manifest = json.loads((dist_pointer / "manifest.json").read_text("utf-8"))
    folder = {path for path in manifest["files"] if path.startswith("pyodide/")}
    own = {f"pyodide/{name}" for name in (*pyodide.CORE, pyodide.LOCK, "NOTICE", wheel.file_name())}
    assert folder == own
    assert manifest["python"]["wheel"] in folder
    lock = json.loads((dist_pointer / "pyodide" / pyodide.LOCK).read_text("utf-8"))
    assert list(lock["packages"]) == ["typedecide"]
    assert (
        lock["packages"]["typedecide"]["sha256"] == manifest["files"][manifest["python"]["wheel"]]["sha256"]
    )
    worker = (dist_pointer / "sw.js").read_text("utf-8").split("\n", 1)[0]
    facts = json.loads(worker.removeprefix("self.BUNDLE = ").rstrip(";"))
    assert folder <= set(facts["used"]) and not folder & set(facts["shell"])


def test_a_bundle_may_leave_python_out() -> None:
    out = build_tiny("-no-python", python=False)
    manifest = json.loads((out / "manifest.json").read_text("utf-8"))
    assert "python" not in manifest and not (out / "pyodide").exists()


def test_the_wheel_is_the_package_and_the_same_bytes_each_time(tmp_path: Path) -> None:
    first, second = (wheel.write(tmp_path / name) for name in ("a", "b") if (tmp_path / name).mkdir() is None)
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(first) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        record = archive.read(f"typedecide-{__version__}.dist-info/RECORD").decode().splitlines()
        assert {line.split(",")[0] for line in record} == set(archive.namelist())
    assert names == {p.relative_to(ROOT).as_posix() for p in wheel.sources()}
    assert "typedecide/browser.py" in names and "typedecide/py.typed" in names


def test_connecting_elsewhere_says_what_to_take() -> None:
    with pytest.raises(UnsupportedError, match=r"typedecide\.native"):
        finish(browser.connect())


def test_answers_are_those_of_javascript_to_the_last_bit(python: Python) -> None:
    text = "My card was charged twice. 😀 {state} é"
    ours = python.run(
        """
        done = await engine.decide(text, QUESTIONS)
        from typedecide.questions import to_wire
        json.dumps({
            "answers": [[id, answer.to_dict()] for id, answer in done.answers.items()],
            "tokens": [done.tokens_run, done.tokens_saved, done.runs, done.prefill.tokens],
            "questions": [[id, to_wire(one)] for id, one in QUESTIONS.items()],
        })
        """,
        text=text,
    )
    theirs = python.javascript(
        """async ({ text, questions }) => {
          const done = await engine.decide({ state: text, questions: new Map(questions) });
          const { tokens_run, tokens_saved, runs, prefill } = done;
          const answers = questions.map(([id]) => [id, done.answers[id]]);
          return { answers, tokens: [tokens_run, tokens_saved, runs, prefill.tokens] };
        }""",
        {"text": text, "questions": ours["questions"]},
    )
    assert ours["answers"] == theirs["answers"]
    assert ours["tokens"] == theirs["tokens"]
    assert [id for id, _ in ours["answers"]] == ["10", "angry", "2"]


def test_results_are_the_objects_of_every_engine(python: Python) -> None:
    found = python.run(
        """
        from typedecide.results import Debiased, Decided, Prefill
        done = await engine.decide("A text", QUESTIONS)
        first = done.answers["10"]
        json.dumps([
            isinstance(done, Decided), isinstance(done.prefill, Prefill), isinstance(first, Debiased),
            isinstance(first.answer, Answer), type(first.answer.probabilities).__name__,
            {type(p).__name__ for p in first.answer.logits} == {"float"}, type(engine.info).__name__,
            engine.info["device"],
        ])
        """
    )
    assert found == [True, True, True, True, "tuple", True, "dict", "wasm"]


@pytest.mark.parametrize("index", range(len(VECTORS["cases"])), ids=[c["name"] for c in VECTORS["cases"]])
def test_whole_decisions_are_those_of_the_vectors(python: Python, index: int) -> None:
    _, states, orderings, options = make_decide_vectors.ASKED[index]
    found = python.run(
        """
        await engine.release()
        asked = parse_questions(json.loads(questions))
        for state in states:
            done = await engine.decide(state, asked, orderings, **options)
        json.dumps({
            "prefix_tokens": done.prefill.tokens, "tokens_run": done.tokens_run,
            "tokens_saved": done.tokens_saved, "runs": done.runs,
            "answers": [[key, answer.to_dict()] for key, answer in done.answers.items()],
        })
        """,
        states=[make_decide_vectors.STATES[i] for i in states],
        questions=json.dumps(make_decide_vectors.QUESTIONS),
        orderings=orderings,
        options=dict(options),
    )
    check(found, VECTORS["cases"][index])


def test_the_vectors_pass_in_pyodide(python: Python) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in (
            *FOLDER.glob("*.json"),
            *(FOLDER.parent / f"{n}.py" for n in ("views", "vector_checks", "__init__")),
        ):
            packed.write(path, path.relative_to(ROOT))
    # The page's own tokenizer stands in for the one that Python has elsewhere, which is compiled.
    python.javascript(
        """async ({ url, archive, names }) => {
          const bytes = Uint8Array.from(atob(archive), (character) => character.charCodeAt(0));
          python.unpackArchive(bytes, "zip", { extractDir: "/vectors" });
          const { Tokenizer } = await import(`${url}vendor/tokenizers/tokenizers.min.mjs`);
          const folder = "/vectors/tests/vectors";
          const read = (name) => python.FS.readFile(`${folder}/tokenizer-${name}.json`, { encoding: "utf8" });
          globalThis.encoders = Object.fromEntries(names.map((name) => {
            const tokenizer = new Tokenizer(JSON.parse(read(name)), {});
            return [name, (text) => tokenizer.encode(text, { add_special_tokens: false }).ids];
          }));
        }""",
        {
            "url": python.url,
            "archive": base64.b64encode(archive.getvalue()).decode(),
            "names": TOKENIZERS,
        },
    )
    passed, failed = python.run(
        """
        import sys, js
        sys.path.insert(0, "/vectors")
        from tests import vector_checks

        class Encoder:
            def __init__(self, name):
                self.name = name
            def encode(self, text):
                return getattr(js.encoders, self.name)(text).to_py()

        passed, failed = 0, []
        for name, check in vector_checks.checks({name: Encoder(name) for name in vector_checks.TOKENIZERS}):
            try:
                check()
                passed += 1
            except AssertionError as error:
                failed.append(f"{name}: {error}"[:500])
        json.dumps([passed, failed])
        """
    )
    assert failed == []
    # As many as in CPython.
    from tests.test_vectors import CHECKS

    assert passed == len(CHECKS)


def test_answers_stream(python: Python) -> None:
    found = python.run(
        """
        streamed = [(id, answer) async for id, answer in engine.stream("A text to stream", QUESTIONS, run_tokens=20)]
        whole = await engine.decide("A text to stream", QUESTIONS, run_tokens=20)
        json.dumps([whole.runs, sorted(id for id, _ in streamed), dict(streamed) == whole.answers])
        """
    )
    assert found[0] > 1
    assert found[1:] == [["10", "2", "angry"], True]


def test_errors_are_pythons_with_their_data(python: Python) -> None:
    found = python.run(
        """
        async def caught(work):
            try:
                return repr(await work)
            except TypedecideError as error:
                return [type(error).__name__, error.code, error.data]

        connect = typedecide.browser.connect
        json.dumps([
            await caught(engine.decide("x " * 9000, QUESTIONS)),
            await caught(engine.decide("x", QUESTIONS, readout="none")),
            await caught(engine.decide(3, QUESTIONS)),
            await caught(engine.decide("x", {3: QUESTIONS["10"]})),
            await caught(connect("/nowhere/")),
            await caught(connect(device="tpu")),
            (await caught(engine.decide(chr(0xd800), QUESTIONS)))[1],
        ])
        """
    )
    long, readout, state, id, bundle, device, surrogate = found
    assert long[:2] == ["TooLongError", "TOO_LONG"] and long[2]["tokens"] > long[2]["limit"] == 4096
    assert readout[:2] == ["UnsupportedError", "UNSUPPORTED"] and readout[2]["readout"] == "none"
    assert state == ["InvalidStateError", "INVALID_STATE", {"value": 3}]
    assert id[:2] == ["InvalidQuestionError", "INVALID_QUESTION"]
    assert bundle == ["BundleError", "BUNDLE", {"url": f"{python.url}nowhere/index.js"}]
    assert device == ["UnsupportedError", "UNSUPPORTED", {"device": "tpu"}]
    assert surrogate == "INVALID_STATE"
    python.complaints[:] = [text for text in python.complaints if "404" not in text]


def test_an_error_of_the_callers_own_comes_back_and_stops_the_engine(python: Python) -> None:
    # The engine itself, and how many answers it gave.
    python.javascript(
        """() => {
          globalThis.answered = 0;
          globalThis.counted = Object.create(engine, {
            decide: {
              value: (request, options) => engine.decide(request, {
                ...options,
                onAnswer: (id, answer) => (answered++, options.onAnswer(id, answer)),
              }),
            },
          });
        }"""
    )
    caught, answered, after = python.run(
        """
        def fail(id, answer):
            raise KeyError(id)

        typedecide.browser.offer(js.counted)
        try:
            counted = await typedecide.browser.connect()
        finally:
            typedecide.browser.offer(None)
        try:
            await counted.decide("A text", MANY, on_answer=fail, readout="labels", run_tokens=20)
        except KeyError as error:
            caught = error.args
        answered = js.answered
        # The engine's last answer comes too late to stop anything.
        try:
            await engine.decide("A text", {"only": QUESTIONS["angry"]}, on_answer=fail)
        except KeyError as error:
            after = error.args
        json.dumps([caught, answered, after])
        """
    )
    assert len(caught) == 1 and caught[0].startswith("q") and after == ["only"]
    assert 1 <= answered < 60


def test_cancelling_a_task_stops_the_engine(python: Python) -> None:
    found = python.run(
        """
        told, first = [], asyncio.Event()

        def tell(id, answer):
            told.append(id)
            first.set()

        work = asyncio.ensure_future(
            engine.decide("A text to be left", MANY, on_answer=tell, readout="labels", run_tokens=20))
        await first.wait()
        work.cancel()
        try:
            await work
            ended = "answered"
        except asyncio.CancelledError:
            ended = "cancelled"
        # Calls are answered in turn: once this one is, the other is over.
        after = await engine.decide("Another", {"a": Noul("Is it?")})

        left = 0
        async for id, answer in engine.stream("A text to be left again", MANY, readout="labels", run_tokens=20):
            left += 1
            break
        try:
            await asyncio.wait_for(engine.decide("One more text", MANY, readout="labels", run_tokens=20), 0.05)
            timed = "answered"
        except TimeoutError:
            timed = "timed out"
        json.dumps([ended, len(told), len(after.answers), left, timed])
        """
    )
    ended, told, after, left, timed = found
    assert (ended, after, left, timed) == ("cancelled", 1, 1, "timed out")
    assert 1 <= told < 60
    assert python.complaints == []


def test_python_adds_less_than_30_ms_to_a_call(python: Python) -> None:
    python.javascript(
        """async () => {
          globalThis.request = {
            state: "How long does it take?",
            questions: { a: { type: "noul", criteria: "Is it?" }, b: { type: "choice", criteria: ["x", "y", "z"] } },
          };
          globalThis.plain = async () => {
            const before = performance.now();
            await engine.decide(request);
            return performance.now() - before;
          };
        }"""
    )
    ours, theirs = python.run(
        """
        import js
        from time import perf_counter
        questions = {"a": Noul("Is it?"), "b": Choice("", ["x", "y", "z"])}
        ours, theirs = [], []
        for _ in range(60):
            before = perf_counter()
            await engine.decide(js.request.state, questions)
            ours.append((perf_counter() - before) * 1000)
            theirs.append(await js.plain())
        json.dumps([ours, theirs])
        """
    )
    added = statistics.median(ours) - statistics.median(theirs)
    print(f"decide: {statistics.median(theirs):.1f} ms in JavaScript, {added:.1f} ms more from Python")
    assert added < 30


COUNTS = "() => [python._module.pyproxy_alloc_map.size, python._module.hiwire.num_keys()]"
"""Proxies of Python, and references to JavaScript."""


def test_nothing_is_left_behind(python: Python) -> None:
    code = """
        async def use(times):
            for i in range(times):
                await engine.decide(f"Text {i % 7}", QUESTIONS, on_answer=lambda id, answer: None)
                if i % 10 == 0:
                    async for _ in engine.stream("A stream", QUESTIONS):
                        pass
                    try:
                        await engine.decide("x " * 9000, QUESTIONS)
                    except TooLongError:
                        pass
                    work = asyncio.ensure_future(engine.decide(f"Left {i}", QUESTIONS, on_answer=print))
                    await asyncio.sleep(0)
                    work.cancel()
                    frame = Frame({"text": [f"Row {i}", "", "x " * 9000, None]})
                    await engine.decide_frame(frame, "text", QUESTIONS, on_row=lambda *counts: None)
                    typedecide.browser.offer(js.engine)
                    async with await typedecide.browser.connect() as lent:
                        await lent.decide("A text", QUESTIONS)
                    typedecide.browser.offer(None)
        await use(times)
        # What was cancelled is over once a later call is answered.
        await engine.decide("The last one", QUESTIONS)
        await asyncio.sleep(0.05)
        gc.collect()
        None
        """
    python.run(code, times=11)
    before = python.javascript(COUNTS)
    python.run(code, times=500)
    after = python.javascript(COUNTS)
    print(f"proxies of Python and references to JavaScript: {before} before 500 calls, {after} after")
    assert after == before
    assert python.complaints == []


def test_connecting_leaves_nothing_behind(python: Python) -> None:
    code = """
        def fail(told):
            raise KeyError(told["phase"])

        async def load(times):
            for _ in range(times):
                told = []
                async with await typedecide.browser.connect(device="wasm", on_progress=told.append) as own:
                    await own.decide("A text", QUESTIONS)
                assert told[-1]["phase"] == "ready", told
                try:
                    await typedecide.browser.connect(device="wasm", on_progress=fail)
                    raise AssertionError("the callback's error is gone")
                except KeyError as error:
                    assert error.args == (told[0]["phase"],), error
                try:
                    await typedecide.browser.connect(device="tpu", on_progress=told.append)
                    raise AssertionError("there is no such device")
                except UnsupportedError:
                    pass
                begun = asyncio.Event()
                loading = asyncio.ensure_future(
                    typedecide.browser.connect(device="wasm", on_progress=lambda told: begun.set()))
                await begun.wait()
                loading.cancel()
                await asyncio.wait([loading])
                assert loading.cancelled()

        await load(times)
        None
        """
    workers = len(python.page.workers)

    def left(times: int) -> list[int]:
        """What there is after so many times, once the workers of those that were cancelled are gone."""
        python.run(code, times=times)
        deadline = time.monotonic() + 60
        while len(python.page.workers) > workers:
            assert time.monotonic() < deadline
            python.run("await asyncio.sleep(0.1)\nNone")
        python.run("await asyncio.sleep(0.1)\ngc.collect()\nNone")
        counts: list[int] = python.javascript(COUNTS)
        return counts

    before = left(1)
    assert left(3) == before
    assert python.complaints == []


LATE = """
import { createEngine as create } from "../index.js";
export * from "../index.js";
globalThis.late = Promise.withResolvers();
// As the engine itself, where an abort comes when it is loaded already.
export async function createEngine({ signal, onProgress, ...options }) {
  onProgress({ phase: "download", message: "the first word" });
  const bundle = new URL("../", import.meta.url);
  const engine = await create({ ...options, bundle, onProgress });
  late.resolve(engine);
  return engine;
}
"""


def test_an_engine_that_comes_after_a_cancel_is_closed(python: Python) -> None:
    python.page.route(
        f"{python.url}late/index.js", lambda route: route.fulfill(body=LATE, content_type="text/javascript")
    )
    python.run(
        """
        told, begun = [], asyncio.Event()

        def tell(progress):
            told.append(progress)
            begun.set()

        loading = asyncio.ensure_future(typedecide.browser.connect("/late/", device="wasm", on_progress=tell))
        await begun.wait()
        loading.cancel()
        await asyncio.wait([loading])
        assert loading.cancelled()
        None
        """
    )
    outcome = python.javascript(
        """async () => {
          const engine = await late.promise;
          await python.runPythonAsync("await asyncio.sleep(0.1)");
          const question = { type: "noul", criteria: "Is it?" };
          const work = engine.decide({ state: "A text", questions: { question } });
          return work.then(() => engine.close(), ({ code, message }) => [code, message]);
        }"""
    )
    assert outcome == ["ABORTED", "the engine was closed"]
    # It was told of all that happened until then, and nothing complained of a callback that is no more.
    assert python.run("json.dumps(told[-1]['phase'])") == "ready"
    assert python.complaints == []


def test_an_offered_engine_is_taken_and_outlives_its_loan(python: Python) -> None:
    found = python.run(
        """
        import js
        typedecide.browser.offer(js.engine)
        try:
            async with await typedecide.browser.connect() as lent:
                one = await lent.decide("A text", QUESTIONS)
            async with await typedecide.browser.connect() as lent:
                two = await lent.decide("A text", QUESTIONS)
            try:
                await typedecide.browser.connect(threads=2)
                refused = None
            except UnsupportedError as error:
                refused = error.data
        finally:
            typedecide.browser.offer(None)
        json.dumps([one.answers == two.answers, refused])
        """
    )
    assert found == [True, {"threads": 2}]


def test_decide_frame_adds_columns(python: Python) -> None:
    found = python.run(
        """
        frame = Frame({"text": ["One text", None, "x " * 9000, "One text", ""], "n": [1, 2, 3, 4, 5]})
        rows = []
        done = await engine.decide_frame(frame, "text", QUESTIONS, on_row=lambda *counts: rows.append(counts))
        same = await engine.decide("One text", QUESTIONS)
        json.dumps([done.data, rows, same.answers["10"].answer.probabilities, list(frame.data)])
        """
    )
    data, rows, probabilities, before = found
    assert before == ["text", "n"]
    assert list(data)[:5] == ["text", "n", "fault", "10.answer", "10.confidence"]
    assert [data[f"10.p.{name}"][0] for name in ("billing", "shipping", "other")] == probabilities
    assert data["10.p.billing"][0] == data["10.p.billing"][3]
    assert [data["angry.answer"][i] for i in (1, 2, 4)] == [None] * 3
    assert data["fault"][1] == "is not a text but None" and "tokens" in data["fault"][2]
    assert data["fault"][4] == "the text is blank"
    assert [data["fault"][i] for i in (0, 3)] == [None] * 2
    assert rows == [[i, 5] for i in range(1, 6)]


def test_a_shallow_model_says_so_in_every_answer(python: Python, dist_pointer_shallow: Path) -> None:
    with StaticServer(dist_pointer_shallow, headers=READABLE) as server:
        answers, column, shallow, info = python.run(
            """
            async with await typedecide.browser.connect(url, device="wasm") as half:
                done = await half.decide("My card was charged twice.", QUESTIONS)
                frame = await half.decide_frame(Frame({"text": ["One text", ""]}), "text", QUESTIONS)
                info = half.info
            whole = await engine.decide("My card was charged twice.", QUESTIONS)
            assert not any("x_shallow" in one.to_dict() for one in whole.answers.values())
            json.dumps([
                {id: answer.to_dict() for id, answer in done.answers.items()},
                frame.data["angry.x_shallow"],
                done.answers["10"].shallow.to_dict(),
                info["shallow"],
            ])
            """,
            url=server.url,
        )
    said = {"k": 2, "anchor": "instruction", "agreement": None}
    assert shallow == said and column == [json.dumps(said), None]
    assert info == {"layers": 3, **said}
    with NativeEngine(dist_pointer_shallow) as engine:
        theirs = engine.decide("My card was charged twice.", QUESTIONS).answers
    assert list(answers) == list(theirs)
    for id, one in theirs.items():
        assert answers[id]["x_shallow"] == one.to_dict()["x_shallow"] == said
        assert answers[id]["probabilities"] == pytest.approx(one.answer.probabilities, abs=1e-5)
