"""`slackwater listen` shows what comes and whether it is genuine, and leaves no subscription behind."""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import httpx
import psycopg

from app.settings import Settings, child_environment
from app.webhooks import signing
from tests.system.stack import wait_for

BODY = b'{"type":"batch.succeeded","n":1}'


@contextmanager
def listening(settings: Settings, *options: str) -> Iterator[tuple[subprocess.Popen[str], list[str], str]]:
    """The process, the lines it has printed so far, and its URL."""
    command = [sys.executable, "-m", "app.cli.main", "listen", *options]
    with subprocess.Popen(
        command, env=child_environment(settings, {}) | {"COLUMNS": "160"}, stdout=subprocess.PIPE, text=True
    ) as process:
        lines: list[str] = []
        assert process.stdout
        threading.Thread(target=lambda: lines.extend(iter(process.stdout.readline, "")), daemon=True).start()
        try:
            head = wait_for(lambda: next((line for line in lines if line.startswith("listening at ")), None))
            yield process, lines, head.split()[2].rstrip(",")
        finally:
            process.kill()


def test_with_a_secret_it_tells_genuine_webhooks_from_others(settings: Settings) -> None:
    secret = signing.new_secret()
    with listening(settings, "--secret", secret) as (_, lines, url):
        headers = signing.headers([secret], "evt_1", BODY, datetime.now(UTC))
        assert httpx.post(url, content=BODY, headers=headers).status_code == 204
        wait_for(lambda: any("signature verified" in line and "evt_1" in line for line in lines))
        wait_for(lambda: '  "n": 1\n' in lines)
        assert httpx.post(url, content=b"no JSON", headers=headers).status_code == 401
        wait_for(lambda: any("WRONG SIGNATURE" in line for line in lines))
        wait_for(lambda: "no JSON\n" in lines)


def test_without_one_it_subscribes_itself_until_it_is_stopped(settings: Settings) -> None:
    def endpoints() -> list[tuple[str]]:
        with psycopg.connect(settings.database_url) as conn:
            return conn.execute("select url from endpoint").fetchall()

    with listening(settings, "--account", "acme") as (process, _, url):
        assert endpoints() == [(url,)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert endpoints() == []


def test_a_port_that_is_taken_is_told(settings: Settings) -> None:
    with listening(settings, "--secret", signing.new_secret()) as (_, _, url):
        port = url.split(":")[2].split("/")[0]
        command = [sys.executable, "-m", "app.cli.main", "listen", "--port", port, "--secret", "whsec_x"]
        second = subprocess.run(
            command, env=child_environment(settings, {}), capture_output=True, text=True, timeout=30, check=False
        )
    assert second.returncode == 1
    assert "Cannot listen" in second.stderr + second.stdout
