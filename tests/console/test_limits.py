"""Claims about clients of the console that have not signed in: a real uvicorn, tested through sockets."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import httpx
import pytest
import uvicorn

from app import processes
from app.console.app import create_app
from app.console.forms import MOST_BYTES
from app.serving.http_protocol import plain
from app.serving.options import limited_options
from app.settings import Settings
from testing.waiting import LIMIT_SECONDS, wait_for

Serve = Callable[..., int]
HEAD = "POST /console/login HTTP/1.1\r\nhost: a\r\nsec-fetch-site: same-origin\r\ncontent-type: %s\r\n"
FORM, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data; boundary=B"
PART = b'--B\r\ncontent-disposition: form-data; name="f%d"%s\r\n\r\n'
FILE = b'; filename="x"'
BLOCK = b"a" * 2**16


@contextmanager
def served(settings: Settings) -> Iterator[int]:
    """The port of a console with these settings."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        app = create_app(settings.model_copy(update={"console_port": port}))
        server = uvicorn.Server(uvicorn.Config(app, **limited_options(settings, plain)))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            assert is_healthy(port)
            yield port
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture
def serve(settings: Settings) -> Iterator[Serve]:
    """Starts a console with changed settings; gives its port."""
    with ExitStack() as stack:
        yield lambda **changes: stack.enter_context(served(settings.model_copy(update=changes)))


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=LIMIT_SECONDS)


def is_healthy(port: int) -> bool:
    return httpx.get(f"http://127.0.0.1:{port}/console/health", timeout=LIMIT_SECONDS).status_code == 200


def answer(sock: socket.socket) -> tuple[int, str]:
    """Status and body of an answer that ends the connection."""
    raw = b""
    while block := sock.recv(65536):
        raw += block
    head, _, body = raw.partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    return int(head.split()[1]), body.decode()


@pytest.mark.parametrize("part", [PART % (0, FILE), PART % (0, b"")], ids=["a file", "a field"])
def test_a_form_in_parts_is_refused_before_it_is_read(serve: Serve, part: bytes) -> None:
    port = serve()
    with connected(port) as sock:
        sock.sendall((HEAD % MULTIPART + "content-length: 536870912\r\n\r\n").encode() + part + BLOCK)
        assert answer(sock)[0] == 415
    assert is_healthy(port)


@pytest.mark.parametrize("length", ["content-length: 536870912\r\n\r\n", "transfer-encoding: chunked\r\n\r\n"])
def test_a_form_over_its_cap_is_cut_off_and_its_answer_arrives(serve: Serve, length: str) -> None:
    block = b"10000\r\n" + BLOCK + b"\r\n" if "chunked" in length else BLOCK
    with connected(serve()) as sock:
        sock.sendall((HEAD % FORM + length).encode() + block * 4)
        status, told = answer(sock)
    assert status == 413
    assert f"at most {MOST_BYTES // 1024} KB" in told


def test_a_form_with_very_many_fields_is_refused(serve: Serve) -> None:
    body = b"a&" * 5_000
    with connected(serve()) as sock:
        sock.sendall((HEAD % FORM + f"connection: close\r\ncontent-length: {len(body)}\r\n\r\n").encode() + body)
        assert answer(sock)[0] == 400


def test_headers_that_never_end_are_refused_once_they_are_too_long(serve: Serve) -> None:
    port = serve()
    with connected(port) as sock:
        sock.sendall(b"GET /console/login HTTP/1.1\r\nhost: a\r\na: " + BLOCK)
        status, told = answer(sock)
    assert status == 431
    assert "too long" in told
    with connected(port) as sock:
        sock.sendall(b"GET /console/login HTTP/1.1\r\nhost: a\r\n" + b"a: b\r\n" * 150 + b"\r\n")
        assert answer(sock)[0] == 431


def test_headers_and_bodies_that_stop_are_answered_408(serve: Serve) -> None:
    port = serve(header_seconds=0.5, body_seconds=0.5)
    for begun in ("GET /console/login HTTP/1.1\r\nhost: a\r\na: ", HEAD % FORM + "content-length: 8\r\n\r\ntok"):
        with connected(port) as sock:
            sock.sendall(begun.encode())
            assert answer(sock)[0] == 408


def test_half_requests_make_room_for_others(serve: Serve) -> None:
    port = serve(connections=8, connections_per_address=4)
    with ExitStack() as stack:
        opened = [stack.enter_context(connected(port)) for _ in range(40)]
        for sock in opened:
            with suppress(OSError):
                sock.sendall(b"GET /console/login HTTP/1.1\r\nhost: a\r\na: ")
        wait_for(lambda: is_healthy(port), "an answer to another client")


def test_the_console_is_served_with_the_limits(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    """What these tests serve is what `python -m app.console` serves."""
    from app.console import __main__ as program

    given: dict[str, object] = {}
    monkeypatch.setattr(
        program.configuration, "load", lambda: settings.model_copy(update={"console_port": processes.free_port()})
    )
    monkeypatch.setattr(program.uvicorn, "run", lambda app, **options: given.update(options))
    monkeypatch.setattr(program.telemetry, "configure", lambda *_: None)
    monkeypatch.setattr(program.signal, "signal", lambda *_: None)
    program.main()
    assert given.keys() >= limited_options(settings, plain).keys()
    assert "LimitedProtocol" in {base.__name__ for base in given["http"].__mro__}  # type: ignore[attr-defined]
