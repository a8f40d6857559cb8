"""`python -m typedecide serve` over real sockets: answers, refusals, who may ask, how many at a time, and its end."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bench.__main__ import main as bench
from bench.compat import serving
from tests.test_page_engine import descendants
from tests.vector_checks import load
from typedecide import AbortedError, Noul, parse_questions
from typedecide.native import NativeEngine
from typedecide.server import MAX_BODY, Access

ROOT = Path(__file__).resolve().parent.parent
STATE = "I was charged twice and want my money back."
QUESTIONS: dict[str, Any] = {
    "refund": {"type": "noul", "instructions": "Does the customer want money back?"},
    "10": {"type": "choice", "criteria": {"10": "ten", "2": None, "x": ""}},
    "2": {"type": "score", "criteria": ["calm", {"label": "angry"}]},
}
KEY = "open-sesame"
# A hundred runs of the tiny model: seconds.
MANY: dict[str, Any] = {
    f"q{i}": {"type": "choice", "criteria": {f"{i} {j}": "an option of some length" * 3 for j in range(12)}}
    for i in range(100)
}


class Reply(NamedTuple):
    """A whole answer."""

    status: int
    headers: http.client.HTTPMessage
    text: str

    @property
    def body(self) -> Any:
        return json.loads(self.text)


class Server(NamedTuple):
    """A server in a process of its own."""

    process: subprocess.Popen[str]
    port: int

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def ask(
        self, path: str, body: str | bytes | None = None, method: str | None = None, **headers: str
    ) -> Reply:
        """One request; an underscore in a header's name stands for a hyphen."""
        connection = self.connect()
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            data = body.encode() if isinstance(body, str) else body
            connection.request(method or ("GET" if body is None else "POST"), path, data, named)
            response = connection.getresponse()
            return Reply(response.status, response.headers, response.read().decode())
        finally:
            connection.close()

    def decide(self, questions: Any = QUESTIONS, state: Any = STATE, **headers: str) -> Reply:
        return self.ask("/v1/systemone", json.dumps({"state": state, "questions": questions}), **headers)


@contextmanager
def running(bundle: Path, *arguments: str, key: str = "") -> Iterator[Server]:
    """A server with one thread on a free port, until the block ends."""
    with serving(bundle, "--threads", "1", *arguments, key=key) as (process, url):
        yield Server(process, int(url.rsplit(":", 1)[1]))


@pytest.fixture(scope="module")
def server(dist_pointer: Path) -> Iterator[Server]:
    """One that only this machine may ask, and one request waits at most."""
    with running(dist_pointer, "--queue", "1") as started:
        yield started


@pytest.fixture(scope="module")
def guarded(dist_pointer: Path) -> Iterator[Server]:
    """One with a key, that pages of one site may ask and that has another name."""
    options = ("--allow-origin", "https://app.example", "--allow-host", "decide.example")
    with running(dist_pointer, *options, key=KEY) as started:
        yield started


def test_answers_are_the_engines(server: Server, dist_pointer: Path) -> None:
    reply = server.decide()
    assert reply.status == 200 and reply.headers["Content-Type"] == "application/json"
    assert reply.headers["Cache-Control"] == "no-store"
    with NativeEngine(dist_pointer, threads=1) as engine:
        plain = {**QUESTIONS, "2": {"type": "score", "criteria": ["calm", '{"label": "angry"}']}}
        done = engine.decide(STATE, parse_questions(plain))
    answers = reply.body["answers"]
    assert answers["refund"]["noul"] == pytest.approx(done.answers["refund"].answer.value, abs=1e-6)
    spread = {"10": dict(zip(("10", "2", "x"), done.answers["10"].answer.probabilities, strict=True))}
    assert answers["10"]["probabilities"] == pytest.approx(spread["10"], abs=1e-6)
    assert answers["2"]["legend"] == {"0": "calm", "1": {"label": "angry"}}
    assert list(answers) == list(QUESTIONS) and list(answers["10"]["probabilities"]) == ["10", "2", "x"]
    assert reply.body["usage"] == {"input_tokens": done.prefill.tokens + done.tokens_run, "output_tokens": 0}


def test_invalid_requests_are_422_and_never_5xx(server: Server) -> None:
    invalid = [case for case in load("systemone.json")["requests"] if "error" in case]
    assert len(invalid) > 60
    for case in invalid:
        reply = server.ask("/v1/systemone", case["body"])
        assert reply.status == 422, (case["name"], reply)
        for fault in reply.body["detail"]:
            assert fault["loc"][0] == "body" and fault["msg"] and fault["type"], case["name"]
    assert server.ask("/v1/systemone", b"\xff\xfe").status == 422
    assert server.decide().status == 200


def test_what_does_not_fit_is_413_with_both_lengths(server: Server) -> None:
    reply = server.decide(state="word " * 5000)
    detail = reply.body["detail"]
    assert reply.status == 413 and detail["error_type"] == "max_tokens_exceeded"
    assert detail["x_tokens"] > detail["x_limit"] == 4096
    wide = {"q": {"type": "choice", "criteria": {f"{i} " * 20: None for i in range(255)}}}
    reply = server.decide(wide)
    assert reply.status == 413 and reply.body["detail"]["x_tokens"] > 4096


@pytest.mark.parametrize("chunked", (False, True))
def test_a_body_beyond_the_limit_is_not_read(server: Server, chunked: bool) -> None:
    connection = server.connect()
    connection.putrequest("POST", "/v1/systemone")
    if chunked:
        connection.putheader("Transfer-Encoding", "chunked")
        connection.endheaders()
        piece = b" " * 2**18
        for _ in range(MAX_BODY // len(piece) + 1):
            connection.send(b"%x\r\n%s\r\n" % (len(piece), piece))
    else:
        connection.putheader("Content-Length", str(MAX_BODY + 1))
        connection.endheaders()
    response = connection.getresponse()
    body = json.loads(response.read())
    connection.close()
    assert (response.status, body["detail"]["error_type"]) == (413, "request_too_large")
    assert body["detail"]["x_limit"] == MAX_BODY


def test_compressed_bodies_are_refused(server: Server) -> None:
    reply = server.ask("/v1/systemone", b"\x28\xb5\x2f\xfd", Content_Encoding="zstd")
    assert (reply.status, reply.body["detail"]["error_type"]) == (415, "unsupported_media_type")


DECISIONS: list[dict[str, Any]] = [
    {"type": "predicate", "name": "refund", "instructions": "Does the customer want money back?"},
    {"type": "choice", "choices": [{"value": True}, {"value": "no", "description": "or later"}]},
    {
        "type": "score",
        "name": "anger",
        "instructions": "How angry?",
        "levels": [{"label": "calm", "description": "polite"}, {"label": "angry"}],
    },
]


def test_openai_decisions_are_the_same_answers(server: Server) -> None:
    message = {"role": "user", "content": [{"type": "input_text", "text": STATE}]}
    asked = {"model": "jev-latest", "questions": DECISIONS, "safety_identifier": "x"}
    replies = [
        server.ask("/v1/decisions", json.dumps({**asked, "input": text}))
        for text in (STATE, [message], [{"role": "user", "content": STATE}])
    ]
    assert [reply.status for reply in replies] == [200, 200, 200]
    predicate, choice, score = replies[0].body["answers"]
    assert all(reply.body["answers"] == replies[0].body["answers"] for reply in replies)
    plain = server.decide(
        {
            "a": {"type": "noul", "instructions": "Does the customer want money back?"},
            "b": {"type": "choice", "criteria": {"true": None, "no": "or later"}},
            "c": {"type": "score", "instructions": "How angry?", "criteria": ["calm: polite", "angry"]},
        }
    ).body["answers"]
    beyond = {name: value for name, value in predicate.items() if name.startswith("x_")}
    assert predicate == {
        "type": "predicate",
        "name": "refund",
        "probability": plain["a"]["noul"],
        **beyond,
    }
    assert beyond == {name: plain["a"][name] for name in ("x_orderings_used", "x_flip_rate")}
    p, q = plain["b"]["probabilities"].values()
    spread = [{"value": True, "probability": p}, {"value": "no", "probability": q}]
    assert choice["name"] is None and choice["choice"] == (True if p > q else "no")
    assert (choice["probabilities"], choice["confidence"]) == (spread, plain["b"]["confidence"])
    low, high = plain["c"]["probabilities"].values()
    assert score["probabilities"] == [
        {"value": 0, "label": "calm", "probability": low},
        {"value": 1, "label": "angry", "probability": high},
    ]
    assert (score["score"], score["name"]) == (plain["c"]["score"], "anger")
    usage = replies[1].body["usage"]
    assert (
        usage["input_tokens"] == usage["total_tokens"] and usage["input_tokens_details"]["cached_tokens"] > 20
    )


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"questions": None}, "questions"),
        ({"questions": {}}, "questions"),
        ({"questions": []}, "questions"),
        ({"questions": [DECISIONS[0], {"type": "noul", "instructions": "?"}]}, "questions[1]"),
        ({"questions": [DECISIONS[0], {"type": "choice", "choices": ["a", "b"]}]}, "questions[1]"),
        ({"questions": [{"type": "choice", "choices": [{"value": "a"}, {"value": 3}]}]}, "questions[0]"),
        (
            {"questions": [{"type": "choice", "choices": [{"value": True}, {"value": "true"}]}]},
            "questions[0]",
        ),
        ({"questions": [{"type": "score", "levels": [{"label": "a"}]}]}, "questions[0]"),
        (
            {"questions": [{"type": "score", "levels": [{"label": "a"}, {"description": "b"}]}]},
            "questions[0]",
        ),
        ({"questions": [{"type": "choice", "choices": [{"value": "a", "description": 3}]}]}, "questions[0]"),
        ({"questions": [{"type": "predicate"}]}, "questions[0]"),
        ({"input": 3}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_text", "text": 3}]}]}, "input"),
        ({"input": [{"role": "user"}]}, "input"),
        ({"input": ["x"]}, "input"),
        ({"input": [{"role": "system", "content": "x"}]}, "input"),
        ({"input": "\ud800"}, "input"),
        ({"model": 3}, "model"),
    ],
)
def test_invalid_decisions_are_400(server: Server, change: dict[str, Any], param: str) -> None:
    body = json.dumps({"input": STATE, "questions": DECISIONS, **change})
    reply = server.ask("/v1/decisions", body)
    error = reply.body["error"]
    assert (reply.status, error["type"], error["param"]) == (400, "invalid_request_error", param)


def test_other_errors_of_decisions(server: Server) -> None:
    for body in ("[]", "{", '{"questions": []}'):
        assert server.ask("/v1/decisions", body).status == 400
    for change, status, code in (
        ({"model": "gpt"}, 404, "not_found"),
        ({"input": "word " * 5000}, 413, "max_tokens_exceeded"),
    ):
        reply = server.ask("/v1/decisions", json.dumps({"input": STATE, "questions": DECISIONS, **change}))
        assert (reply.status, reply.body["error"]["code"]) == (status, code)


def test_refusals_have_the_shape_of_their_path(server: Server, guarded: Server) -> None:
    for reply, status in (
        (server.ask("/v1/decisions", "{}", Origin="https://evil.example"), 403),
        (server.ask("/v1/decisions"), 405),
        (server.ask("/v1/decisions", "{}", Host="evil.example"), 421),
        (guarded.ask("/v1/decisions", "{}"), 401),
    ):
        assert (reply.status, [*reply.body]) == (status, ["error"])


def test_an_approximation_is_marked_on_every_wire(dist_pointer_shallow: Path) -> None:
    with running(dist_pointer_shallow) as shallow:
        answers = [*shallow.decide().body["answers"].values()]
        body = json.dumps({"input": STATE, "questions": DECISIONS})
        answers += shallow.ask("/v1/decisions", body).body["answers"]
    assert len(answers) == 6
    for answer in answers:
        assert set(answer["x_shallow"]) == {"k", "anchor", "agreement"}, answer


def test_models_and_unknown_ones(server: Server) -> None:
    models = server.ask("/v1/models").body["models"]
    assert [model["name"] for model in models] == ["tiny-pointer-model", "jev-latest"]
    for name, status in (("tiny-pointer-model", 200), ("jev-latest", 200), ("gpt", 404)):
        body = json.dumps({"model": name, "state": STATE, "questions": {"a": QUESTIONS["refund"]}})
        assert server.ask("/v1/systemone", body).status == status


@pytest.mark.parametrize(
    "path",
    ("/", "/v1", "/v1/systemone/", "//v1/systemone", "/../v1/models", "/v1/../../etc/passwd", "/%2e%2e/x"),
)
def test_nothing_else_is_there(server: Server, path: str) -> None:
    reply = server.ask(path)
    assert (reply.status, reply.body["detail"]["error_type"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("path", "method", "allowed"),
    [
        ("/v1/systemone", "GET", "POST"),
        ("/v1/systemone", "PUT", "POST"),
        ("/v1/models", "DELETE", "GET, HEAD"),
    ],
)
def test_other_methods_are_405(server: Server, path: str, method: str, allowed: str) -> None:
    reply = server.ask(path, method=method)
    assert (reply.status, reply.headers["Allow"]) == (405, allowed)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST.:1", 200),
        ("[::1]:8787", 200),
        ("127.3.2.1", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("192.168.1.5", 421),
        ("", 421),
    ],
)
def test_only_names_of_this_machine_are_answered(server: Server, host: str, status: int) -> None:
    for path in ("/v1/models", "/health"):
        assert server.ask(path, Host=host).status == status


def test_pages_of_other_sites_may_not_ask(server: Server) -> None:
    for origin in ("https://evil.example", "null", f"http://127.0.0.1:{server.port}"):
        reply = server.decide(Origin=origin)
        assert reply.status == 403 and "Access-Control-Allow-Origin" not in reply.headers
    reply = server.ask("/v1/systemone", method="OPTIONS", Origin="https://evil.example")
    assert reply.status == 403


def test_addresses_are_answered_beyond_this_machine_and_names_only_when_allowed() -> None:
    access = Access(loopback=False, hosts=("Decide.example",))
    for host in ("192.168.1.5:80", "[fe80::1]", "decide.example", "decide.example.:80", "localhost"):
        assert access.refusal(host, None) is None, host
    for host in ("evil.example", "192.168.1.5.evil.example", "decide.example.evil.example"):
        refusal = access.refusal(host, None)
        assert refusal is not None and refusal.status == 421, host
    assert Access(hosts=("*",)).refusal("any.example", None) is None
    assert Access(origins=("*",)).refusal(None, "https://any.example") is None


def test_a_key_is_asked_for(guarded: Server) -> None:
    for path in ("/v1/models", "/v1/systemone", "/v1/other"):
        for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": KEY}, {"x_api_key": KEY}):
            reply = guarded.ask(path, **header)
            assert (reply.status, reply.body["detail"]["error_type"]) == (401, "authentication_error")
    assert guarded.ask("/v1/models", Authorization=f"Bearer {KEY}").status == 200
    assert guarded.decide(Authorization=f"bearer {KEY}").status == 200
    assert guarded.ask("/health").body == {"status": "ok", "model": "tiny-pointer-model", "pending": 0}


def test_an_allowed_site_and_name(guarded: Server) -> None:
    site = "https://app.example"
    asked = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "authorization,x-y"}
    preflight = guarded.ask("/v1/systemone", method="OPTIONS", Origin=site, **asked)
    assert preflight.status == 200 and "authorization" in preflight.headers["Access-Control-Allow-Headers"]
    for reply in (guarded.decide(Origin=site), guarded.decide(Origin=site, Authorization=f"Bearer {KEY}")):
        assert reply.headers["Access-Control-Allow-Origin"] == site
    assert guarded.ask("/health", Origin="https://other.example").status == 403
    assert guarded.ask("/health", Host="decide.example:443").status == 200
    assert guarded.ask("/health", Host="other.example").status == 421


def send(server: Server, questions: Any) -> socket.socket:
    """A request that is sent, and whose answer nobody has waited for yet."""
    body = json.dumps({"state": STATE, "questions": questions}).encode()
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    head = f"POST /v1/systemone HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection


def soon(happens: Callable[[], bool]) -> bool:
    """Whether it happens within some seconds."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if happens():
            return True
        time.sleep(0.05)
    return False


def test_too_many_are_told_to_come_back_and_who_leaves_makes_room(server: Server) -> None:
    began = time.monotonic()
    assert server.decide(MANY).status == 200
    alone = time.monotonic() - began
    running, waiting = send(server, MANY), send(server, MANY)
    assert soon(lambda: server.ask("/health").body["pending"] == 2)
    reply = server.decide()
    assert (reply.status, reply.headers["Retry-After"]) == (429, "1")
    assert reply.body["detail"]["error_type"] == "rate_limit_error"
    began = time.monotonic()
    running.close()
    waiting.close()
    assert soon(lambda: server.ask("/health").body["pending"] == 0)
    assert server.decide().status == 200
    left = time.monotonic() - began
    print(f"{alone:.2f} s alone, {left:.2f} s until the next answer after both had left")
    assert left < alone


def test_work_stops_before_its_next_run(dist_pointer: Path) -> None:
    asked = 0

    def give_up() -> bool:
        nonlocal asked
        asked += 1
        return asked > 3

    with NativeEngine(dist_pointer, threads=1) as engine:
        with pytest.raises(AbortedError):
            engine.decide(STATE, parse_questions(MANY), aborted=give_up)
        assert asked == 4
        noul = Noul("Does the customer want money back?")
        again = engine.decide(STATE, {"a": noul}, aborted=lambda: False).answers["a"].answer
        fresh = engine.score_full(STATE, noul, "pointer").answer
    assert again.probabilities == pytest.approx(fresh.probabilities, abs=1e-5)


@pytest.mark.parametrize(("number", "busy"), [(signal.SIGINT, False), (signal.SIGTERM, True)])
def test_ends_cleanly_also_in_the_middle_of_an_answer(
    dist_pointer: Path, number: signal.Signals, busy: bool
) -> None:
    with running(dist_pointer) as started:
        if busy:
            connection = send(started, {f"{i} {key}": one for i in range(8) for key, one in MANY.items()})
            assert soon(lambda: started.ask("/health").body["pending"] == 1)
        began = time.monotonic()
        started.process.send_signal(number)
        assert started.process.wait(timeout=30) == 0
        assert time.monotonic() - began < 15
        if busy:
            assert connection.recv(12) in (b"HTTP/1.1 503", b"HTTP/1.1 200")
        assert started.process.stdout is not None and started.process.stdout.read().endswith("Stopped.\n")
        if busy:
            connection.close()


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("nowhere",), 2, "nowhere"),
        (("{bundle}", "--device", "wasm"), 2, "only --engine page has devices"),
        (("{bundle}", "--port", "{taken}"), 1, "Cannot listen on 127.0.0.1"),
        (("{bundle}", "--readout", "labels", "--calibration", "nowhere.json"), 2, "nowhere.json"),
        (("{bundle}", "--format", "int3"), 2, "int3"),
    ],
)
def test_what_cannot_be_served_is_said(
    dist_pointer: Path, arguments: tuple[str, ...], status: int, words: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        given = [one.format(bundle=dist_pointer, taken=taken.getsockname()[1]) for one in arguments]
        command = [sys.executable, "-m", "typedecide", "serve", *given]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status and words in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.browser
def test_through_the_page(dist_pointer: Path, server: Server) -> None:
    with running(dist_pointer, "--engine", "page", "--device", "wasm") as paged:
        first, native = paged.decide(), server.decide()
        assert first.status == 200
        spread, wanted = (one.body["answers"]["10"]["probabilities"] for one in (first, native))
        assert spread == pytest.approx(wanted, abs=1e-4) and list(spread) == ["10", "2", "x"]
        began = time.monotonic()
        many = dict(islice(MANY.items(), 15))
        assert paged.decide(many).status == 200
        alone = time.monotonic() - began
        send(paged, {**many, "again": QUESTIONS["2"]}).close()
        began = time.monotonic()
        assert paged.decide().status == 200
        assert time.monotonic() - began < alone
        for pid in descendants(paged.process.pid):
            if "chrom" in Path(f"/proc/{pid}/comm").read_text("utf-8"):
                os.kill(pid, signal.SIGKILL)
                break
        reply = paged.decide()
        assert (reply.status, reply.body["detail"]["x_code"]) == (500, "DEVICE_LOST")
        assert paged.ask("/health").status == 503
        # Whoever asks next has another browser.
        again = paged.decide()
        assert again.status == 200 and again.body["answers"] == first.body["answers"]
        assert paged.ask("/health").status == 200


@pytest.mark.browser
@pytest.mark.parametrize("device", ("native", "wasm"))
def test_conforms_to_the_specification(dist_fp32_4l: Path, tmp_path: Path, device: str) -> None:
    report = tmp_path / "report.json"
    common = ("--device", device, "--format", "fp32", "--threads", "2", "--json", str(report))
    assert bench(["compat", "--quick", "--bundle", str(dist_fp32_4l), *common]) == 0
    (one,) = json.loads(report.read_text("utf-8"))["runs"]
    assert (one["MUST"]["passed"], one["SHOULD"]["passed"]) == (32, 15)
    skipped = [id for id, requirement in one["results"].items() if requirement["status"] != "pass"]
    assert skipped == ["auth.ignored-when-off"]  # that one is for servers without a key


def test_a_server_that_does_not_conform_fails(dist_pointer: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Its context is too short for 255 options.
    assert bench(["compat", "--quick", "--format", "fp32", "--bundle", str(dist_pointer), "--json", "-"]) == 1
    captured = capsys.readouterr()
    assert "NOT_CONFORMANT: not passed: choice.options" in captured.err
    assert json.loads(captured.out)["runs"][0]["not_passed"] == ["choice.options"]
