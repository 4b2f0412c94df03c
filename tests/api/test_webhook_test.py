"""Claims about a webhook test that no notifier sends."""

import httpx
import pytest

from app.api.openai import webhook_endpoints


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
    assert answer.json()["error"]["message"].startswith(
        "event_type: there is no event type 'batch.nothing' here; known are:"
    )
