"""The static server and `python -m pybuild serve`, over real sockets: headers, ranges, and what must be refused."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from pybuild import serve
from typedecide.errors import BundleError, UnsupportedError
from typedecide.static_server import StaticServer

ROOT = Path(__file__).resolve().parent.parent
BYTES = bytes(range(256)) * 40


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder like a bundle's, beside a file that is nobody's business."""
    (tmp_path / "secret.txt").write_text("secret")
    root = tmp_path / "site"
    (root / "app" / "sub").mkdir(parents=True)
    (root / "index.html").write_text("<!doctype html><title>t</title>")
    (root / "app" / "index.html").write_text("<!doctype html><title>app</title>")
    (root / "data.bin").write_bytes(BYTES)
    (root / "empty.bin").write_bytes(b"")
    (root / "grüße 100%.txt").write_text("hello")
    for suffix in ("js", "mjs", "wasm", "json", "onnx", "gz", "css", "svg"):
        (root / f"f.{suffix}").write_bytes(b"x")
    return root


@pytest.fixture
def server(site: Path) -> Iterator[StaticServer]:
    with StaticServer(site) as running:
        yield running


class Reply:
    """A whole answer: status, headers, body."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()


def ask(server: StaticServer, path: str, method: str = "GET", **headers: str) -> Reply:
    """One request; an underscore in a header's name stands for a hyphen."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=10)
    try:
        connection.request(
            method, path, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )
        return Reply(connection.getresponse())
    finally:
        connection.close()


def raw(server: StaticServer, request: bytes) -> bytes:
    """The bytes that answer bytes which no client library would send."""
    with socket.create_connection((server.host, server.port), timeout=10) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
        return answer


def test_files_come_whole_with_every_header(server: StaticServer) -> None:
    reply = ask(server, "/data.bin?v=1")
    assert (reply.status, reply.body) == (200, BYTES)
    assert reply.headers["Content-Length"] == str(len(BYTES))
    assert reply.headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert reply.headers["Cross-Origin-Embedder-Policy"] == "require-corp"
    assert reply.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert reply.headers["Cache-Control"] == "no-cache"
    assert reply.headers["Accept-Ranges"] == "bytes"


def test_without_isolation_the_two_headers_are_absent(site: Path) -> None:
    with StaticServer(site, isolated=False) as server:
        reply = ask(server, "/")
    assert reply.status == 200
    assert "Cross-Origin-Opener-Policy" not in reply.headers
    assert "Cross-Origin-Embedder-Policy" not in reply.headers


@pytest.mark.parametrize(
    ("path", "content_type"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/f.js", "text/javascript; charset=utf-8"),
        ("/f.mjs", "text/javascript; charset=utf-8"),
        ("/f.wasm", "application/wasm"),
        ("/f.json", "application/json"),
        ("/f.css", "text/css; charset=utf-8"),
        ("/f.svg", "image/svg+xml"),
        ("/f.onnx", "application/octet-stream"),
        ("/data.bin", "application/octet-stream"),
        ("/f.gz", "application/gzip"),
    ],
)
def test_types_are_fixed(server: StaticServer, path: str, content_type: str) -> None:
    reply = ask(server, path)
    assert (reply.status, reply.headers["Content-Type"]) == (200, content_type)
    assert "Content-Encoding" not in reply.headers


def test_head_has_the_headers_and_no_body(server: StaticServer) -> None:
    reply = ask(server, "/data.bin", "HEAD")
    assert (reply.status, reply.headers["Content-Length"], reply.body) == (200, str(len(BYTES)), b"")
    assert raw(server, b"HEAD /none HTTP/1.0\r\n\r\n").endswith(b"\r\n\r\n")


def test_names_are_decoded(server: StaticServer) -> None:
    assert ask(server, "/gr%C3%BC%C3%9Fe%20100%25.txt").body == b"hello"


def test_a_folder_gets_its_slash_and_its_index(server: StaticServer) -> None:
    reply = ask(server, "/app?x=1")
    assert (reply.status, reply.headers["Location"]) == (301, "/app/?x=1")
    assert b"app" in ask(server, "/app/").body
    assert ask(server, "/app/sub/").status == 404
    # The answer must not name another host, whatever the number of slashes.
    assert ask(server, "//app").headers["Location"] == "/app/"


@pytest.mark.parametrize(
    ("asked", "start", "stop"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=10-19", 10, 20),
        ("bytes=10000-", 10000, len(BYTES)),
        ("bytes=-5", len(BYTES) - 5, len(BYTES)),
        ("bytes=-99999999", 0, len(BYTES)),
        (f"bytes=5-{10**17}", 5, len(BYTES)),
    ],
)
def test_single_ranges(server: StaticServer, asked: str, start: int, stop: int) -> None:
    reply = ask(server, "/data.bin", Range=asked)
    assert (reply.status, reply.body) == (206, BYTES[start:stop])
    assert reply.headers["Content-Range"] == f"bytes {start}-{stop - 1}/{len(BYTES)}"


@pytest.mark.parametrize(
    "asked", ["bytes=0-1,4-5", "bytes=9-3", "bytes=-", "lines=0-1", "bytes=a-b", "bytes=0-" + "9" * 5000]
)
def test_other_ranges_give_the_whole_file(server: StaticServer, asked: str) -> None:
    reply = ask(server, "/data.bin", Range=asked)
    assert (reply.status, reply.body) == (200, BYTES)


@pytest.mark.parametrize(
    ("path", "asked", "size"),
    [
        ("/data.bin", f"bytes={len(BYTES)}-", len(BYTES)),
        ("/data.bin", "bytes=-0", len(BYTES)),
        ("/empty.bin", "bytes=0-", 0),
        ("/empty.bin", "bytes=-3", 0),
    ],
)
def test_a_range_outside_is_refused(server: StaticServer, path: str, asked: str, size: int) -> None:
    reply = ask(server, path, Range=asked)
    assert (reply.status, reply.headers["Content-Range"]) == (416, f"bytes */{size}")


def test_a_download_goes_on_only_with_the_same_file(server: StaticServer, site: Path) -> None:
    tag = ask(server, "/data.bin").headers["ETag"]
    assert ask(server, "/data.bin", Range="bytes=4-", If_Range=tag).status == 206
    (site / "data.bin").write_bytes(b"another file")
    reply = ask(server, "/data.bin", Range="bytes=4-", If_Range=tag)
    assert (reply.status, reply.body) == (200, b"another file")


def test_etag_spares_a_transfer_until_the_file_changes(server: StaticServer, site: Path) -> None:
    tag = ask(server, "/data.bin").headers["ETag"]
    for header in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        reply = ask(server, "/data.bin", If_None_Match=header)
        assert (reply.status, reply.body, reply.headers["ETag"]) == (304, b"", tag)
    assert ask(server, "/data.bin", If_None_Match='"other"').status == 200
    (site / "data.bin").write_bytes(BYTES[::-1])
    assert ask(server, "/data.bin", If_None_Match=tag).body == BYTES[::-1]


@pytest.mark.parametrize(
    "path",
    [
        "/none.js",
        "/../secret.txt",
        "/app/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/app/%2e%2e/%2e%2e/secret.txt",
        "/index.html/more",
        "/" + "x" * 5000,
    ],
)
def test_nothing_outside_the_folder_is_found(server: StaticServer, path: str) -> None:
    reply = ask(server, path)
    assert reply.status == 404
    assert b"secret\n" not in reply.body


@pytest.mark.parametrize("path", ["/a%00b", "/..%5csecret.txt", "/%ff%fe", "index.html", "*"])
def test_what_is_no_path_is_refused(server: StaticServer, path: str) -> None:
    answer = raw(server, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 400 ")


def test_links_are_followed_inside_the_folder_only(server: StaticServer, site: Path, tmp_path: Path) -> None:
    (site / "inside.html").symlink_to(site / "index.html")
    (site / "out.txt").symlink_to(tmp_path / "secret.txt")
    (site / "outside").symlink_to(tmp_path, target_is_directory=True)
    (site / "loop").symlink_to(site / "loop")
    assert ask(server, "/inside.html").status == 200
    for path in ("/out.txt", "/outside/secret.txt", "/outside/", "/outside", "/loop"):
        assert ask(server, path).status == 404, path


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1", "[::2]", ""]
)
def test_a_foreign_name_is_refused(server: StaticServer, host: str) -> None:
    reply = ask(server, "/", Host=host)
    assert reply.status == 421
    assert b"title" not in reply.body


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "app.localhost:80", "127.0.0.1", "127.1.2.3:5", "[::1]:9"]
)
def test_loopback_names_are_served(server: StaticServer, host: str) -> None:
    assert ask(server, "/", Host=host).status == 200


def test_a_server_for_all_answers_to_all_names(site: Path) -> None:
    with StaticServer(site, "0.0.0.0") as server:
        assert ask(server, "/", Host="a.name.example").status == 200


def test_pages_of_other_origins_get_nothing_unless_they_may_read(server: StaticServer, site: Path) -> None:
    own = f"http://localhost:{server.port}"
    for origin, status in (("https://evil.example", 403), ("null", 403), (own, 200)):
        assert ask(server, "/", Host=f"localhost:{server.port}", Origin=origin).status == status
    with StaticServer(site, headers={"Access-Control-Allow-Origin": "*"}) as shared:
        assert ask(shared, "/", Origin="https://other.example").status == 200


def test_a_body_is_not_taken_for_the_next_request(server: StaticServer) -> None:
    inner = b"GET /app/ HTTP/1.1\r\nHost: localhost\r\n\r\n"
    outer = f"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(inner)}\r\n\r\n".encode()
    assert raw(server, outer + inner).count(b"HTTP/1.1 ") == 1


def test_host_may_be_missing_in_the_old_protocol_only(server: StaticServer) -> None:
    assert raw(server, b"GET / HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    assert raw(server, b"GET / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_only_reading_is_allowed(server: StaticServer, method: str) -> None:
    reply = ask(server, "/data.bin", method)
    assert (reply.status, reply.headers["Allow"]) == (405, "GET, HEAD")


def test_one_connection_serves_many_requests(server: StaticServer) -> None:
    connection = http.client.HTTPConnection(server.host, server.port, timeout=10)
    connection.connect()
    port = connection.sock.getsockname()[1]
    for path, status in (("/", 200), ("/none", 404), ("/data.bin", 200), ("/app", 301), ("/f.js", 200)):
        connection.request("GET", path)
        assert Reply(connection.getresponse()).status == status
        assert connection.sock.getsockname()[1] == port
    connection.close()


def test_a_slow_reader_holds_up_nobody(server: StaticServer, site: Path) -> None:
    size = 64 << 20
    with (site / "large.bin").open("wb") as stream:
        stream.truncate(size)
    with socket.create_connection((server.host, server.port), timeout=10) as slow:
        slow.sendall(b"GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n")
        replies: list[int] = []
        threads = [
            threading.Thread(target=lambda: replies.append(ask(server, "/data.bin").status))
            for _ in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert replies == [200] * 20
    # The reader left in the middle: the server must live on, and quietly (pytest reports errors of threads).
    assert ask(server, "/").status == 200


def test_a_file_cut_during_its_transfer_closes_the_connection(server: StaticServer, site: Path) -> None:
    size = 64 << 20
    with (site / "large.bin").open("wb") as stream:
        stream.truncate(size)
    with socket.create_connection((server.host, server.port), timeout=10) as connection:
        connection.sendall(b"GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n")
        received = len(connection.recv(1000))
        os.truncate(site / "large.bin", 1 << 20)
        while chunk := connection.recv(1 << 20):
            received += len(chunk)
    assert received < size


def test_after_the_end_nobody_answers(site: Path) -> None:
    with StaticServer(site) as server:
        assert ask(server, "/").status == 200
    with pytest.raises(ConnectionRefusedError):
        ask(server, "/")


def test_ipv6(site: Path) -> None:
    with StaticServer(site, "::1") as server:
        assert server.url == f"http://[::1]:{server.port}/"
        assert ask(server, "/").status == 200


def test_no_folder_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(BundleError) as caught:
        StaticServer(tmp_path / "none")
    assert caught.value.data == {"path": str(tmp_path / "none")}


# ---------------------------------------------------------------- the command

SERVE = (
    "import argparse, sys; from pybuild import serve; p = argparse.ArgumentParser();"
    "serve.add_parser(p.add_subparsers()); a = p.parse_args(); sys.exit(a.func(a))"
)


def start(*arguments: str) -> subprocess.Popen[str]:
    """The serve command in a process of its own, as far as its first two lines."""
    return subprocess.Popen(
        [sys.executable, "-c", SERVE, "serve", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_says_where_and_stops_cleanly(site: Path, number: signal.Signals) -> None:
    (site / "manifest.json").write_text("{}")
    process = start(str(site), "--port", "0")
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        port = int(line.strip().removesuffix("/").rpartition(":")[2])
        assert line == f"Serving {site} at http://127.0.0.1:{port}/\n"
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/manifest.json")
        assert Reply(connection.getresponse()).body == b"{}"
        connection.close()
        started = time.monotonic()
        process.send_signal(number)
        output, errors = process.communicate(timeout=20)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, errors) == (0, "")
    assert output.endswith("Stopped.\n")
    assert time.monotonic() - started < 5


def test_the_next_port_is_taken_and_named(site: Path) -> None:
    (site / "manifest.json").write_text("{}")
    with StaticServer(site) as first:
        process = start(str(site), "--port", str(first.port))
        try:
            assert process.stdout is not None
            lines = process.stdout.readline() + process.stdout.readline()
        finally:
            process.terminate()
            process.communicate(timeout=20)
    assert lines.startswith(f"Port {first.port} is taken: using ")
    assert f"at http://127.0.0.1:{first.port}/" not in lines


def eleven_ports(site: Path, held: ExitStack) -> int:
    """The first of eleven ports in a row, all of them now taken."""
    for first in range(20000, 60000, 100):
        with ExitStack() as tried, suppress(OSError):
            for port in range(first, first + 11):
                tried.enter_context(StaticServer(site, port=port))
            held.push(tried.pop_all())
            return first
    raise AssertionError("there are no eleven free ports in a row")


def test_eleven_taken_ports_are_an_error(site: Path) -> None:
    with ExitStack() as held:
        first = eleven_ports(site, held)
        with pytest.raises(UnsupportedError, match=f"{first} to {first + 10} are all taken") as caught:
            serve.bind(site, "127.0.0.1", first)
    assert caught.value.data == {"host": "127.0.0.1", "port": first}


def test_an_address_of_another_machine_is_an_error(site: Path) -> None:
    # 192.0.2.0/24 is for documentation: no machine has such an address, and nothing is sent to it.
    with pytest.raises(UnsupportedError, match=r"Cannot listen on 192\.0\.2\.1"):
        serve.bind(site, "192.0.2.1", 0)


def test_a_folder_without_manifest_is_an_error(site: Path) -> None:
    parser = ArgumentParser()
    serve.add_parser(parser.add_subparsers())
    args = parser.parse_args(["serve", str(site)])
    with pytest.raises(BundleError, match=r"no manifest\.json"):
        args.func(args)


@pytest.mark.parametrize("port", ["-1", "65536", "http", "8765 ", "٣"])
def test_a_bad_port_is_named(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = ArgumentParser()
    serve.add_parser(parser.add_subparsers())
    with pytest.raises(SystemExit):
        parser.parse_args(["serve", f"--port={port}"])
    assert "not a port from 0 to 65535" in capsys.readouterr().err
