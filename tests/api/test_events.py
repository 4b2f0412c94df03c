"""Claims about `…/events`: events are returned until they are acknowledged."""

import asyncio
from typing import Any

import httpx
import pytest

from testing.waiting import LIMIT_SECONDS
from tests.api.support import NEW_SUBSCRIPTION, SUBMIT, SUBSCRIPTIONS
from tests.clock import Clock

EVENTS = "/client/v4/accounts/acme/events"
QUEUE = NEW_SUBSCRIPTION | {
    "source": {"type": "workersAi.model"},
    "destination": {"type": "queues.queue", "queue_id": "q1"},
}
ITEMS = {"requests": [{"prompt": "hi"}]}


async def waiting(client: httpx.AsyncClient, **query: Any) -> list[dict[str, Any]]:
    answer = await client.get(EVENTS, params=query)
    assert answer.status_code == 200, answer.text
    result: list[dict[str, Any]] = answer.json()["result"]
    return result


async def test_a_queue_keeps_events_until_they_are_acknowledged(client: httpx.AsyncClient) -> None:
    made = (await client.post(SUBSCRIPTIONS, json=QUEUE)).json()["result"]
    assert made["destination"] == QUEUE["destination"] | {"format": "workers_ai"}
    assert made["state"] == "active"
    request_id = (await client.post(SUBMIT, json=ITEMS)).json()["result"]["request_id"]
    (event,) = await waiting(client)
    assert event["body"]["type"] == "cf.workersAi.model.batch.queued"
    assert event["body"]["payload"] == {"requestId": request_id}
    assert (event["subscription_id"], event["queue_id"]) == (made["id"], "q1")
    assert await waiting(client, queue_id="q1") == [event]
    assert await waiting(client, queue_id="q2") == []
    assert await waiting(client, after=event["id"]) == []
    done = await client.post(f"{EVENTS}/ack", json={"ids": [event["id"]]})
    assert done.json()["result"] == {"acknowledged": 1}
    assert await waiting(client) == []
    again = await client.post(f"{EVENTS}/ack", json={"ids": [event["id"]]})
    assert again.json()["result"] == {"acknowledged": 0}


async def test_a_waiting_request_is_answered_when_an_event_arrives(client: httpx.AsyncClient, clock: Clock) -> None:
    await client.post(SUBSCRIPTIONS, json=QUEUE)
    asking = asyncio.create_task(waiting(client, wait=20))
    await clock.sleep(2)
    assert not asking.done()
    await client.post(SUBMIT, json=ITEMS)
    assert len(await asyncio.wait_for(asking, LIMIT_SECONDS)) == 1


@pytest.mark.parametrize(
    ("query", "word"),
    [({"after": "x"}, "after"), ({"limit": 0}, "limit"), ({"wait": 31}, "wait"), ({"wait": -1}, "wait")],
)
async def test_bad_questions_are_refused_by_field(client: httpx.AsyncClient, query: dict[str, Any], word: str) -> None:
    answer = await client.get(EVENTS, params=query)
    assert answer.status_code == 400
    assert word in answer.json()["errors"][0]["message"]


@pytest.mark.parametrize("ids", [["x"], ["0"], [""], "1", [1], ["1"] * 1001])
async def test_bad_acknowledgements_are_refused(client: httpx.AsyncClient, ids: Any) -> None:
    answer = await client.post(f"{EVENTS}/ack", json={"ids": ids})
    assert answer.status_code == 400
    assert "ids" in answer.json()["errors"][0]["message"]


@pytest.mark.parametrize(
    ("destination", "word"),
    [
        ({"type": "queues.queue"}, "destination.queue_id"),
        ({"type": "queues.queue", "queue_id": ""}, "destination.queue_id"),
        ({"type": "queues.queue", "queue_id": "q", "url": "https://example.com"}, "destination.url"),
        ({"type": "queues.queue", "queue_id": "q", "secret": "whsec_x"}, "destination.secret"),
        ({"type": "queues.queue", "queue_id": "q" * 65}, "destination.queue_id"),
        ({"type": "r2.bucket"}, "destination.type"),
    ],
)
async def test_bad_queues_are_refused_by_field(
    client: httpx.AsyncClient, destination: dict[str, Any], word: str
) -> None:
    answer = await client.post(SUBSCRIPTIONS, json=QUEUE | {"destination": destination})
    assert answer.status_code == 400
    assert word in answer.json()["errors"][0]["message"]
    assert (await client.get(SUBSCRIPTIONS)).json()["result"] == []


async def test_a_subscription_by_metadata_gets_the_events_of_batches_that_have_it(client: httpx.AsyncClient) -> None:
    source = {"type": "workersAi.model", "metadata": {"team": "search", "priority": "3"}}
    made = (await client.post(SUBSCRIPTIONS, json=QUEUE | {"source": source})).json()["result"]
    assert made["source"]["metadata"] == source["metadata"]
    metadata = '{"team": "search", "priority": 3, "more": true}'
    for headers in ({}, {"cf-aig-metadata": '{"team": "search"}'}, {"cf-aig-metadata": metadata}):
        answer = await client.post(SUBMIT, json=ITEMS, headers=headers)
        assert answer.status_code == 200, answer.text
    assert [each["body"]["payload"]["requestId"] for each in await waiting(client)] == [
        answer.json()["result"]["request_id"]
    ]


@pytest.mark.parametrize("metadata", ["x", "[]", '{"a": {}}', '{"a": null}', "{" + '"' + "k" * 65 + '": "v"}'])
async def test_bad_metadata_is_refused(client: httpx.AsyncClient, metadata: str) -> None:
    answer = await client.post(SUBMIT, json=ITEMS, headers={"cf-aig-metadata": metadata})
    assert answer.status_code == 400
    assert "cf-aig-metadata" in answer.json()["errors"][0]["message"]


async def test_a_rate_can_be_set_and_taken_off(client: httpx.AsyncClient) -> None:
    made = (await client.post(SUBSCRIPTIONS, json=NEW_SUBSCRIPTION)).json()["result"]
    for rate in (2.5, None):
        change = {"destination": {"type": "webhook", "max_per_second": rate}}
        changed = (await client.patch(f"{SUBSCRIPTIONS}/{made['id']}", json=change)).json()["result"]
        assert changed["destination"]["max_per_second"] == rate
