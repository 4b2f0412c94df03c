"""Claims about webhook tests: what their answers say when no receiver accepts them."""

import asyncio
from functools import partial
from typing import Any

import httpx
import pytest

from app.api.openai import webhook_endpoints
from app.crypto import secret_key
from app.db.pool import Database
from app.settings import Settings
from testing.waiting import eventually
from tests.webhooks.support import guarded, receiving, send_due
from tests.webhooks.test_egress import drip_body
from workers.notifier.delivery import Sender

BODY = {"name": "n", "url": "http://127.0.0.1:9/", "event_types": ["batch.completed"]}
TEST = {"event_type": "batch.completed"}


async def refused_test(client: httpx.AsyncClient, endpoint_id: str) -> str:
    """Why a test of an endpoint failed."""
    answer = await client.post(f"/v1/webhook_endpoints/{endpoint_id}/test", json=TEST)
    assert (answer.status_code, answer.headers["x-should-retry"]) == (424, "false")
    return str(answer.json()["error"]["message"])


@pytest.mark.parametrize(
    ("attempt_seconds", "said"),
    [
        (
            0.1,
            "It was sent, and the receiver answered 200, but the body of the answer did not end within 0 s (unended).",
        ),
        (3600, "The test was sent, and the receiver has not ended its answer within 0 seconds."),
    ],
)
async def test_a_test_whose_answer_does_not_end_says_that_it_was_sent(
    client: httpx.AsyncClient,
    database: Database,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    attempt_seconds: float,
    said: str,
) -> None:
    async def made() -> list[Any]:
        async with database.relaxed() as conn:
            return await (await conn.execute("select endpoint_id from delivery")).fetchall()

    with receiving(partial(drip_body, 200)) as receiver:
        endpoint_id = (await client.post("/v1/webhook_endpoints", json=BODY | {"url": receiver.url})).json()["id"]
        async with guarded(allow_private="loopback", timeout_seconds=attempt_seconds) as egress:
            sender = Sender(database, egress, secret_key(settings), settings)
            testing = asyncio.create_task(refused_test(client, endpoint_id))
            rows = await eventually(made, "both tests", until=lambda rows: len(rows) == 2)
            sender.kick(rows[0][0])
            await asyncio.to_thread(receiver.wait, 1)
            if attempt_seconds > webhook_endpoints._TEST_SECONDS:
                monkeypatch.setattr(webhook_endpoints, "_TEST_SECONDS", 0.0)
            assert await testing == said


async def test_a_test_that_waits_for_a_receiver_to_recover_says_why(
    client: httpx.AsyncClient, database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_endpoints, "_TEST_SECONDS", 0.0)
    endpoint_id = (await client.post("/v1/webhook_endpoints", json=BODY)).json()["id"]
    async with guarded(allow_private="loopback") as egress:
        await send_due(Sender(database, egress, secret_key(settings), settings), database)
    assert await refused_test(client, endpoint_id) == (
        "The test waits, because the delivery before it failed: the receiver could not be reached: no connection to it "
        "could be made (connect)."
    )


async def test_a_test_that_no_notifier_sends_is_an_error_that_no_client_tries_again(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_endpoints, "_TEST_SECONDS", 0.2)
    body = {"name": "n", "url": "http://127.0.0.1:9/", "event_types": ["batch.completed"]}
    made = (await client.post("/v1/webhook_endpoints", json=body)).json()
    answer = await client.post(f"/v1/webhook_endpoints/{made['id']}/test", json={"event_type": "batch.completed"})
    assert (answer.status_code, answer.headers["x-should-retry"]) == (424, "false")
    assert "is a notifier running?" in answer.json()["error"]["message"]


async def test_a_type_that_does_not_happen_is_named_by_the_field_that_was_sent(client: httpx.AsyncClient) -> None:
    body = {"name": "n", "url": "http://127.0.0.1:9/", "event_types": ["batch.completed"]}
    made = (await client.post("/v1/webhook_endpoints", json=body)).json()
    answer = await client.post(f"/v1/webhook_endpoints/{made['id']}/test", json={"event_type": "batch.nothing"})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["message"].startswith("event_type: must be one of batch.cancelled, ")
    assert (error["message"].endswith(", got 'batch.nothing'"), error["param"]) == (True, "event_type")
