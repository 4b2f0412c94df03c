"""Claims about events, claims of deliveries and their outcomes, on the rows alone."""

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from app.db import migrate
from app.db.pool import Connection, Database
from app.settings import Settings
from app.webhooks import schedule, service
from app.webhooks.schedule import Answer
from app.webhooks.service import Claim
from app.webhooks.sweep import sweep
from tests.webhooks.support import MODEL, emit, subscribe

URL = "http://127.0.0.1:9/hook"
NOW = datetime(2026, 11, 21, tzinfo=UTC)
OK, BROKEN = Answer(NOW, 5, 200), Answer(NOW, 5, 500, "http_5xx", b"oops")


async def value(conn: Connection, query: str) -> Any:
    row = await (await conn.execute(query.encode())).fetchone()
    assert row is not None
    return row if len(row) > 1 else row[0]


async def claimed(conn: Connection, lease: float = 60) -> Claim:
    claim = await service.claim(conn, await value(conn, "select delivery_id from delivery"), lease_seconds=lease)
    assert claim is not None
    return claim


async def record(database: Database, claim: Claim, answer: Answer, days: float = 5) -> schedule.Verdict | None:
    async with database.transaction() as conn:
        return await service.record_attempt(conn, claim, answer, disable_days=days)


def test_the_schema_is_what_the_tables_say(database_url: str) -> None:
    assert migrate.drift(database_url) == []


async def test_an_event_makes_one_delivery_per_matching_endpoint_once(database: Database, settings: Settings) -> None:
    async with database.durable() as conn:
        matching = [
            (await subscribe(conn, settings, URL))[0],
            (await subscribe(conn, settings, URL, model=MODEL, kinds=["batch.succeeded"]))[0],
        ]
        await subscribe(conn, settings, URL, model="@cf/other")
        await subscribe(conn, settings, URL, kinds=["batch.queued", "batch.failed"])
        await subscribe(conn, settings, URL, enabled=False)
        await subscribe(conn, settings, URL, tenant_id=2)
        for _ in range(3):
            await emit(conn, 7)
        rows = await (await conn.execute("select endpoint_id from delivery")).fetchall()
        assert {endpoint_id for (endpoint_id,) in rows} == {e.endpoint_id for e in matching}
        assert len(rows) == 2
        assert await value(conn, "select count(*) from event") == 1
        await emit(conn, 7, run=2)
        await emit(conn, 7, kind="batch.queued")
        assert await value(conn, "select count(*) from event") == 3


async def test_an_event_of_a_rolled_back_transaction_never_happened(database: Database, settings: Settings) -> None:
    async with database.durable() as conn:
        await subscribe(conn, settings, URL)
    with suppress(ZeroDivisionError):
        async with database.transaction() as conn:
            await emit(conn, 7)
            raise ZeroDivisionError
    async with database.durable() as conn:
        assert await value(conn, "select (select count(*) from event) + (select count(*) from delivery)") == 0


async def test_a_delivery_has_one_holder_at_a_time(database: Database, settings: Settings) -> None:
    async with database.durable() as conn:
        await subscribe(conn, settings, URL)
        await emit(conn, 7)
        claim = await claimed(conn)
        assert (claim.attempt, claim.fence, claim.url) == (1, 1, URL)
        assert await service.claim(conn, claim.delivery_id, lease_seconds=60) is None
    await record(database, claim, OK)
    async with database.durable() as conn:
        assert await service.claim(conn, claim.delivery_id, lease_seconds=60) is None
        assert await value(conn, "select state, attempts from delivery") == ("delivered", 1)
        assert await value(conn, "select n, http_status, error_class, duration_ms from attempt") == (1, 200, None, 5)


async def test_a_late_outcome_is_rejected_by_the_fence(database: Database, settings: Settings) -> None:
    async with database.durable() as conn:
        await subscribe(conn, settings, URL)
        await emit(conn, 7)
        late = await claimed(conn, lease=-1)
        assert await service.reap(conn) == service.Care(revived=1, dead=0)
        assert await record(database, late, OK) is None
        current = await claimed(conn)
        assert current.attempt == 2
        assert current.event.webhook_id == late.event.webhook_id
        assert await record(database, late, BROKEN) is None
        assert await value(conn, "select state, (select count(*) from attempt) from delivery") == ("sending", 0)
    assert await record(database, current, OK) is not None


async def test_a_failed_attempt_waits_for_its_time(database: Database, settings: Settings) -> None:
    async with database.durable() as conn:
        await subscribe(conn, settings, URL)
        await emit(conn, 7)
        assert len(await service.overdue(conn, rehint_seconds=30)) == 1
        claim = await claimed(conn)
        await record(database, claim, BROKEN)
        assert await service.overdue(conn, rehint_seconds=0) == []
        assert await service.claim(conn, claim.delivery_id, lease_seconds=60) is None
        state, wait = await value(conn, "select state, extract(epoch from next_attempt_at - now()) from delivery")
        assert state == "pending"
        assert 3.5 < wait < 6.1
        assert await value(conn, "select http_status, response_body from attempt") == (500, b"oops")
        await conn.execute("update delivery set next_attempt_at = now()")
        assert await service.overdue(conn, rehint_seconds=30) == [claim.delivery_id]


async def test_after_the_last_attempt_a_delivery_is_visibly_dead(database: Database, settings: Settings) -> None:
    async with database.durable() as conn:
        await subscribe(conn, settings, URL)
        await emit(conn, 7)
        for _ in range(schedule.ATTEMPTS):
            await record(database, await claimed(conn), BROKEN)
            await conn.execute("update delivery set next_attempt_at = now()")
        assert await value(conn, "select state, attempts from delivery") == ("dead", 10)
        assert await value(conn, "select count(*), max(n) from attempt") == (10, 10)
        assert await service.overdue(conn, rehint_seconds=0) == []


async def test_a_delivery_that_kills_its_sender_every_time_ends(database: Database, settings: Settings) -> None:
    async with database.durable() as conn:
        await subscribe(conn, settings, URL)
        await emit(conn, 7)
        for _ in range(schedule.ATTEMPTS - 1):
            await claimed(conn, lease=-1)
            assert await service.reap(conn) == service.Care(revived=1, dead=0)
        await claimed(conn, lease=-1)
        assert await service.reap(conn) == service.Care(revived=0, dead=1)
        assert await value(conn, "select state from delivery") == "dead"


async def test_410_disables_the_endpoint_and_nothing_more_is_sent(database: Database, settings: Settings) -> None:
    async with database.durable() as conn:
        await subscribe(conn, settings, URL)
        await emit(conn, 7)
        await record(database, await claimed(conn), Answer(NOW, 5, 410, "http_410"))
        assert await value(conn, "select state from delivery") == "dead"
        reason = "the receiver answered 410 Gone"
        assert await value(conn, "select enabled, disabled_reason from endpoint") == (False, reason)
        await emit(conn, 8)
        assert await value(conn, "select count(*) from delivery") == 1


async def test_what_waits_for_a_disabled_endpoint_is_sent_when_it_is_enabled(
    database: Database, settings: Settings
) -> None:
    async with database.durable() as conn:
        await subscribe(conn, settings, URL)
        await emit(conn, 7)
        await conn.execute("update endpoint set enabled = false")
        delivery_id = await value(conn, "select delivery_id from delivery")
        assert await service.overdue(conn, rehint_seconds=0) == []
        assert await service.claim(conn, delivery_id, lease_seconds=60) is None
        await conn.execute("update endpoint set enabled = true")
        assert await service.overdue(conn, rehint_seconds=0) == [delivery_id]
        assert await service.claim(conn, delivery_id, lease_seconds=60) is not None


async def test_an_endpoint_failing_for_days_is_disabled_and_one_success_starts_afresh(
    database: Database, settings: Settings
) -> None:
    async with database.durable() as conn:
        await subscribe(conn, settings, URL)
        for batch, (answer, failing) in enumerate([(BROKEN, True), (BROKEN, True), (OK, False), (BROKEN, True)]):
            await conn.execute("delete from delivery")
            await emit(conn, batch)
            await record(database, await claimed(conn), answer)
            assert await value(conn, "select enabled, failing_since is not null from endpoint") == (True, failing)
        await conn.execute("update endpoint set failing_since = now() - interval '6 days'")
        await conn.execute("delete from delivery")
        await emit(conn, 99)
        await record(database, await claimed(conn), BROKEN)
        enabled, reason = await value(conn, "select enabled, disabled_reason from endpoint")
        assert not enabled
        assert reason.startswith("every attempt failed since")


class Broker:
    """Stands for the broker's producer."""

    def __init__(self, takes: bool) -> None:
        self.takes = takes
        self.hints: list[int] = []

    async def deliveries(self, delivery_ids: list[int]) -> bool:
        self.hints += delivery_ids
        return self.takes


async def test_a_hint_is_given_once_until_it_counts_as_lost(database: Database, settings: Settings) -> None:
    async with database.durable() as conn:
        await subscribe(conn, settings, URL)
        await emit(conn, 7)
        broker = Broker(True)
        assert [await sweep(database, broker, settings) for _ in range(3)] == [1, 0, 0]
        await conn.execute("update delivery set hinted_at = now() - interval '31 seconds'")
        assert await sweep(database, broker, settings) == 1


async def test_hints_that_the_broker_refused_are_tried_in_the_next_round(
    database: Database, settings: Settings
) -> None:
    async with database.durable() as conn:
        await subscribe(conn, settings, URL)
        await emit(conn, 7)
    broker = Broker(False)
    assert await sweep(database, broker, settings) == 0
    broker.takes = True
    assert await sweep(database, broker, settings) == 1
    assert len(broker.hints) == 2
