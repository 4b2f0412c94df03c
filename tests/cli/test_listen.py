"""`slackwater listen` shows and verifies webhooks, and deletes its subscription at the end."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import httpx
import psycopg
import pytest

from app import processes
from app.cli.client import Client
from app.settings import Settings
from app.webhooks import signing
from testing.waiting import wait_for
from tests.cli.support import Run

BODY = b'{"type":"batch.succeeded","n":1}'


def while_listening(port: int, action: Callable[[str], object]) -> threading.Thread:
    """Runs the action with the receiver's URL as soon as it listens on this port, and then sends this process the signal."""
    url = f"http://127.0.0.1:{port}/webhook"

    def act() -> None:
        try:
            wait_for(lambda: answers(url))
            action(url)
        finally:
            assert answers(url)  # a signal that nobody waits for would end the test run
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=act)
    thread.start()
    return thread


def answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 405
    except httpx.TransportError:
        return False


@pytest.fixture
def port() -> Iterator[int]:
    """A free port. Meanwhile a signal that comes after the end of the command ends nothing else."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    yield processes.free_port()
    signal.signal(signal.SIGTERM, before)


def test_with_a_secret_it_tells_genuine_webhooks_from_others(run: Run, port: int) -> None:
    secret, statuses = signing.new_secret(), []

    def send(url: str) -> None:
        headers = signing.headers([secret], "evt_1", BODY, datetime.now(UTC))
        statuses.append(httpx.post(url, content=BODY, headers=headers).status_code)
        statuses.append(httpx.post(url, content=b"no JSON", headers=headers).status_code)

    sender = while_listening(port, send)
    shown = run("listen", "--secret", secret, "--port", str(port))
    sender.join()
    assert (shown.exit_code, statuses) == (0, [204, 401])
    assert "batch.succeeded  signature verified  evt_1\n" in shown.output
    assert '  "n": 1\n' in shown.output
    assert "WRONG SIGNATURE" in shown.output
    assert "no JSON\n" in shown.output


def test_without_one_it_subscribes_itself_until_it_is_stopped(run: Run, port: int, settings: Settings) -> None:
    def endpoints() -> list[str]:
        with psycopg.connect(settings.database_url) as conn:
            return [url for (url,) in conn.execute("select url from endpoint where state <> 'closing'").fetchall()]

    seen: list[str] = []
    looker = while_listening(port, lambda url: wait_for(lambda: url in endpoints() and seen.append(url) is None))
    shown = run("listen", "--port", str(port))
    looker.join()
    assert shown.exit_code == 0, shown.output
    assert seen == [f"http://127.0.0.1:{port}/webhook"]
    assert "subscribed to the events of account acme" in shown.output
    assert endpoints() == []


def test_a_port_that_is_taken_is_told(run: Run, api: Settings) -> None:
    shown = run("listen", "--port", str(api.port), "--secret", "whsec_x")
    assert shown.exit_code == 1
    assert "Cannot listen" in shown.output


def test_an_api_elsewhere_cannot_reach_this_machine(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "call", lambda *_: pytest.fail("nothing may be subscribed"))
    shown = run("listen", env={"SLACKWATER_URL": "https://far.example"})
    assert shown.exit_code == 1
    assert "slackwater events --follow" in shown.output
