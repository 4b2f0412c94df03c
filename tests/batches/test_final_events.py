"""Claims about the events of batches that end together."""

from collections import Counter
from dataclasses import replace
from typing import Any

import orjson
import psycopg
import pytest

from app.batches import lifecycle
from app.db.pool import Connection, Database
from app.errors import BadInput
from app.queue import service
from app.queue.types import Kind, Result
from tests.queue import support

CUT, WHOLE = b'{"status": "incomplete"}', b'{"status": "completed", "text": "\\"incomplete\\""}'


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Those that were sent."""
    sent: list[str] = []
    execute = psycopg.AsyncCursor.execute

    async def counted(cursor: Any, query: Any, *arguments: Any, **options: Any) -> Any:
        if query:  # the check of a connection that was idle for a second has none
            sent.append(str(query))
        return await execute(cursor, query, *arguments, **options)

    monkeypatch.setattr(psycopg.AsyncCursor, "execute", counted)
    return sent


def error(code: int) -> bytes:
    return b'{"code": %d, "message": "no \\u0000"}' % code


OUTCOMES = (
    (Kind.RESPONSE, True, WHOLE, "response.completed"),
    (Kind.RESPONSE, True, CUT, "response.incomplete"),
    (Kind.RESPONSE, False, error(5001), "response.failed"),
    (Kind.BATCH, True, b"{}", "batch.succeeded"),
    (Kind.BATCH, False, error(BadInput.code), "batch.failed"),
    (Kind.BATCH, False, error(5001), "batch.failed"),
    (Kind.FLEX, True, WHOLE, None),
)


async def end(database: Database, tenant: int, pool: int, worker: int, times: int) -> dict[int, str | None]:
    """Run batches of one item of every outcome. Returns their ids and the event that each is to have."""
    expected: dict[int, str | None] = {}
    bodies = {}
    async with database.transaction() as conn:
        for kind, ok, body, event in OUTCOMES * times:
            batch = replace(await support.new_batch(conn, tenant, pool, 1), kind=kind)
            await support.put(conn, batch, [10])
            expected[batch.batch_id], bodies[batch.batch_id] = event, (ok, body)
    async with database.durable() as conn:
        while (lease := await support.claim(conn, pool, worker)) is not None:
            ok, body = bodies[lease.batch_id]
            await service.flush(conn, lease, [Result(0, ok, 1, 3, 1, 5, body, error="" if ok else "invalid")])
            await service.finish(conn, lease)
    return expected


async def events(conn: Connection) -> dict[int, list[tuple[str, int]]]:
    """The events of each batch, and their deliveries."""
    found: dict[int, list[tuple[str, int]]] = {}
    query = """select e.batch_id, kind, count(delivery_id) from event e left join delivery d using (event_id)
               group by e.event_id, 1, 2 order by e.event_id"""
    for batch_id, kind, deliveries in await (await conn.execute(query)).fetchall():
        found.setdefault(batch_id, []).append((kind, deliveries))
    return found


async def test_ending_many_batches_takes_as_many_statements_as_ending_few(
    database: Database, statements: list[str]
) -> None:
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
        worker = await support.make_worker(database, pool)
        await conn.execute(
            """insert into endpoint (tenant_id, name, url, kinds, state, secret)
               values (%s, 'e', 'https://e', '{response.incomplete,batch.succeeded}', 'active', '')""",
            [tenant],
        )
    counts = {}
    for times in (1, 12):
        expected = await end(database, tenant, pool, worker, times)
        statements.clear()
        async with database.transaction() as conn:
            settled = await lifecycle.settle(conn)
        counts[times] = len(statements)
        assert {batch.batch_id for batch in settled} == set(expected)
        async with database.relaxed() as conn:
            found = await events(conn)
        for batch_id, kind in expected.items():
            deliveries = int(kind in ("response.incomplete", "batch.succeeded"))
            assert found.get(batch_id, []) == ([(kind, deliveries)] if kind else [])
    assert counts[12] == counts[1]
    async with database.relaxed() as conn:
        told = "select data from event where kind = 'batch.failed'"
        reasons = Counter(
            orjson.loads(data)["internal_code"] for (data,) in await (await conn.execute(told)).fetchall()
        )
    assert reasons == {5006: 13, 5001: 13}
