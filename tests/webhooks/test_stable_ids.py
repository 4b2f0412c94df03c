"""Claims about the webhook-id of an event that is written again, because a failover or a restore has lost it."""

from typing import Any
from uuid import UUID, uuid4

import httpx

from app.db.pool import Connection, Database
from app.events import BatchData, EventKind
from app.settings import Settings
from app.webhooks import emitter
from tests.api.support import run_all, submit
from tests.webhooks.support import ACCOUNT, MODEL, subscribe


async def ids(conn: Connection) -> list[UUID]:
    """The ids of all events, which are then lost."""
    rows = await (await conn.execute("select message_id from event order by event_id")).fetchall()
    await conn.execute("delete from delivery")
    await conn.execute("delete from event")
    return [row[0] for row in rows]


async def emit(conn: Connection, request_id: UUID, **changes: Any) -> None:
    values: dict[str, Any] = {"tenant_id": 1, "kind": EventKind.BATCH_PROGRESS, "model": MODEL, "batch_id": 7, "run": 1}
    await emitter.emit(conn, data=BatchData(request_id=str(request_id), account_id=ACCOUNT), **values | changes)


async def test_an_event_of_a_batch_that_is_written_again_keeps_its_id_and_no_other_has_it(database: Database) -> None:
    one, other = uuid4(), uuid4()
    async with database.durable() as conn:
        await emit(conn, one)
        [first] = await ids(conn)
        await emit(conn, one)
        assert await ids(conn) == [first]
        assert str(first)[14] == "8"
        for changes in ({"run": 2}, {"n": 1}, {"kind": EventKind.BATCH_SUCCEEDED}):
            await emit(conn, one, **changes)
        await emit(conn, other)
        assert len({first, *await ids(conn)}) == 5


async def test_events_of_no_batch_have_random_ids(database: Database) -> None:
    async with database.durable() as conn:
        for _ in range(2):
            await emit(conn, UUID(int=0), kind=EventKind.BUDGET_SPENT, batch_id=None, run=None)
        assert len(set(await ids(conn))) == 2


async def test_an_event_of_an_item_that_is_written_again_keeps_its_id(
    client: httpx.AsyncClient, database: Database, settings: Settings
) -> None:
    await submit(client)
    await run_all(database)
    async with database.durable() as conn:
        [(batch_id,)] = await (await conn.execute("select batch_id from batch")).fetchall()
        await subscribe(conn, settings, "http://127.0.0.1:9/hook", kinds=[EventKind.ITEM_SUCCEEDED])
        await ids(conn)
        seen = []
        for _ in range(2):
            await emitter.emit_items(conn, batch_id=batch_id, run=1, seqs=[0, 1])
            seen.append(await ids(conn))
    assert len(set(seen[0])) == 2
    assert seen[0] == seen[1]
