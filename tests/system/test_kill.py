"""kill -9 of any part in the middle of a batch: no result is lost or doubled, and no flushed item runs again."""

import http.server
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from standardwebhooks import Webhook

from app.cli.supervisor import PARTS
from app.db import cluster
from testing.waiting import wait_for
from tests.system.stack import Stack, open_to_others, running

pytestmark = pytest.mark.slow

ITEMS = 500
AT = 100  # results flushed when the blow falls


class Inbox:
    """A webhook receiver that verifies signatures and keeps (webhook-id, body)."""

    def __init__(self) -> None:
        self.secret = ""
        self.bodies: list[tuple[str, dict[str, dict[str, str]]]] = []
        inbox = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                inbox.bodies.append((headers["webhook-id"], Webhook(inbox.secret).verify(raw, headers)))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def of(self, request_id: str) -> list[str]:
        """Types of the events of one batch, in order of arrival."""
        return [body["type"] for _, body in self.bodies if body["payload"]["requestId"] == request_id]  # type: ignore[misc]


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """One installation for all blows."""
    with running() as stack:
        yield stack


@pytest.fixture(scope="module")
def inbox(stack: Stack) -> Inbox:
    """A receiver subscribed to everything."""
    inbox = Inbox()
    inbox.secret = stack.subscribe(inbox.url)
    return inbox


def _postgres(stack: Stack) -> None:
    """Not by `pg_ctl stop`: it would wait for the server that the supervisor starts in its place."""
    os.kill(int(_pid_file(stack).read_text().split()[0]), signal.SIGKILL)


def _pid_file(stack: Stack) -> Path:
    return cluster.place(stack.settings).cluster / "postmaster.pid"


BLOWS: dict[str, Callable[[Stack], None]] = {
    "gpu worker": lambda stack: stack.kill("gpu-worker"),
    "api": lambda stack: stack.kill("api"),
    "notifier": lambda stack: stack.kill("notifier"),
    "steward": lambda stack: stack.kill("steward"),
    "PostgreSQL": _postgres,
}


@pytest.mark.parametrize("victim", BLOWS)
def test_a_blow_in_mid_batch_loses_nothing_and_repeats_nothing_flushed(
    stack: Stack, inbox: Inbox, victim: str, record_property: Callable[[str, object], None]
) -> None:
    prompts = [f"{victim} {n}" for n in range(ITEMS)]
    request_id = stack.submit([{"prompt": prompt, "external_reference": prompt} for prompt in prompts])
    [(batch_id,)] = stack.query("select batch_id from batch where request_id = %s", request_id)
    flushed_sql = "select seq from item_result where batch_id = %s"
    wait_for(lambda: len(stack.query(flushed_sql, batch_id)) >= AT)
    flushed = [prompts[seq] for (seq,) in stack.query(flushed_sql, batch_id)]
    before = stack.seen()  # after them: what is flushed was seen
    assert len(flushed) < ITEMS
    BLOWS[victim](stack)
    result = wait_for(lambda: stack.poll(request_id), f"{victim}: batch finished")

    references = Counter(response["external_reference"] for response in result["responses"])
    after = stack.seen()
    counts = {
        "items": ITEMS,
        "flushed before": len(flushed),
        "lost": len(set(prompts) - set(references)),
        "failed": sum(not response["success"] for response in result["responses"]),
        "duplicated": sum(n - 1 for n in references.values()),
        "flushed re-run": sum(after[prompt] > before.get(prompt, 0) for prompt in flushed),
        "unflushed re-run": sum(after[prompt] > 1 for prompt in prompts),
    }
    record_property(f"kill -9 of the {victim} in mid-batch", counts)
    assert counts["lost"] == counts["failed"] == counts["duplicated"] == counts["flushed re-run"] == 0
    assert result["usage"]["completion_tokens"] == sum(
        response["result"]["usage"]["completion_tokens"] for response in result["responses"]
    )

    final = "cf.workersAi.model.batch.succeeded"
    wait_for(lambda: final in inbox.of(request_id), f"{victim}: webhook")
    ids = {
        webhook_id
        for webhook_id, body in inbox.bodies
        if (body["type"], body["payload"]["requestId"]) == (final, request_id)
    }  # type: ignore[comparison-overlap]
    assert len(ids) == 1
    caches = wait_for(
        lambda: stack.query("select ready, inflight_tokens from sched where ready = 0 and inflight_tokens = 0")
    )
    assert caches


def test_an_upload_cut_off_by_the_death_of_the_api_leaves_nothing(stack: Stack) -> None:
    [(before,)] = stack.query("select count(*) from item_payload")

    def body() -> Iterator[bytes]:
        for n in range(2000):
            yield b'{"prompt": "cut %d"}\n' % n
            if n == 1000:
                stack.kill("api")

    with pytest.raises(Exception):  # noqa: B017  (the connection breaks in one of several ways)
        stack.client.post(
            "/client/v4/accounts/acme/ai/run/smollm2-135m-instruct?queueRequest=true",
            content=body(),
            headers={"content-type": "application/x-ndjson"},
        ).raise_for_status()
    wait_for(lambda: stack.client.get("/ready").status_code == 200)
    assert stack.query("select count(*) from item_payload") == [(before,)]


def test_nobody_else_on_the_machine_can_read_anything_of_an_installation_that_all_this_has_happened_to(
    stack: Stack,
) -> None:
    data = stack.settings.data_dir
    wait_for((data / "credentials.json").exists, "the greeting")
    assert {"logs", "spool", "up.lock"} <= {each.name for each in data.iterdir()}
    for folder in {data, cluster.place(stack.settings).cluster}:
        assert open_to_others(folder) == []


def test_after_kill_9_of_up_the_next_start_needs_no_hand_and_leaves_no_orphan() -> None:
    with running() as stack:
        request_id = stack.submit([{"prompt": f"up {n}"} for n in range(ITEMS)])
        wait_for(lambda: stack.query("select 1 from item_result limit 1"))
        assert stack.process
        stack.process.kill()
        stack.process.wait()
        stack.start()
        result = wait_for(lambda: stack.poll(request_id))
        assert len(result["responses"]) == ITEMS
        started = [part for part in PARTS if part != "console"]  # its port is 0 here
        assert [len(stack.pids(part)) for part in started] == [1] * len(started)
        assert stack.stop() == 0
        assert stack.marked() == []
        assert not _pid_file(stack).exists()
