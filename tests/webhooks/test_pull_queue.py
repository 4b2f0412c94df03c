"""Claims about events that are pulled: each stays until it is acknowledged, and none is sent."""

from typing import Any
from uuid import UUID

import orjson
import pytest

from app import crypto
from app.db.pool import Connection, Database
from app.errors import BadInput, Conflict
from app.events import USUAL_KINDS
from app.queue import retention_sql
from app.settings import Settings
from app.states import EndpointState
from app.webhooks import claims, deliveries, due_sweep, endpoints, pull_queue, registration
from app.webhooks.endpoints import Endpoint, EventFilter
from app.webhooks.url_check import CheckedUrl
from tests.webhooks.support import ACCOUNT, emit, make_tenant


async def queue(conn: Connection, queue_id: str = "mine", tenant_id: int = 1, **options: Any) -> Endpoint:
    await make_tenant(conn, tenant_id)
    values: dict[str, Any] = {"name": "test", "kinds": USUAL_KINDS, "queue_id": queue_id} | options
    return await registration.create_queue(conn, tenant_id=tenant_id, **values)


async def pulled(conn: Connection, **asked: Any) -> list[str]:
    """The request ids of the events that are not acknowledged."""
    found = await pull_queue.pull(conn, asked.pop("tenant_id", 1), **asked)
    return [each.event.data.request_id for each in found]


async def ids(conn: Connection) -> list[int]:
    return [each.delivery_id for each in await pull_queue.pull(conn, 1)]


async def test_an_event_waits_until_it_is_acknowledged(database: Database) -> None:
    async with database.durable() as conn:
        made = await queue(conn)
        first, second = await emit(conn, 1), await emit(conn, 2)
        assert await pulled(conn) == await pulled(conn) == [first, second]
        (one, _) = await pull_queue.pull(conn, 1)
        assert orjson.loads(one.body)["metadata"]["eventSubscriptionId"] == made.endpoint_id.hex
        assert await pull_queue.acknowledge(conn, 1, [one.delivery_id]) == 1
        assert await pull_queue.acknowledge(conn, 1, [one.delivery_id, 10**9]) == 0
        assert await pulled(conn) == [second]


async def test_it_is_never_sent(database: Database) -> None:
    async with database.transaction() as conn:
        made = await queue(conn)
        await emit(conn, 1)
        await endpoints.send_test(conn, 1, ACCOUNT, made.endpoint_id)
        assert await due_sweep.take_due(conn, rehint_seconds=0) == []
        assert await claims.claim(conn, [made.endpoint_id], most=9, lease_seconds=9) == []
        assert [each.event.kind for each in await pull_queue.pull(conn, 1)] == ["batch.succeeded", "test"]
        (listed, _) = await deliveries.listing(conn, 1, made.endpoint_id)
        assert (listed.state, listed.next_attempt_at) == ("pending", None)


async def test_queues_and_accounts_are_separate_and_pages_continue(database: Database) -> None:
    async with database.durable() as conn:
        await queue(conn)
        await queue(conn, "other", of=EventFilter(model="@cf/other"))
        await queue(conn, tenant_id=2)
        mine = [await emit(conn, n) for n in range(3)]
        other = await emit(conn, 7, model="@cf/other")
        assert await pulled(conn, queue_id="other") == [other]
        assert await pulled(conn, queue_id="mine", limit=2) == mine[:2]
        after = (await ids(conn))[1]
        assert await pulled(conn, queue_id="mine", after=after) == [mine[2], other]
        assert await pulled(conn, tenant_id=2) == []
        assert await pull_queue.acknowledge(conn, 2, await ids(conn)) == 0
        for limit in (0, pull_queue.MOST + 1):
            with pytest.raises(BadInput):
                await pull_queue.pull(conn, 1, limit=limit)


async def test_a_reader_does_not_miss_an_event_that_was_committed_late(database: Database) -> None:
    async with database.durable() as conn, database.durable() as slow:
        await queue(conn)
        async with slow.transaction():
            late = await emit(slow, 1)
            soon = await emit(conn, 2)
            assert await pulled(conn) == [soon]
            await pull_queue.acknowledge(conn, 1, await ids(conn))
        assert await pulled(conn) == [late]


async def test_pausing_keeps_events_disabling_drops_them_and_enabling_takes_effect_at_once(database: Database) -> None:
    async with database.transaction() as conn:
        made = await queue(conn)
        before = await emit(conn, 1)
        await endpoints.switch(conn, 1, ACCOUNT, made.endpoint_id, "pause")
        meanwhile = await emit(conn, 2)
        assert await pulled(conn) == []
        assert (await endpoints.switch(conn, 1, ACCOUNT, made.endpoint_id, "enable")).state == EndpointState.ACTIVE
        assert await pulled(conn) == [before, meanwhile]
        await endpoints.switch(conn, 1, ACCOUNT, made.endpoint_id, "disable")
        await emit(conn, 3)
        await endpoints.switch(conn, 1, ACCOUNT, made.endpoint_id, "enable")
        assert await pulled(conn) == [before, meanwhile]


async def test_acknowledged_events_can_be_replayed(database: Database) -> None:
    async with database.durable() as conn:
        made = await queue(conn)
        request_id = await emit(conn, 1)
        (delivery_id,) = await ids(conn)
        await pull_queue.acknowledge(conn, 1, [delivery_id])
        await deliveries.redeliver(conn, 1, made.endpoint_id, delivery_id)
        assert await pulled(conn) == [request_id]
        assert await due_sweep.take_due(conn, rehint_seconds=0) == []


async def test_a_queue_has_no_secret_url_or_limits(database: Database, settings: Settings) -> None:
    async with database.durable() as conn:
        made = await queue(conn)
        one: dict[str, Any] = {"tenant_id": 1, "endpoint_id": made.endpoint_id}
        with pytest.raises(Conflict, match="no secret"):
            key = crypto.secret_key(settings)
            await endpoints.rotate_secret(conn, key=key, **one, secret=None, overlap_seconds=0)
        for change in ({"url": CheckedUrl("http://127.0.0.1:9/")}, {"limits": {"ordered": True}}):
            with pytest.raises(BadInput, match="pulled"):
                await endpoints.patch(conn, **one, **change)
        assert (await endpoints.patch(conn, **one, name="new")).name == "new"


async def test_events_that_nobody_pulls_do_not_prevent_retention_of_their_batch(database: Database) -> None:
    async with database.durable() as conn:
        made = await queue(conn)
        await _final_batch(conn, 5, made.endpoint_id)
        row = await (await conn.execute(retention_sql.IS_HELD, {"low": 0, "high": 9, "days": 1})).fetchone()
        assert row == (False,)
        await conn.execute("update endpoint set url = 'http://127.0.0.1:9', secret = 'x', queue_id = null")
        row = await (await conn.execute(retention_sql.IS_HELD, {"low": 0, "high": 9, "days": 1})).fetchone()
        assert row == (True,)


async def _final_batch(conn: Connection, batch_id: int, endpoint_id: UUID) -> None:
    await conn.execute(
        "insert into batch (batch_id, request_id, tenant_id, model, endpoint, total, deadline, state, finalized_at)"
        " values (%s, gen_random_uuid(), 1, 'm', 'e', 1, now(), 'completed', now() - interval '9 days')",
        [batch_id],
    )
    await emit(conn, batch_id)


async def test_old_events_of_no_batch_are_removed(database: Database) -> None:
    async with database.durable() as conn:
        made = await queue(conn)
        await endpoints.send_test(conn, 1, ACCOUNT, made.endpoint_id)
        await emit(conn, 1)
        values = {"days": 7, "limit": 10}
        assert (await conn.execute(retention_sql.FORGET_LOOSE, values)).rowcount == 0
        await conn.execute("update event set occurred_at = now() - interval '8 days'")
        assert (await conn.execute(retention_sql.FORGET_LOOSE, values)).rowcount == 1
        assert len(await ids(conn)) == 1
