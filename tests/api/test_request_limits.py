"""Claims about clients without a key: a real uvicorn, tested through sockets, with each of its parsers."""

import asyncio
import gc
import json
import logging
import resource
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

import httpx
import psycopg
import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from app import processes
from app.api.app import create_app
from app.api.envelope import refusal
from app.api.server import serving
from app.environment import child_environment
from app.serving.connection_limits import limits_of
from app.serving.http_protocol import ClientTimeouts, LimitedProtocol, limited, parsers
from app.settings import Settings
from testing.waiting import LIMIT_SECONDS, wait_for
from tests.clock import Clock

GET = b"GET /health HTTP/1.1\r\nhost: a\r\nconnection: close\r\n"
POST = "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer %s\r\ncontent-type: application/json\r\n"
CHUNKED = "transfer-encoding: chunked\r\n\r\n"
USUAL, *OTHERS = parsers()
SOON_SECONDS = 12.0  # for what takes a second or two, so that a fault is seen soon
Serve = Callable[..., Any]
Loop = Literal["auto", "asyncio"]


@contextmanager
def served(settings: Settings, base: type[LimitedProtocol], loop: Loop = "auto") -> Iterator[int]:
    """The port of an API with these settings."""
    options = serving(settings)
    options["http"] = limited(
        base, limits_of(settings, 1 << 20), ClientTimeouts(settings.header_seconds, settings.body_seconds), refusal
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(create_app(settings), loop=loop, **options))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        port = listener.getsockname()[1]
        httpx.get(f"http://127.0.0.1:{port}/health", timeout=LIMIT_SECONDS)
        try:
            yield port
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(
    params=[USUAL, *(pytest.param(other, marks=pytest.mark.slow) for other in OTHERS)], ids=lambda base: base.__name__
)
def serve(request: pytest.FixtureRequest, settings: Settings) -> Iterator[Serve]:
    """Starts an API with changed settings, on a kind of event loop; gives its port."""
    with ExitStack() as stack:
        yield lambda loop="auto", **changes: stack.enter_context(
            served(settings.model_copy(update=changes), request.param, loop)
        )


def connected(port: int, host: str = "127.0.0.1", seconds: float = LIMIT_SECONDS) -> socket.socket:
    """A connection from this loopback address, which waits for so long at most."""
    return socket.create_connection(("127.0.0.1", port), timeout=seconds, source_address=(host, 0))


def answer(sock: socket.socket) -> tuple[int, dict[str, Any]]:
    """Status and body of an answer that ends the connection."""
    raw = b""
    while block := sock.recv(65536):
        raw += block
    head, _, body = raw.partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    return int(head.split()[1]), json.loads(body)


def told(body: dict[str, Any]) -> str:
    return str(body["errors"][0]["message"])


def is_healthy(port: int, host: str = "127.0.0.1") -> bool:
    transport = httpx.HTTPTransport(local_address=host)
    with httpx.Client(transport=transport) as client:
        return client.get(f"http://127.0.0.1:{port}/health", timeout=LIMIT_SECONDS).status_code == 200


def is_closed(sock: socket.socket) -> bool:
    """Whether the other side closes it; waits for that."""
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    "begun",
    [GET + b"a: ", GET, b"GET /", b"0\r\na: ", b"1;"],
    ids=["one header", "headers", "url", "trailer", "extension of a chunk"],
)
def test_what_never_ends_is_refused_once_it_is_too_long(serve: Serve, key: str, begun: bytes) -> None:
    port = serve()
    with connected(port) as sock:
        if not begun.startswith(b"GET"):
            sock.sendall((POST % key + CHUNKED).encode())
        sock.sendall(begun + (b"b: c\r\n" * 9000 if begun == GET else b"x" * 54_000))
        status, body = answer(sock)
    assert status in (400, 431)
    assert "too long" in told(body) or status == 400
    assert is_healthy(port)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (GET + b"a: b\r\n" * 98 + b"\r\n", 200),
        (GET + b"a: b\r\n" * 99 + b"\r\n", 431),
        (GET + b"a: " + b"x" * 32_000 + b"\r\n\r\n", 200),
        (GET + b"a: " + b"x" * 32_768 + b"\r\n\r\n", 431),
        (b"GET /health?" + b"x" * 16_000 + b" HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", 200),
        (b"GET /health?" + b"x" * 17_000 + b" HTTP/1.1\r\nhost: a\r\n\r\n", 414),
    ],
    ids=["100 headers", "101 headers", "32,000 bytes", "more than 32 KB", "a long URL", "a URL too long"],
)
def test_a_complete_head_has_exact_bounds(serve: Serve, request_: bytes, status: int) -> None:
    with connected(serve()) as sock:
        sock.sendall(request_)
        assert (found := answer(sock))[0] == status, found


def test_two_hundred_megabytes_of_headers_do_not_stay_in_memory(serve: Serve) -> None:
    port, before = serve(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    block = b"x" * 2**20
    with connected(port) as sock, pytest.raises(OSError):
        sock.sendall(GET + b"a: ")
        for _ in range(200):
            sock.sendall(block)
        sock.settimeout(30)
        while sock.recv(65536):
            pass
        raise OSError  # all of it was thrown away
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024
    assert is_healthy(port)


def test_headers_that_do_not_end_in_time_are_answered_408(serve: Serve) -> None:
    port = serve(header_seconds=0.5)
    for begun in (b"", GET):
        with connected(port, seconds=SOON_SECONDS) as sock:
            sock.sendall(begun)
            status, body = answer(sock)
        assert status == 408
        assert "headers were not complete within 0.5 seconds" in told(body)


def test_a_body_that_stops_is_answered_408(serve: Serve, key: str) -> None:
    port = serve(body_seconds=1)
    head = POST % key + "content-length: 8\r\nconnection: close\r\n\r\n"
    with connected(port, seconds=SOON_SECONDS) as sock:
        sock.sendall(head.encode() + b"[")
        status, body = answer(sock)
    assert status == 408
    assert "Nothing of the request's body came for 1 seconds" in told(body)


@pytest.mark.slow
def test_a_body_that_goes_on_slowly_is_read(serve: Serve, key: str) -> None:
    port = serve(body_seconds=4)
    head = POST % key + "content-length: 8\r\nconnection: close\r\n\r\n"
    with connected(port) as sock:
        sock.sendall(head.encode())
        for byte in b"[1, 2, 3":
            sock.sendall(bytes([byte]))
            time.sleep(0.6)  # eight of them last longer than a pause may
        status, _ = answer(sock)
    assert status == 400


@pytest.mark.parametrize("length", ["content-length: 100000000\r\n\r\n", CHUNKED], ids=["declared", "chunked"])
def test_a_body_over_its_cap_is_cut_off_and_its_answer_arrives(serve: Serve, key: str, length: str) -> None:
    port = serve(json_body_mb=0.25)
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    with connected(port) as sock:
        sock.sendall((POST % key + length).encode() + chunk * 8)
        status, body = answer(sock)  # which ends the connection, long before the body's end
    assert status == 413
    assert "at most 0.25 MB" in told(body)


def test_an_answer_that_takes_long_is_waited_for(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(self: Any) -> dict[str, Any]:
        await Clock.of(asyncio.get_running_loop(), monkeypatch).sleep(10)
        return {}

    monkeypatch.setattr("app.batches.installation_status.Installation.status", slow)
    port = serve("asyncio", body_seconds=5, header_seconds=5)  # the kind whose time can be moved
    with connected(port) as sock:
        sock.sendall(b"GET /status HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        assert answer(sock)[0] == 200


def test_an_idle_connection_makes_room_and_a_busy_one_does_not(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = threading.Semaphore(0), threading.Event()

    async def slow(self: Any) -> dict[str, Any]:
        begun.release()
        await asyncio.to_thread(go.wait, 60)
        return {}

    monkeypatch.setattr("app.batches.installation_status.Installation.status", slow)
    port = serve(connections=3, connections_per_address=3)
    get = b"GET %s HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
    with ExitStack() as stack:
        busy = [stack.enter_context(connected(port)) for _ in range(2)]
        for sock in busy:
            sock.sendall(get % b"/status")
            assert begun.acquire(timeout=LIMIT_SECONDS)
        idle = stack.enter_context(connected(port))
        last = stack.enter_context(connected(port))
        assert is_closed(idle)
        last.sendall(get % b"/status")
        assert begun.acquire(timeout=LIMIT_SECONDS)
        # All that may be are busy: from the same address none, from another only what an operator's machinery asks.
        with connected(port) as sock:
            status, body = answer(sock)
        assert (status, "Too many connections" in told(body)) == (503, True)
        with connected(port, "127.0.0.2") as sock:
            sock.sendall(get % b"/version")
            assert answer(sock)[0] == 503
        assert is_healthy(port, "127.0.0.2")
        go.set()
        assert [answer(sock)[0] for sock in (*busy, last)] == [200] * 3
    wait_for(lambda: is_healthy(port), "room again")


def pipelining(port: int, host: str, count: int = 40) -> socket.socket:
    """A client that asks for far more than it is ready to take, and reads nothing."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.bind((host, 0))
    sock.connect(("127.0.0.1", port))
    sock.settimeout(30)
    sock.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: a\r\n\r\n" * count)
    return sock


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the server waited for a pipelining client to read, and lost such a one."""
    seen: Counter[str] = Counter()

    def note(name: str) -> None:
        for base in parsers():
            plain = getattr(base, name)

            def noted(self: LimitedProtocol, *told: object, plain: Any = plain) -> None:
                plain(self, *told)
                seen[name] += self.client[0] == "127.0.0.2"

            monkeypatch.setattr(base, name, noted)

    note("pause_writing")
    note("connection_lost")
    return seen


def test_clients_that_send_requests_and_read_no_answers_make_room_for_others(serve: Serve) -> None:
    port = serve(connections=8, body_seconds=600)
    with ExitStack() as stack:
        for host in ("127.0.0.2", "127.0.0.3") * 4:
            stack.enter_context(pipelining(port, host))

        def is_let_in() -> bool:
            sock = stack.enter_context(connected(port, "127.0.0.9"))
            sock.sendall(b"GET /version HTTP/1.1\r\nhost: a\r\n\r\n")
            return sock.recv(65536).startswith(b"HTTP/1.1 200")

        for _ in range(4):  # which stay
            wait_for(is_let_in, "a place", seconds=SOON_SECONDS)


@pytest.mark.parametrize("count", [1, 40], ids=["its only answer", "one of many"])
def test_an_answer_of_which_the_client_reads_nothing_ends_its_connection(
    serve: Serve, seen: Counter[str], monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr("app.api.openapi.install", lambda app: setattr(app, "openapi", lambda: "x" * 20_000_000))
    port = serve(body_seconds=0.5)
    with pipelining(port, "127.0.0.2", count):
        wait_for(lambda: seen["connection_lost"], "the end of the connection", seconds=SOON_SECONDS)


@pytest.mark.slow
def test_an_answer_that_is_read_slowly_is_delivered_whole(serve: Serve) -> None:
    port = serve(body_seconds=2)
    with pipelining(port, "127.0.0.2", 8) as sock:
        taken = b""
        while taken.count(b"HTTP/1.1 200") < 8 or not taken.endswith(b"}"):
            taken += sock.recv(40_000)
            time.sleep(0.02)


def test_a_client_that_leaves_before_its_answers_causes_no_error(
    serve: Serve, seen: Counter[str], caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    port = serve()
    for count in range(1, 6):
        with pipelining(port, "127.0.0.2"):
            wait_for(lambda: seen["pause_writing"] >= count, "a server that waits")  # noqa: B023
        wait_for(lambda: seen["connection_lost"] >= count, "a server that is alone")  # noqa: B023
    assert is_healthy(port)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert "request.failed" not in capsys.readouterr().out


def test_a_lost_connection_is_freed_at_once_with_its_last_request(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[weakref.ref[LimitedProtocol]] = []
    connection_lost = LimitedProtocol.connection_lost

    def note(protocol: LimitedProtocol, exc: Exception | None) -> None:
        connection_lost(protocol, exc)
        lost.append(weakref.ref(protocol))

    monkeypatch.setattr(LimitedProtocol, "connection_lost", note)
    port = serve()
    gc.disable()  # what only a collection frees stays for long in a quiet process
    try:
        for count in range(2, 5):  # the fixture has asked once
            assert is_healthy(port)
            wait_for(lambda: len(lost) >= count, "the loss")  # noqa: B023
        wait_for(lambda: not any(each() for each in lost), "every protocol to be freed")
    finally:
        gc.enable()


@pytest.mark.slow
def test_two_thousand_half_open_connections_under_a_thousand_files_stop_no_other_client(settings: Settings) -> None:
    port = processes.free_port()
    environment = child_environment(settings.model_copy(update={"port": port}), {"SLACKWATER_PORT": str(port)})
    limited = f"ulimit -Sn 256; ulimit -Hn 1024; exec {sys.executable} -m app.api"
    process = subprocess.Popen(["sh", "-c", limited], env=environment)
    try:
        wait_for(lambda: is_healthy(port), "the API")
        assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (1024, 1024)
        with ExitStack() as stack:
            for _ in range(2000):
                stack.enter_context(connected(port)).sendall(GET)
            assert is_healthy(port)
            assert is_healthy(port, "127.0.0.2")
            assert process.poll() is None
    finally:
        process.terminate()
        process.wait(LIMIT_SECONDS)


def test_an_answer_that_the_database_interrupts_ends_its_connection_and_is_no_error_of_ours(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    async def interrupted() -> AsyncIterator[bytes]:
        yield b"the first page"
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    plain = create_app

    def with_route(settings: Settings) -> FastAPI:
        app = plain(settings)
        app.add_api_route("/interrupted", lambda: StreamingResponse(interrupted()), response_model=None)
        return app

    monkeypatch.setitem(globals(), "create_app", with_route)
    port = serve()
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(f"http://127.0.0.1:{port}/interrupted", timeout=LIMIT_SECONDS)
    assert httpx.get(f"http://127.0.0.1:{port}/version", timeout=LIMIT_SECONDS).status_code == 200
    logged = capsys.readouterr().out + caplog.text
    assert "response.cut" in logged
    assert "Exception in ASGI application" not in logged
    assert "request.failed" not in logged
