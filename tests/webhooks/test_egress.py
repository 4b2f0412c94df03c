"""Claims about the guarded client: where it never connects to, and that no receiver can block or flood it."""

import asyncio
import socket
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from functools import partial
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from ssrfguard.errors import BlockedAddressError

from app import crypto, host_lists
from app.audit.grouped import GroupedLog
from app.db.pool import Database
from app.errors import BadInput
from app.settings import Settings
from app.tenants import service as tenants
from app.tenants.service import Tenant
from app.webhooks import name_resolution, url_check
from app.webhooks.egress import Egress, TargetRefused
from app.webhooks.validation import DeliveryLimits
from testing.waiting import LIMIT_SECONDS, eventually
from tests.webhooks.support import ACCOUNT, answer, emit, guarded, make_tenant, receiving, send_due, statuses, subscribe
from workers.notifier.delivery import Sender

PUBLIC = "93.184.215.14"
NAMES: dict[str, list[str]] = {
    "localhost": ["127.0.0.1"],
    "internal": ["127.0.0.1"],
    "internal.": ["127.0.0.1"],
    "mixed": [PUBLIC, "127.0.0.1"],
    "meta": ["169.254.169.254"],
    "cgnat": ["100.64.1.1"],
    "nat64": ["64:ff9b::7f00:1"],
    "mapped": ["::ffff:127.0.0.1"],
    "ula": ["fd00:ec2::254"],
    "6to4": ["2002:7f00:1::"],
    "teredo": ["2001:0:53aa:64c:0:0:80ff:fffe"],
    "nat64local": ["64:ff9b:1::7f00:1"],
    "alibaba": ["100.100.100.200"],
    "azurewire": ["168.63.129.16"],
    "bench": ["198.18.0.1"],
    "multicast": ["224.0.0.1"],
    "siit": ["::ffff:0:127.0.0.1"],
}
OTHERS = {"public": [PUBLIC], "lan": ["192.168.7.7"]}
LITERALS = (
    "127.0.0.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "[::]",
    "[64:ff9b::7f00:1]", "169.254.169.254", "[fd00:ec2::254]",
)  # fmt: skip
HOSTS = (*LITERALS, *NAMES, "rebind")
RULE = r"^[^0-9]+; must be https on port 443 of a public address, without credentials \(\S+ is off; [^0-9]+\)$"


class StubDns:
    """A fake of `getaddrinfo` with the table above. `rebind` is public in the first lookup, and loopback after that."""

    def __init__(self) -> None:
        self.rebinds = 0

    def __call__(self, host: Any, port: Any, *_: Any, **__: Any) -> list[Any]:
        name = host.decode() if isinstance(host, bytes) else host
        if name == "rebind":
            self.rebinds += 1
            addresses = [PUBLIC if self.rebinds == 1 else "127.0.0.1"]
        elif name in OTHERS:
            addresses = OTHERS[name]
        elif name in NAMES or name + "." in NAMES:
            addresses = NAMES.get(name) or NAMES[name + "."]
        else:
            return socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        family = {True: socket.AF_INET6, False: socket.AF_INET}
        return [
            (family[":" in a], socket.SOCK_STREAM, 6, "", (a, port, 0, 0) if ":" in a else (a, port)) for a in addresses
        ]


@pytest.fixture
def dialled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Records every address to which this process tries to connect. No connection is made."""
    addresses: list[str] = []

    def connect(self: socket.socket, address: Any) -> None:
        addresses.append(address[0])
        raise ConnectionRefusedError

    monkeypatch.setattr(socket.socket, "connect", connect, raising=False)
    return addresses


def test_the_matrix_has_thirty_hosts() -> None:
    assert len(set(HOSTS)) == 30


@pytest.mark.parametrize("host", HOSTS)
async def test_no_connection_is_made_to_a_forbidden_host(host: str, dialled: list[str]) -> None:
    async with guarded(resolver=StubDns()) as egress:
        first = await egress.post(f"https://{host}/hook", {}, b"{}")
        second = await egress.post(f"https://{host}/hook", {}, b"{}")
    assert set(dialled) <= ({PUBLIC} if host == "rebind" else set())
    assert second.error == "ssrf_blocked"
    assert first.error == ("connect" if host == "rebind" else "ssrf_blocked")


@pytest.mark.parametrize("host", [host for host in HOSTS if host != "rebind"])
async def test_registration_refuses_the_same_hosts_and_does_not_reveal_their_addresses(host: str) -> None:
    async with guarded(resolver=StubDns()) as egress:
        with pytest.raises(
            TargetRefused,
            match=RULE,
        ):
            await egress.check(f"https://{host}/hook")


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/", "https://example.com:8443/", "https://user:pw@example.com/", "ftp://example.com/", "file:///etc/passwd",
        "https:///x", "example.com", "https://exa mple.com/", "https://a\tb/", "https://ⓔxample.com:444/",
    ],
)  # fmt: skip
async def test_only_https_on_443_without_credentials_may_be_registered(url: str) -> None:
    async with guarded(resolver=StubDns()) as egress:
        with pytest.raises(TargetRefused):
            await egress.check(url)
        assert (await egress.post(url, {}, b"{}")).error == "ssrf_blocked"


@pytest.mark.parametrize(
    ("allows", "url", "broken"),
    [
        ("off", "ftp://example.com/", "the scheme is ftp"),
        ("off", "example.com", "the scheme is missing"),
        ("off", "http://public/", "the scheme is http"),
        ("off", "https://public:8443/", "the port is 8443"),
        ("off", "http://public:8080/", "the scheme is http and the port is 8080"),
        ("off", "https://user:pw@public/", "it has a user name or a password"),
        ("off", "https://ex_ample.com/", "the host is not a plain name or address"),
        ("off", "https://public:x/", "this is not a valid URL: .*'x'"),
        ("off", "https:///x", "the host is missing"),
        ("off", "https://lan/", "the address is a private or special one"),
        ("off", "https://10.1.2.3/", "the address is a private or special one"),
        ("off", "https://169.254.169.254/", "the address is a private or special one"),
        ("loopback", "https://lan/", "the address is a private or special one"),
        ("loopback", "http://lan/", "the scheme is http and the address is not a loopback one"),
        ("loopback", "http://public:9/", "the scheme is http and the port is 9 and the address is not a loopback one"),
        ("all", "http://public/", "the scheme is http and the address is neither a private nor a loopback one"),
    ],
)  # fmt: skip
async def test_a_refusal_says_what_of_the_url_breaks_the_rule(allows: str, url: str, broken: str) -> None:
    async with guarded(allow_private=allows, resolver=StubDns()) as egress:
        with pytest.raises(TargetRefused, match=rf"^{broken}; must be https "):
            await egress.check(url)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (" https://public/", "has a space as character 1; write it as %20, or leave it out"),
        ("https://public/a b", "has a space as character 17; write it as %20, or leave it out"),
        ("https://public/in\n", "has a control character as character 18; write it as %0A, or leave it out"),
        ("https://public/in#part", "has a fragment, from `#` on, which no request carries"),
        ("https://public/in?a=b#", "has a fragment, from `#` on, which no request carries"),
    ],
)
async def test_what_no_request_carries_of_a_url_is_refused_by_its_name(url: str, reason: str) -> None:
    async with guarded(resolver=StubDns()) as egress:
        with pytest.raises(TargetRefused, match=f"^{reason}"):
            await egress.check(url)


async def test_a_public_name_and_one_that_does_not_resolve_yet_may_be_registered() -> None:
    def dns(host: Any, port: Any, *_: Any, **__: Any) -> list[Any]:
        if "later" in str(host):
            raise socket.gaierror("no such name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (PUBLIC, port))]

    async with guarded(resolver=dns) as egress:
        assert await egress.check("https://hooks.example.com/a?b=c")
        assert not await egress.check("https://later.example.com/")
        assert (await egress.post("https://later.example.com/", {}, b"{}")).error == "dns"


async def test_with_loopback_an_http_name_that_does_not_resolve_is_refused() -> None:
    def dns(*_: Any, **__: Any) -> list[Any]:
        raise socket.gaierror("no such name")

    async with guarded(allow_private="loopback", resolver=dns) as egress:
        await egress.check("https://later.example.com/")
        for url in ("http://later.example.com/", "https://later.example.com:8443/"):
            with pytest.raises(TargetRefused, match="on a loopback address"):
                await egress.check(url)


PRIVATE = ("10.0.0.1", "172.16.0.1", "192.168.1.1", "[fd12::1]", "lan")
METADATA = ("169.254.169.254", "[fd00:ec2::254]", "[fd20:ce::254]", "100.100.100.200", "meta", "azurewire", "siit")


@pytest.mark.parametrize("host", [*PRIVATE, *METADATA, PUBLIC, "public", "mixed"])
async def test_loopback_allows_plain_http_to_loopback_addresses_only(host: str, dialled: list[str]) -> None:
    async with guarded(allow_private="loopback", resolver=StubDns()) as egress:
        for url in (f"http://{host}/", f"http://{host}:443/", f"http://{host}:8080/", f"https://{host}:8443/"):
            with pytest.raises(TargetRefused, match=r"on a loopback address, .*`all` adds private networks"):
                await egress.check(url)
            assert (await egress.post(url, {}, b"{}")).error == "ssrf_blocked"
        assert dialled == []
        assert (await egress.post("http://127.0.0.1:8080/", {}, b"{}")).error == "connect"
        assert dialled == ["127.0.0.1"]


@pytest.mark.parametrize("allows", ["loopback", "all"])
async def test_https_to_public_addresses_is_always_allowed(allows: str, dialled: list[str]) -> None:
    async with guarded(allow_private=allows, resolver=StubDns()) as egress:
        await egress.check("https://public/hook")
        assert (await egress.post("https://public/hook", {}, b"{}")).error == "connect"
    assert dialled == [PUBLIC]


@pytest.mark.parametrize("allows", ["off", "loopback", "all"])
@pytest.mark.parametrize("host", [PUBLIC, "public", "mixed", "[2606:4700::1111]", "192.0.0.9", "nat64"])
async def test_public_addresses_get_requests_only_by_https_on_443(allows: str, host: str, dialled: list[str]) -> None:
    async with guarded(allow_private=allows, resolver=StubDns()) as egress:
        for url in (f"http://{host}/", f"http://{host}:443/", f"http://{host}:8080/", f"https://{host}:8443/"):
            with pytest.raises(TargetRefused, match="must be https on port 443 of a public address"):
                await egress.check(url)
            assert (await egress.post(url, {}, b"{}")).error == "ssrf_blocked"
    assert dialled == []


@pytest.mark.parametrize("host", [*PRIVATE, "127.0.0.1"])
async def test_all_allows_http_to_private_networks(host: str, dialled: list[str]) -> None:
    async with guarded(allow_private="all", resolver=StubDns()) as egress:
        await egress.check(f"http://{host}:8080/")
        assert (await egress.post(f"http://{host}:8080/", {}, b"{}")).error == "connect"
    assert len(dialled) == 1 or ":" in host  # this machine may have no IPv6


@pytest.mark.parametrize("host", [*METADATA, "cgnat", "multicast", "0.0.0.0"])
async def test_no_setting_allows_metadata_services_and_special_networks(host: str, dialled: list[str]) -> None:
    async with guarded(allow_private="all", resolver=StubDns()) as egress:
        for url in (f"http://{host}/", f"https://{host}/"):
            with pytest.raises(TargetRefused):
                await egress.check(url)
            assert (await egress.post(url, {}, b"{}")).error == "ssrf_blocked"
    assert dialled == []


async def test_no_socket_is_created_for_an_address_that_its_port_does_not_allow(dialled: list[str]) -> None:
    async with guarded(allow_private="loopback") as egress:
        for address, port, fine in (
            (PUBLIC, 443, True),
            (PUBLIC, 80, False),
            ("127.0.0.1", 80, True),
            ("10.0.0.1", 443, False),
        ):
            with nullcontext() if fine else pytest.raises(BlockedAddressError):
                egress._socket((socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))).close()


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("true", "loopback"),
        ("1", "loopback"),
        ("false", "off"),
        ("LOOPBACK", "loopback"),
        ("all", "all"),
        (True, "loopback"),
    ],
)
def test_the_former_boolean_setting_allows_no_private_network(written: object, meant: str) -> None:
    assert Settings(webhook_allow_private=written).webhook_allow_private == meant  # type: ignore[arg-type]


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with receiving() as receiver:
        async with guarded(allow_private="loopback") as egress:
            assert (await egress.post(receiver.url, {}, b"{}")).status == 200


async def test_a_redirect_is_a_failure_and_is_not_followed() -> None:
    with receiving() as victim, receiving(lambda h, _: answer(h, 307, location=victim.url)) as receiver:
        async with guarded(allow_private="loopback") as egress:
            outcome = await egress.post(receiver.url, {}, b"{}")
        assert (outcome.status, outcome.error) == (307, "http_3xx")
        assert len(receiver.requests) == 1
        assert victim.requests == []


def drip(handler: BaseHTTPRequestHandler, _: int) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nx-slow: ")
    while True:
        handler.wfile.write(b"a")
        handler.wfile.flush()
        time.sleep(0.1)


def drip_body(status: int, handler: BaseHTTPRequestHandler, _: int) -> None:
    handler.wfile.write(b"HTTP/1.1 %d So\r\ncontent-length: 1000\r\n\r\n" % status)
    while True:
        handler.wfile.write(b"a")
        handler.wfile.flush()
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("script", "status", "error"),
    [
        (drip, None, "timeout"),
        (lambda h, n: threading.Event().wait(), None, "timeout"),
        (partial(drip_body, 200), 200, "unended"),
        (partial(drip_body, 410), 410, "http_410"),
    ],
)
async def test_the_total_deadline_ends_an_attempt_at_a_slow_or_silent_receiver(
    script: Any, status: int | None, error: str
) -> None:
    with receiving(script) as receiver:
        start = time.monotonic()
        async with guarded(allow_private="loopback", timeout_seconds=0.5) as egress:
            outcome = await egress.post(receiver.url, {}, b"{}")
        assert (outcome.status, outcome.error) == (status, error)
        assert time.monotonic() - start > 0.4


@pytest.mark.parametrize(
    ("written", "arrives"),
    [
        ("/in/%7Ea?sp=%2Ftriggers%2Frun&sv=1.0&sig=a%2Bb%3D", None),
        ("/%2e%2E/a/../b//c;d=1?q=a+b%20c&q&=&%7b%7D", None),
        ("/%c3%A4?%C3%a4", None),
        ("/~a!$'()*,;:@[]|^{}`\\\"<>?!$'()*,;:@/?[]|", None),
        ("?only=%7Equery", "/?only=%7Equery"),
        ("", "/"),
        ("/in?", None),
        ("?", "/?"),
        ("/in//?#part", "/in//?"),  # of a webhook from before fragments were refused
        ("/\u00e4?\u00f6", "/%C3%A4?%C3%B6"),
    ],
)
async def test_a_url_arrives_as_it_was_written(written: str, arrives: str | None) -> None:
    with receiving() as receiver:
        async with guarded(allow_private="loopback") as egress:
            outcome = await egress.post(receiver.url.removesuffix("/hook") + written, {}, b"{}")
        assert (outcome.status, [each.target for each in receiver.requests]) == (200, [arrives or written])


async def test_a_large_response_is_read_only_up_to_the_limit() -> None:
    sent = 0

    def flood(handler: BaseHTTPRequestHandler, _: int) -> None:
        nonlocal sent
        handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 500000000\r\n\r\n")
        for _ in range(500):
            handler.wfile.write(b"x" * 1_000_000)
            sent += 1_000_000

    with receiving(flood) as receiver:
        async with guarded(allow_private="loopback", response_bytes=16_384) as egress:
            outcome = await egress.post(receiver.url, {}, b"{}")
        assert (outcome.status, outcome.error, outcome.body) == (200, None, b"x" * 16_384)
        await asyncio.sleep(0.2)
        assert sent < 50_000_000


async def test_each_fault_of_a_receiver_has_its_error_class() -> None:
    def hang_up(handler: BaseHTTPRequestHandler, _: int) -> None:
        handler.close_connection = True

    with receiving(statuses(500, 404, 410, 429)) as receiver, receiving(hang_up) as rude:
        async with guarded(allow_private="loopback") as egress:
            errors = [(await egress.post(receiver.url, {}, b"{}")).error for _ in range(4)]
            assert errors == ["http_5xx", "http_4xx", "http_410", "http_429"]
            assert (await egress.post(receiver.url.replace("http:", "https:"), {}, b"{}")).error == "tls"
            assert (await egress.post(rude.url, {}, b"{}")).error == "protocol"
            assert (await egress.post("http://127.0.0.1:1/", {}, b"{}")).error == "connect"


async def test_retry_after_of_a_throttling_receiver_is_passed_on() -> None:
    with receiving(lambda h, _: answer(h, 429, retry_after="77")) as receiver:
        async with guarded(allow_private="loopback") as egress:
            assert (await egress.post(receiver.url, {}, b"{}")).retry_after == 77


class SilentDns:
    """A resolver in which some names hang until `speak` is set. Every other name is this machine."""

    def __init__(self) -> None:
        self.speak = threading.Event()
        self.hanging: list[str] = []

    def __call__(self, host: Any, port: Any, *_: Any, **__: Any) -> list[Any]:
        if host.startswith("silent"):
            self.hanging.append(host)
            self.speak.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]


async def test_a_name_whose_dns_lookup_hangs_delays_only_its_own_endpoints(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_resolution, "SECONDS", 3600)
    dns = SilentDns()
    with receiving() as receiver:
        silent, well = f"http://silent.example:{receiver.port}/hook", f"http://well.example:{receiver.port}/hook"
        async with guarded(allow_private="loopback", resolver=dns, timeout_seconds=3600) as egress:
            async with database.transaction() as conn:
                held, _ = await subscribe(conn, settings, receiver.url, limits=DeliveryLimits(max_in_flight=64))
                other, _ = await subscribe(conn, settings, receiver.url, limits=DeliveryLimits(max_in_flight=64))
                for endpoint, url in ((held, silent), (other, silent)):
                    await conn.execute(
                        "update endpoint set url = %s where endpoint_id = %s", [url, endpoint.endpoint_id]
                    )
                for batch_id in range(100):
                    await emit(conn, batch_id)
            sender = Sender(database, egress, crypto.secret_key(settings), settings)
            sender.kick(held.endpoint_id)
            sender.kick(other.endpoint_id)
            await in_flight(database, 128)
            async with database.transaction() as conn:
                third, _ = await subscribe(conn, settings, receiver.url)
                await conn.execute("update endpoint set url = %s where endpoint_id = %s", [well, third.endpoint_id])
                await emit(conn, 200)
            sender.kick(third.endpoint_id)
            try:
                await asyncio.to_thread(receiver.wait, 1)
                assert dns.hanging == ["silent.example"]
            finally:
                dns.speak.set()
                await sender.idle()


async def in_flight(database: Database, count: int) -> None:
    """Wait until so many deliveries are in flight."""
    async with database.durable() as conn:

        async def sending() -> int:
            sql = "select count(*) from delivery where state = 'sending'"
            return int((await (await conn.execute(sql)).fetchone() or (0,))[0])

        await eventually(sending, until=lambda found: found == count)


async def test_a_lookup_that_hangs_fails_its_attempt_as_dns_and_is_not_repeated_while_it_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(name_resolution, "SECONDS", 0.1)
    dns = SilentDns()
    async with guarded(resolver=dns) as egress:
        answers = [await egress.post("https://silent.example/hook", {}, b"{}") for _ in range(3)]
        assert [each.error for each in answers] == ["dns"] * 3
        assert dns.hanging == ["silent.example"]
        assert (await egress.post("https://well.example/hook", {}, b"{}")).error == "ssrf_blocked"
    dns.speak.set()


async def test_hundreds_of_silent_names_of_one_account_delay_no_other_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_resolution, "SECONDS", 3600)
    dns = SilentDns()
    async with guarded(resolver=dns, timeout_seconds=3600) as egress:
        urls = [f"https://silent{number}.example/hook" for number in range(600)]
        held = [asyncio.create_task(egress.post(url, {}, b"{}", owner=1)) for url in urls]
        try:
            await eventually(lambda: len(dns.hanging) >= name_resolution.MOST_OF_ONE)
            other = await egress.post("https://well.example/hook", {}, b"{}", owner=2)
            assert other.error == "ssrf_blocked"  # the name was looked up: it is this machine's
            assert len(dns.hanging) == name_resolution.MOST_OF_ONE
        finally:
            dns.speak.set()
        answers = await asyncio.gather(*held)
    assert {each.error for each in answers} == {
        "ssrf_blocked"
    }  # its own names have waited for each other, and no longer


def test_a_process_ends_while_a_lookup_hangs() -> None:
    script = """
import asyncio, threading
from app.webhooks import name_resolution
name_resolution.SECONDS = 0.01
async def main():
    names = name_resolution.NameResolver()
    try:
        await names.get("silent", threading.Event().wait)
    except OSError:
        print("no answer")
    names.close()
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=True
    )
    assert done.stdout == "no answer\n"


async def test_with_allowed_hosts_no_other_host_is_called(dialled: list[str]) -> None:
    async with guarded(resolver=StubDns(), hosts=["hooks.example.com", ".corp.example"]) as egress:
        for host in ("hooks.example.com", "HOOKS.example.com", "a.corp.example"):
            assert (await egress.post(f"https://{host}/hook", {}, b"{}")).error != "ssrf_blocked"
        for host in ("example.com", "hooks.example.com.evil.example", "corp.example", "evilcorp.example"):
            assert (await egress.post(f"https://{host}/hook", {}, b"{}")).error == "ssrf_blocked"
            with pytest.raises(TargetRefused, match="one of the hosts that this installation allows"):
                await egress.check(f"https://{host}/hook")


async def test_the_hosts_of_an_account_apply_in_addition_to_those_of_the_installation(dialled: list[str]) -> None:
    async with guarded(resolver=StubDns(), hosts=host_lists.parse(".Example.com ,")) as egress:
        for hosts, fine in (
            (["a.example.com"], True),
            ([".example.com"], True),
            (["b.example.com"], False),
            ([], False),
        ):
            outcome = await egress.post("https://a.example.com/hook", {}, b"{}", hosts)
            assert (outcome.error != "ssrf_blocked") == fine
        with pytest.raises(TargetRefused, match="one of the hosts that your account allows"):
            await egress.check("https://a.example.com/hook", ["b.example.com"])
        assert (await egress.post("https://other.org/hook", {}, b"{}", ["other.org"])).error == "ssrf_blocked"


async def test_a_registration_that_a_list_of_hosts_refuses_is_in_the_audit_log_and_other_mistakes_are_not(
    database: Database,
) -> None:
    audit, tenant = GroupedLog(database), Tenant(1, ACCOUNT)
    async with database.durable() as conn:
        await make_tenant(conn)
        await tenants.set_webhook_hosts(conn, ACCOUNT, ["a.example.com"])
    async with guarded(resolver=StubDns(), hosts=[".example.com"]) as egress:
        for url in ("https://b.example.com/hook", "https://other.org/hook", "https://a.example.com:99999/hook"):
            with pytest.raises(BadInput, match=r"^url: "):
                await url_check.checked_for_tenant(database, egress, audit, tenant, url, where="url")
        await url_check.checked_for_tenant(database, egress, audit, tenant, "https://a.example.com/hook")
    await audit.store()
    async with database.durable() as conn:
        noted = await conn.execute("select account, target from audit where act = 'policy.denied' order by target")
        lists = ("SLACKWATER_WEBHOOK_ALLOWED_HOSTS", "account webhook-hosts")
        assert await noted.fetchall() == [(ACCOUNT, each) for each in lists]


async def test_the_hosts_of_an_account_apply_to_existing_and_to_new_endpoints(
    database: Database, settings: Settings
) -> None:
    with receiving() as receiver:
        async with database.durable() as conn:
            await subscribe(conn, settings, receiver.url)
            await tenants.set_webhook_hosts(conn, ACCOUNT, ["hooks.example.com"])
            assert await url_check.allowed_hosts(conn, 1) == ["hooks.example.com"]
            await emit(conn, 1)
        async with Egress.of(settings) as egress:
            sender = Sender(database, egress, crypto.secret_key(settings), settings)
            await send_due(sender, database)
            await sender.rules.audit.store()
        assert receiver.requests == []
    told = "the webhook must go to one of the hosts that your account allows; 127.0.0.1 is not one of them"
    async with database.durable() as conn:
        row = await (
            await conn.execute("select state, reason, error_class from delivery join attempt using (delivery_id)")
        ).fetchone()
        assert row == ("dead", told, "ssrf_blocked")
        noted = await conn.execute(
            "select account, target, body::jsonb->>'outcome' from audit where act = 'policy.denied'"
        )
        assert await noted.fetchall() == [(ACCOUNT, "account webhook-hosts", told)]
        await tenants.set_webhook_hosts(conn, ACCOUNT, None)
        assert await url_check.allowed_hosts(conn, 1) is None
