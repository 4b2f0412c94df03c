"""Claims about deliveries: list, send again, replay, test; and about keys that change with an overlap."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from app import crypto
from app.db.pool import Database
from app.events import BatchData, EventKind
from app.settings import Settings
from app.tenants import service as tenants
from app.tenants.key_scope import KeyRole, KeyScope
from app.webhooks import emitter
from app.webhooks.egress import Egress
from app.webhooks.retry_policy import ATTEMPTS
from tests.webhooks.support import Receiver, receiving, send_due, statuses
from workers.notifier.delivery import Sender

URL = "/client/v4/accounts/acme/event_subscriptions/subscriptions"
START = "2000-01-01T00:00:00Z"


async def subscribed(client: httpx.AsyncClient, database: Database, url: str, **changes: Any) -> dict[str, Any]:
    """A new subscription as if it had accepted its test event."""
    body = {
        "name": "mine",
        "source": {"type": "workersAi.model"},
        "destination": {"type": "webhook", "url": url, "max_in_flight": 1},
        "events": ["batch.succeeded", "batch.failed"],
    }
    answer = await client.post(URL, json=body | changes)
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()["result"]
    assert result["state"] == "pending"
    async with database.durable() as conn:
        await conn.execute("update endpoint set state = 'active'")
        await conn.execute("delete from delivery where probe")
    return result


async def happen(
    database: Database, batch_id: int, kind: str = "batch.succeeded", traceparent: str | None = None
) -> None:
    async with database.transaction() as conn:
        row = await (await conn.execute("select tenant_id from tenant where account_id = 'acme'")).fetchone()
        assert row is not None
        data = BatchData(request_id=f"request-{batch_id}", account_id="acme", traceparent=traceparent)
        await emitter.emit(conn, tenant_id=row[0], kind=EventKind(kind), model="m", batch_id=batch_id, run=1, data=data)


@pytest.fixture
def sender(settings: Settings, database: Database) -> Sender:
    return Sender(database, Egress.of(settings), crypto.secret_key(settings), settings)


async def send_all(database: Database, sender: Sender) -> None:
    await send_due(sender, database)


async def found(client: httpx.AsyncClient, path: str, **query: Any) -> Any:
    answer = await client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]


async def test_deliveries_are_listed_newest_first_filtered_and_paged(
    client: httpx.AsyncClient, database: Database, sender: Sender
) -> None:
    with receiving(statuses(500, 204)) as receiver:
        one = f"{URL}/{(await subscribed(client, database, receiver.url))['id']}/deliveries"
        for batch_id, kind in enumerate(("batch.succeeded", "batch.failed", "batch.succeeded")):
            await happen(database, batch_id, kind)
        await send_all(database, sender)
        everything = await found(client, one)
        assert [each["request_id"] for each in everything] == ["request-2", "request-1", "request-0"]
        assert [each["state"] for each in everything] == ["delivered", "delivered", "pending"]
        assert everything[2]["last_attempt"]["error"] == "http_5xx"
        assert everything[2]["next_attempt_at"] is not None
        assert [each["request_id"] for each in await found(client, one, state="pending")] == ["request-0"]
        assert [each["request_id"] for each in await found(client, one, event="batch.failed")] == ["request-1"]
        first = (await client.get(one, params={"limit": 2})).json()
        rest = await found(client, one, limit=2, before=first["result_info"]["before"])
        assert [each["request_id"] for each in rest] == ["request-0"]
        for wrong in ({"state": "lost"}, {"event": "batch.sung"}, {"limit": 0}, {"before": -1}):
            assert (await client.get(one, params=wrong)).status_code == 400


async def test_a_delivery_has_the_trace_id_of_the_submit(client: httpx.AsyncClient, database: Database) -> None:
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    with receiving() as receiver:
        one = f"{URL}/{(await subscribed(client, database, receiver.url))['id']}/deliveries"
        await happen(database, 1, traceparent=f"00-{trace_id}-00f067aa0ba902b7-01")
        await happen(database, 2)
        untraced, traced = await found(client, one)
        assert (untraced["trace_id"], traced["trace_id"]) == (None, trace_id)
        assert (await found(client, f"{one}/{traced['id']}"))["trace_id"] == trace_id


async def test_one_delivery_shows_every_attempt_and_what_was_answered(
    client: httpx.AsyncClient, database: Database, sender: Sender
) -> None:
    def refuse(handler: Any, n: int) -> None:
        handler.send_response(503)
        handler.end_headers()
        handler.wfile.write(b"try later")

    with receiving(refuse) as receiver:
        one = f"{URL}/{(await subscribed(client, database, receiver.url))['id']}/deliveries"
        await happen(database, 1)
        await send_all(database, sender)
        (listed,) = await found(client, one)
        shown = await found(client, f"{one}/{listed['id']}")
    (attempt,) = shown["tries"]
    assert (attempt["number"], attempt["http_status"], attempt["error"]) == (1, 503, "http_5xx")
    assert (attempt["address"], attempt["response_body"]) == ("127.0.0.1", "try later")
    for unknown in ("0", "x", "9" * 30, str(int(listed["id"]) + 1)):
        assert (await client.get(f"{one}/{unknown}")).status_code == 404


async def test_a_delivery_is_sent_again_by_hand_with_its_id_and_all_its_attempts_before_it(
    client: httpx.AsyncClient, database: Database, sender: Sender
) -> None:
    with receiving() as receiver:
        one = f"{URL}/{(await subscribed(client, database, receiver.url))['id']}/deliveries"
        await happen(database, 1)
        await send_all(database, sender)
        (listed,) = await found(client, one)
        async with database.durable() as conn:
            await conn.execute("update delivery set attempts = %s", [ATTEMPTS])
        again = (await client.post(f"{one}/{listed['id']}/redeliver")).json()["result"]
        assert (again["state"], again["attempts"]) == ("pending", ATTEMPTS)
        await send_all(database, sender)
        (listed,) = await found(client, one)
        assert (listed["state"], listed["attempts"]) == ("delivered", ATTEMPTS + 1)
        assert len({request.webhook_id for request in receiver.requests}) == 1
        assert len(receiver.requests) == 2


async def test_a_replay_sends_the_events_that_were_not_accepted_or_never_sent_and_on_request_all(
    client: httpx.AsyncClient, database: Database, sender: Sender
) -> None:
    with receiving() as receiver:
        await happen(database, 1)  # before there was a subscription
        one = f"{URL}/{(await subscribed(client, database, receiver.url))['id']}"
        await happen(database, 2)
        await happen(database, 3, "batch.cancelled")  # not what it is for
        await send_all(database, sender)
        assert await replayed(client, one, since=START) == 1
        await send_all(database, sender)
        assert requests_of(receiver) == ["request-2", "request-1"]
        assert await replayed(client, one, since=START) == 0
        assert await replayed(client, one, since=START, only_failed=False, events=["batch.succeeded"]) == 2
        await send_all(database, sender)
        assert sorted(requests_of(receiver)) == ["request-1", "request-1", "request-2", "request-2"]
        later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        assert await replayed(client, one, since=later, until="2100-01-01T00:00:00Z", only_failed=False) == 0
    for wrong in ({}, {"since": "soon"}, {"since": "2026-01-01T00:00:00"}, {"since": START, "events": ["x"]}):
        assert (await client.post(f"{one}/replay", json=wrong)).status_code == 400
    await client.patch(one, json={"enabled": False})
    for verb in ("replay", "test"):
        refused = await client.post(f"{one}/{verb}", json={"since": START})
        assert (refused.status_code, "enable it first" in refused.text) == (409, True)


async def test_a_replay_keeps_to_the_tags_of_the_subscription(client: httpx.AsyncClient, database: Database) -> None:
    await happen(database, 1)
    source = {"type": "workersAi.model", "tags": ["nightly"]}
    made = await subscribed(client, database, "http://127.0.0.1:9/hook", source=source)
    assert await replayed(client, f"{URL}/{made['id']}", since=START, only_failed=False) == 0


async def replayed(client: httpx.AsyncClient, one: str, **body: Any) -> int:
    answer = await client.post(f"{one}/replay", json=body)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["result"]["replayed"])


def requests_of(receiver: Receiver) -> list[str]:
    import orjson

    return [orjson.loads(request.body)["payload"]["requestId"] for request in receiver.requests]


@pytest.mark.parametrize("shape", ["workers_ai", "openai", "standard"])
async def test_a_test_event_reaches_the_receiver_in_its_form(
    client: httpx.AsyncClient, database: Database, sender: Sender, shape: str
) -> None:
    with receiving() as receiver:
        destination = {"type": "webhook", "url": receiver.url, "format": shape}
        made = await subscribed(client, database, "", destination=destination, events=["batch.succeeded"])
        sent = (await client.post(f"{URL}/{made['id']}/test")).json()["result"]
        assert (sent["event"], sent["state"]) == ("test", "pending")
        await send_all(database, sender)
        (request,) = receiver.requests
        assert request.verified(made["destination"]["secret"])["type"].endswith("test")
        assert (await found(client, f"{URL}/{made['id']}/deliveries/{sent['id']}"))["state"] == "delivered"


async def test_while_a_key_is_changed_both_verify_and_then_only_the_new_one(
    client: httpx.AsyncClient, database: Database, sender: Sender
) -> None:
    with receiving() as receiver:
        made = await subscribed(client, database, receiver.url)
        rotate = f"{URL}/{made['id']}/rotate_secret"
        old = made["destination"]["secret"]
        new = (await client.post(rotate, json={})).json()["result"]["destination"]["secret"]
        assert new != old
        await happen(database, 1)
        await send_all(database, sender)
        assert all(receiver.requests[0].verified(secret) for secret in (old, new))
        last = (await client.post(rotate, json={"overlap_hours": 0})).json()["result"]["destination"]["secret"]
        await happen(database, 2)
        await send_all(database, sender)
        assert receiver.requests[1].verified(last)
        with pytest.raises(Exception, match="No matching signature"):
            receiver.requests[1].verified(new)
        for wrong in (
            {"overlap_hours": -1},
            {"overlap_hours": 1000},
            {"overlap_hours": "1"},
            {"overlap_hours": True},
            {"secret": "short"},
            {"surprise": 1},
        ):
            assert (await client.post(rotate, json=wrong)).status_code == 400


async def test_a_rotation_changes_the_key_pair_too_and_the_old_one_signs_until_the_overlap_ends(
    client: httpx.AsyncClient, database: Database, sender: Sender
) -> None:
    with receiving() as receiver:
        destination = {"type": "webhook", "url": receiver.url, "asymmetric": True}
        made = await subscribed(client, database, "", destination=destination)
        rotate = f"{URL}/{made['id']}/rotate_secret"
        old = made["destination"]["public_key"]
        new = (await client.post(rotate, json={})).json()["result"]["destination"]["public_key"]
        await happen(database, 1)
        await send_all(database, sender)
        assert [receiver.requests[0].is_signed_by(key) for key in (old, new)] == [True, True]
        last = (await client.post(rotate, json={"overlap_hours": 0})).json()["result"]["destination"]["public_key"]
        await happen(database, 2)
        await send_all(database, sender)
        assert [receiver.requests[1].is_signed_by(key) for key in (old, new, last)] == [False, False, True]
        assert len({old, new, last}) == 3


@pytest.mark.parametrize("role", list(KeyRole))
async def test_only_an_admin_reads_more_of_a_webhooks_url_than_its_origin(
    client: httpx.AsyncClient, settings: Settings, database: Database, role: KeyRole
) -> None:
    url = "http://127.0.0.1:9/services/SECRET-CAPABILITY?token=ANOTHER"
    made = await subscribed(client, database, url)
    async with database.transaction() as conn:
        scope = KeyScope(role=role)
        key = await tenants.create_key(conn, crypto.secret_key(settings), "acme", "another", scope=scope)
    headers = {"authorization": f"Bearer {key}"}
    paths = (URL, f"{URL}/{made['id']}", "/v1/webhook_endpoints", f"/v1/webhook_endpoints/we_{made['id']}")
    for path in paths:
        shown = await client.get(path, headers=headers)
        assert shown.status_code == 200, shown.text
        assert "http://127.0.0.1:9" in shown.text
        assert ("SECRET" in shown.text, "ANOTHER" in shown.text) == (role is KeyRole.ADMIN,) * 2, path


async def test_another_accounts_deliveries_are_not_to_be_seen(client: httpx.AsyncClient, database: Database) -> None:
    with receiving() as receiver:
        made = await subscribed(client, database, receiver.url)
    foreign = f"/client/v4/accounts/other/event_subscriptions/subscriptions/{made['id']}"
    for method, path in (("GET", "deliveries"), ("POST", "test"), ("POST", "replay"), ("POST", "rotate_secret")):
        assert (await client.request(method, f"{foreign}/{path}", json={})).status_code == 403
    for method, path in (("GET", "deliveries"), ("POST", "test")):
        assert (await client.request(method, f"{URL}/{'0' * 32}/{path}")).status_code == 404
