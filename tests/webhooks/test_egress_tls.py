"""Claims about connections: the client connects to the checked address, with the name in the URL."""

import datetime
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import aiohttp.connector
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from ssrfguard.errors import BlockedAddressError

from tests.webhooks.support import guarded, receiving

NAME = "hooks.test"


def certificate(folder: Path, name: str) -> Path:
    """A self-signed certificate for `name` with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file = folder / f"{name}.pem"
    file.write_bytes(made.public_bytes(form[0]) + key.private_bytes(*form))
    return file


@contextmanager
def served(pem: Path, seen: list[tuple[str, str]]) -> Iterator[int]:
    """An HTTPS server that records the names in the TLS handshake and in the request. Yields its port."""
    asked: list[str] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    context.sni_callback = lambda _, name, __: asked.append(name)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append((asked[-1], self.headers["host"]))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server.server_port
        server.shutdown()


def names(*addresses: str) -> Any:
    """A resolver that returns these addresses for every name."""

    def lookup(host: Any, port: Any, *_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    return lookup


async def test_the_certificate_and_the_request_are_those_of_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, str]] = []
    right, wrong = certificate(tmp_path, NAME), certificate(tmp_path, "other.test")
    trusting = ssl.create_default_context()
    for pem in (right, wrong):
        trusting.load_verify_locations(pem)
    monkeypatch.setattr(aiohttp.connector, "_SSL_CONTEXT_VERIFIED", trusting)
    async with guarded(allow_private="loopback", resolver=names("127.0.0.1")) as egress:
        with served(right, seen) as port:
            outcome = await egress.post(f"https://{NAME}:{port}/hook?a=%20b", {}, b"{}")
            assert (outcome.status, outcome.error, outcome.address) == (204, None, "127.0.0.1")
        with served(wrong, seen) as other:
            assert (await egress.post(f"https://{NAME}:{other}/hook", {}, b"{}")).error == "tls"
    assert seen == [(NAME, f"{NAME}:{port}")]


async def test_if_an_address_cannot_be_reached_the_next_one_is_tried() -> None:
    with receiving() as receiver:
        url = receiver.url.replace("127.0.0.1", NAME)
        async with guarded(allow_private="loopback", resolver=names("127.0.0.2", "127.0.0.1")) as egress:
            outcome = await egress.post(url, {"content-type": "text/plain"}, b"body")
        assert (outcome.status, outcome.address) == (200, "127.0.0.1")
        (got,) = receiver.requests
        assert (got.body, got.headers["host"]) == (b"body", url.split("/")[2])
        assert set(got.headers) - {"connection"} == {"host", "content-type", "content-length", "accept-encoding"}


async def test_no_socket_is_created_for_an_address_that_is_not_allowed() -> None:
    async with guarded() as egress:
        for ip in ("169.254.169.254", "127.0.0.1", "10.1.2.3"):
            with pytest.raises(BlockedAddressError):
                egress._socket((socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 443)))
