"""Claims about events, the leases on deliveries, and their outcomes. These tests check the rows; nothing is sent."""

import asyncio
import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from app import clock
from app.changes import service as changes
from app.db.pool import Connection, Database
from app.settings import Settings
from app.states import EndpointState
from app.webhooks import claims as claiming
from app.webhooks import (
    deliveries,
    delivery_outcomes,
    due_sweep,
    endpoint_health,
    endpoint_state,
    endpoints,
    retry_policy,
)
from app.webhooks.claims import Claim
from app.webhooks.delivery_outcomes import Reaped
from app.webhooks.due_sweep import sweep
from app.webhooks.response_policy import Answer, DeliveryVerdict
from app.webhooks.validation import DeliveryLimits
from tests.webhooks.support import ACCOUNT, MODEL, emit, subscribe

URL = "http://127.0.0.1:9/hook"
NOW = datetime(2026, 11, 21, tzinfo=UTC)
OK, BROKEN = Answer(5, 200), Answer(5, 500, "http_5xx", b"oops")
DAYS = timedelta(days=5)


async def value(conn: Connection, query: str) -> Any:
    row = await (await conn.execute(query.encode())).fetchone()
    assert row is not None
    return row if len(row) > 1 else row[0]


async def claims(
    database: Database, endpoint_id: UUID | None = None, most: int = 100, lease: float = 60
) -> list[Claim]:
    async with database.transaction() as conn:
        of = endpoint_id or await value(conn, "select endpoint_id from endpoint")
        return await claiming.claim(conn, [of], most=most, lease_seconds=lease)


async def claimed(database: Database, lease: float = 60) -> Claim:
    (claim,) = await claims(database, lease=lease)
    return claim


async def record(database: Database, claim: Claim, answer: Answer) -> DeliveryVerdict | None:
    async with database.transaction() as conn:
        (verdict,) = await delivery_outcomes.record(conn, [(claim, answer)], patience=DAYS)
    return verdict


async def test_an_event_makes_one_delivery_per_matching_endpoint_once(database: Database, settings: Settings) -> None:
    async with database.durable() as conn:
        matching = [
            (await subscribe(conn, settings, URL))[0],
            (await subscribe(conn, settings, URL, model=MODEL, kinds=["batch.succeeded"]))[0],
        ]
        await subscribe(conn, settings, URL, model="@cf/other")
        await subscribe(conn, settings, URL, kinds=["batch.queued", "batch.failed"])
        await subscribe(conn, settings, URL, state=EndpointState.DISABLED)
        await subscribe(conn, settings, URL, tenant_id=2)
        await subscribe(conn, settings, URL, tags=["nightly"])
        for _ in range(3):
            await emit(conn, 7)
        rows = await (await conn.execute("select endpoint_id from delivery")).fetchall()
        assert {endpoint_id for (endpoint_id,) in rows} == {e.endpoint_id for e in matching}
        assert len(rows) == 2
        assert await value(conn, "select count(*) from event") == 1
        await emit(conn, 7, run=2)
        await emit(conn, 7, kind="batch.queued")
        assert await value(conn, "select count(*) from event") == 3


async def test_in_openais_format_a_batch_without_any_success_goes_to_subscribers_of_completed(
    database: Database, settings: Settings
) -> None:
    async with database.durable() as conn:
        done = await subscribe(conn, settings, URL, shape="openai", kinds=["batch.succeeded"])
        bad = await subscribe(conn, settings, URL, shape="openai", kinds=["batch.failed"])
        ours = await subscribe(conn, settings, URL, kinds=["batch.failed"])
        await subscribe(conn, settings, URL, kinds=["batch.succeeded"])
        await emit(conn, 7, kind="batch.failed")
        rows = await (await conn.execute("select endpoint_id from delivery")).fetchall()
        assert {endpoint_id for (endpoint_id,) in rows} == {done[0].endpoint_id, ours[0].endpoint_id}
        await conn.execute("delete from delivery")
        await emit(conn, None, kind="batch.failed")  # it was refused
        rows = await (await conn.execute("select endpoint_id from delivery")).fetchall()
        assert {endpoint_id for (endpoint_id,) in rows} == {bad[0].endpoint_id, ours[0].endpoint_id}
        await conn.execute("delete from delivery")
        long_ago, soon = (datetime.now(UTC) + timedelta(days=days) for days in (-1, 1))
        for endpoint, _ in (done, bad, ours):
            await deliveries.replay(conn, 1, endpoint.endpoint_id, since=long_ago, until=soon)
        rows = await (await conn.execute("select endpoint_id from delivery")).fetchall()
        assert {endpoint_id for (endpoint_id,) in rows} == {done[0].endpoint_id, ours[0].endpoint_id}


async def test_an_event_of_a_rolled_back_transaction_never_happened(database: Database, settings: Settings) -> None:
    async with database.durable() as conn:
        await subscribe(conn, settings, URL)
    with suppress(ZeroDivisionError):
        async with database.transaction() as conn:
            await emit(conn, 7)
            raise ZeroDivisionError
    async with database.durable() as conn:
        assert await value(conn, "select (select count(*) from event) + (select count(*) from delivery)") == 0


async def test_a_delivery_has_one_claim_at_a_time(database: Database, settings: Settings) -> None:
    async with database.durable() as conn:
        await subscribe(conn, settings, URL)
        await emit(conn, 7)
    claim = await claimed(database)
    assert (claim.attempt, claim.fence, claim.url) == (1, 1, URL)
    assert await claims(database) == []
    await record(database, claim, OK)
    assert await claims(database) == []
    async with database.durable() as conn:
        assert await value(conn, "select state, attempts from delivery") == ("delivered", 1)
        assert await value(conn, "select n, http_status, error_class, duration_ms from attempt") == (1, 200, None, 5)


async def test_a_late_outcome_is_rejected_by_the_fence(database: Database, settings: Settings) -> None:
    async with database.durable() as conn:
        await subscribe(conn, settings, URL)
        await emit(conn, 7)
    late = await claimed(database, lease=-1)
    async with database.durable() as conn:
        assert await delivery_outcomes.reap(conn) == Reaped(revived=1, dead=0)
    assert await record(database, late, OK) is None
    current = await claimed(database)
    assert current.attempt == 2
    assert current.event.webhook_id == late.event.webhook_id
    assert await record(database, late, BROKEN) is None
    async with database.durable() as conn:
        assert await value(conn, "select state, (select array_agg(error_class) from attempt) from delivery") == (
            "sending",
            ["sender_lost"],
        )
    assert await record(database, current, OK) is not None


async def test_a_failed_delivery_is_not_due_before_its_delay_is_over(database: Database, settings: Settings) -> None:
    async with database.durable() as conn:
        endpoint, _ = await subscribe(conn, settings, URL)
        await emit(conn, 7)
        assert await due_sweep.take_due(conn, rehint_seconds=30) == [endpoint.endpoint_id]
    before = clock.now()
    await record(database, await claimed(database), BROKEN)
    after = clock.now()
    assert await claims(database) == []
    async with database.durable() as conn:
        assert await due_sweep.take_due(conn, rehint_seconds=0) == []
        state, due = await value(conn, "select state, next_attempt_at from delivery")
        assert state == "pending"
        assert before + timedelta(seconds=3.9) < due < after + timedelta(seconds=6.1)
        assert await value(conn, "select http_status, response_body from attempt") == (500, b"oops")
        await conn.execute("update delivery set next_attempt_at = now()")
        assert await due_sweep.take_due(conn, rehint_seconds=30) == [endpoint.endpoint_id]


async def test_after_the_last_attempt_a_delivery_is_visibly_dead(database: Database, settings: Settings) -> None:
    async with database.durable() as conn:
        await subscribe(conn, settings, URL)
        await emit(conn, 7)
    for _ in range(retry_policy.ATTEMPTS):
        await record(database, await claimed(database), BROKEN)
        async with database.durable() as conn:
            await conn.execute("update delivery set next_attempt_at = now()")
            await conn.execute("update endpoint set open_until = null, failures = 0")
    async with database.durable() as conn:
        reason = "all 10 attempts failed, the last one with http_5xx"
        assert await value(conn, "select state, attempts, reason from delivery") == ("dead", 10, reason)
        assert await value(conn, "select count(*), max(n) from attempt") == (10, 10)
        assert await due_sweep.take_due(conn, rehint_seconds=0) == []


async def test_a_delivery_whose_notifier_dies_in_every_attempt_is_given_up(
    database: Database, settings: Settings
) -> None:
    async with database.durable() as conn:
        await subscribe(conn, settings, URL)
        await emit(conn, 7)
    for n in range(1, retry_policy.ATTEMPTS + 1):
        await claimed(database, lease=-1)
        async with database.durable() as conn:
            last = n == retry_policy.ATTEMPTS
            assert await delivery_outcomes.reap(conn) == Reaped(revived=int(not last), dead=int(last))
    async with database.durable() as conn:
        state, reason = await value(conn, "select state, reason from delivery")
        assert state == "dead"
        assert reason == "the notifier that sent it was lost, in the last of 10 attempts"


async def test_an_attempt_whose_notifier_was_lost_is_listed(database: Database, settings: Settings) -> None:
    async with database.durable() as conn:
        endpoint, _ = await subscribe(conn, settings, URL)
        await emit(conn, 7)
    lost = await claimed(database, lease=-1)
    async with database.durable() as conn:
        await delivery_outcomes.reap(conn)
    await record(database, await claimed(database), OK)
    async with database.durable() as conn:
        found, attempts = await deliveries.show(conn, 1, endpoint.endpoint_id, lost.delivery_id)
    assert [(attempt.n, attempt.error) for attempt in attempts] == [(1, "sender_lost"), (2, None)]
    assert all(attempt.duration_ms >= 0 for attempt in attempts)
    assert (found.state, found.attempts, found.reason) == ("delivered", 2, None)


async def test_a_redelivered_delivery_is_not_dead_and_has_no_reason(database: Database, settings: Settings) -> None:
    async with database.durable() as conn:
        endpoint, _ = await subscribe(conn, settings, URL)
        await emit(conn, 7)
    claim = await claimed(database)
    await record(database, claim, Answer(5, None, "ssrf_blocked"))
    async with database.durable() as conn:
        assert await value(conn, "select state, reason from delivery") == (
            "dead",
            "ssrf_blocked: another attempt cannot succeed",
        )
        await deliveries.redeliver(conn, 1, endpoint.endpoint_id, claim.delivery_id)
        assert await value(conn, "select state, reason from delivery") == ("pending", None)


@pytest.mark.parametrize(
    ("answer", "state", "reason"),
    [
        (Answer(5, 410, "http_410"), "dead", "the receiver answered 410 Gone"),
        (Answer(5, 200, control="disable"), "delivered", "the receiver asked for it"),
    ],
)
async def test_a_receiver_may_end_its_subscription_and_nothing_more_is_sent(
    database: Database, settings: Settings, answer: Answer, state: str, reason: str
) -> None:
    async with database.durable() as conn:
        await subscribe(conn, settings, URL)
        await emit(conn, 7)
    await record(database, await claimed(database), answer)
    async with database.durable() as conn:
        assert await value(conn, "select state from delivery") == state
        assert await value(conn, "select state, reason from endpoint") == ("disabled", reason)
        await emit(conn, 8)
        assert await value(conn, "select count(*) from delivery") == 1


async def test_a_receiver_may_end_one_delivery(database: Database, settings: Settings) -> None:
    async with database.durable() as conn:
        await subscribe(conn, settings, URL)
        await emit(conn, 7)
    await record(database, await claimed(database), Answer(5, 500, "http_5xx", control="abort-message"))
    async with database.durable() as conn:
        assert await value(conn, "select d.state, e.state, e.failures from delivery d, endpoint e") == (
            "dead",
            "active",
            0,
        )


async def test_an_endpoint_gets_only_test_events_until_it_has_accepted_one(
    database: Database, settings: Settings
) -> None:
    async with database.durable() as conn:
        await subscribe(conn, settings, URL, state=EndpointState.PENDING)
        await emit(conn, 7)
        assert await value(conn, "select count(*) filter (where state = 'held') from delivery") == 1
    probe = await claimed(database)
    assert (probe.probe, probe.event.kind) == (True, "test")
    await record(database, probe, BROKEN)
    assert await claims(database) == []
    async with database.durable() as conn:
        await conn.execute("update delivery set next_attempt_at = now() where probe")
    await record(database, await claimed(database), OK)
    assert (await claimed(database)).event.kind == "batch.succeeded"


async def test_events_of_a_paused_endpoint_wait_and_those_of_a_disabled_one_are_replayed(
    database: Database, settings: Settings
) -> None:
    async with database.transaction() as conn:
        endpoint, _ = await subscribe(conn, settings, URL)
        await emit(conn, 1)
        names = (conn, 1, ACCOUNT, endpoint.endpoint_id)
        await endpoints.switch(*names, "pause")
        await emit(conn, 2)
        assert await due_sweep.take_due(conn, rehint_seconds=0) == []
        assert await value(conn, "select count(*) filter (where state = 'held') from delivery") == 2
        assert (await endpoints.switch(*names, "enable")).state == "pending"
    await record(database, await claimed(database), OK)  # the test
    assert sorted(claim.event.data.request_id != "" for claim in await claims(database)) == [True, True]
    async with database.transaction() as conn:
        await endpoints.switch(conn, 1, ACCOUNT, endpoint.endpoint_id, "disable")
        await emit(conn, 3)
        assert await value(conn, "select count(*) from delivery where not probe") == 2


async def test_a_delivery_written_while_its_endpoint_changed_state_is_corrected(
    database: Database, settings: Settings
) -> None:
    async with database.durable() as conn:
        await subscribe(conn, settings, URL)
        await emit(conn, 1)
        await conn.execute("update delivery set state = 'held'")
        assert await endpoint_state.correct_held(conn) == 1
        assert await value(conn, "select state from delivery") == "pending"
        await conn.execute("update endpoint set state = 'paused'")
        assert await endpoint_state.correct_held(conn) == 1
        assert await value(conn, "select state from delivery") == "held"


async def test_failures_in_a_row_open_the_breaker_then_one_at_a_time_until_one_is_accepted(
    database: Database, settings: Settings
) -> None:
    async with database.durable() as conn:
        await subscribe(conn, settings, URL)
        for batch_id in range(8):
            await emit(conn, batch_id)
    for claim in (await claims(database))[: endpoint_health.FAILURES_IN_A_ROW]:
        await record(database, claim, BROKEN)
    async with database.durable() as conn:
        assert await value(conn, "select failures, open_until > now() from endpoint") == (
            endpoint_health.FAILURES_IN_A_ROW,
            True,
        )
        await conn.execute("update delivery set next_attempt_at = now(), state = 'pending', lease_until = null")
        assert await due_sweep.take_due(conn, rehint_seconds=0) == []
        assert await claims(database) == []
        await conn.execute("update endpoint set open_until = now() - interval '1 second'")
    (single,) = await claims(database)
    await record(database, single, OK)
    assert len(await claims(database)) == 7
    async with database.durable() as conn:
        closed, opened = await changes.page(conn, limit=10)
    assert (closed.kind, opened.kind) == ("breaker.closed", "breaker.opened")
    assert opened.data["failures"] == endpoint_health.FAILURES_IN_A_ROW
    assert opened.data["delivery"] == claim.delivery_id


async def test_simultaneous_failures_open_the_breaker_once_and_each_failed_trial_makes_the_next_pause_longer(
    database: Database, settings: Settings
) -> None:
    async with database.durable() as conn:
        await subscribe(conn, settings, URL)
        for batch_id in range(8):
            await emit(conn, batch_id)
    on_their_way = await claims(database)
    assert len(on_their_way) == 8
    *early, late = on_their_way
    for claim in early:
        await record(database, claim, BROKEN)
    pauses = [await pause(database)]
    async with database.durable() as conn:
        await conn.execute("update endpoint set open_until = now()")
        await conn.execute("update delivery set next_attempt_at = now() where state = 'pending'")
    for trial in (await claims(database), await claims(database)):  # one at a time: `late` is still in flight
        assert trial == []
    await record(database, late, BROKEN)
    for _ in range(3):
        async with database.durable() as conn:
            await conn.execute("update delivery set next_attempt_at = now() where state = 'pending'")
        (trial,) = await claims(database)
        await record(database, trial, BROKEN)
        pauses.append(await pause(database))
        async with database.durable() as conn:
            await conn.execute("update endpoint set open_until = now()")
    assert pauses == list(endpoint_health.PAUSES[:4])


async def pause(database: Database) -> float:
    """The pause that starts with the last opening of the breaker, rounded to one of `PAUSES`."""
    async with database.durable() as conn:
        left = await value(conn, "select extract(epoch from open_until - now())::float8 from endpoint")
    return min(step for step in endpoint_health.PAUSES if step >= left)


@pytest.mark.parametrize("hours", [-30, 30])
async def test_the_times_of_an_endpoint_come_from_the_databases_clock(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    monkeypatch.setattr(clock, "now", lambda: datetime.now(UTC) + timedelta(hours=hours))
    async with database.durable() as conn:
        await subscribe(conn, settings, URL)
        for batch_id in range(endpoint_health.FAILURES_IN_A_ROW):
            await emit(conn, batch_id)
    for claim in await claims(database):
        await record(database, claim, BROKEN)
    async with database.durable() as conn:
        for moment in ("open_until from endpoint", "failing_since from endpoint", "started_at from attempt limit 1"):
            column, _, rest = moment.partition(" ")
            assert await value(conn, f"select abs(extract(epoch from {column} - now())) < 600 {rest}"), column


async def test_no_more_deliveries_are_in_flight_than_the_endpoint_allows_whichever_notifier_claims(
    database: Database, settings: Settings
) -> None:
    async with database.durable() as conn:
        await subscribe(conn, settings, URL, limits=DeliveryLimits(max_in_flight=3))
        for batch_id in range(20):
            await emit(conn, batch_id)
    taken = await asyncio.gather(*(claims(database) for _ in range(4)))
    assert sum(map(len, taken)) == 3


async def test_no_more_deliveries_are_sent_in_a_second_than_the_endpoint_allows(
    database: Database, settings: Settings
) -> None:
    async with database.durable() as conn:
        await subscribe(conn, settings, URL, limits=DeliveryLimits(max_in_flight=64, max_per_second=5))
        for batch_id in range(20):
            await emit(conn, batch_id)
    assert len(await claims(database)) == 5
    assert len(await claims(database)) <= 1
    async with database.durable() as conn:
        await conn.execute("update endpoint set paced_until = now() + interval '0.4 seconds'")
    assert len(await claims(database)) == 3


async def test_deliveries_held_back_by_the_rate_are_hinted_once_it_allows_more_and_a_full_endpoint_is_not(
    database: Database, settings: Settings
) -> None:
    async with database.durable() as conn:
        endpoint, _ = await subscribe(conn, settings, URL, limits=DeliveryLimits(max_in_flight=2, max_per_second=2))
        for batch_id in range(4):
            await emit(conn, batch_id)
        assert await due_sweep.take_due(conn, rehint_seconds=3600) == [endpoint.endpoint_id]
    sent = await claims(database)
    assert (len(sent), await claims(database)) == (2, [])
    async with database.durable() as conn:
        await conn.execute("update endpoint set paced_until = now()")
        assert await due_sweep.take_due(conn, rehint_seconds=3600) == []  # as many are in flight as its limit allows
    for claim in sent:
        await record(database, claim, OK)
    async with database.durable() as conn:
        assert await due_sweep.take_due(conn, rehint_seconds=3600) == [endpoint.endpoint_id]


async def test_ordered_deliveries_of_one_batch_are_sent_one_after_the_other(
    database: Database, settings: Settings
) -> None:
    async with database.durable() as conn:
        await subscribe(conn, settings, URL, limits=DeliveryLimits(ordered=True))
        for batch_id in (1, 2):
            for kind in ("batch.queued", "batch.succeeded"):
                await emit(conn, batch_id, kind=kind)
    first = await claims(database)
    assert [claim.event.kind for claim in first] == ["batch.queued", "batch.queued"]
    await record(database, first[0], OK)
    assert [claim.event.kind for claim in await claims(database)] == ["batch.succeeded"]


async def test_an_endpoint_failing_for_days_is_disabled_its_owner_is_notified_and_one_success_resets_it(
    database: Database, settings: Settings
) -> None:
    async with database.durable() as conn:
        failing, _ = await subscribe(conn, settings, URL, kinds=["batch.succeeded"])
        other, _ = await subscribe(conn, settings, URL, kinds=["endpoint.failing", "endpoint.disabled"])
    for batch, (answer, fails) in enumerate([(BROKEN, True), (BROKEN, True), (OK, False), (BROKEN, True)]):
        async with database.durable() as conn:
            await emit(conn, batch)
        await record(database, (await claims(database, failing.endpoint_id))[0], answer)
        async with database.durable() as conn:
            query = f"select state, failing_since is not null from endpoint where endpoint_id = '{failing.endpoint_id}'"
            assert await value(conn, query) == ("active", fails)
    for days, kind in ((2.6, "endpoint.failing"), (6, "endpoint.disabled")):
        async with database.durable() as conn:
            await conn.execute("update endpoint set failing_since = now() - make_interval(secs => %s)", [days * 86_400])
            await emit(conn, int(days * 100))
        await record(database, (await claims(database, failing.endpoint_id))[0], BROKEN)
        assert kind in [claim.event.kind for claim in await claims(database, other.endpoint_id)]
    async with database.durable() as conn:
        state, reason = await value(
            conn, f"select state, reason from endpoint where endpoint_id = '{failing.endpoint_id}'"
        )
        assert state == "disabled"
        assert re.fullmatch(r"every attempt failed since \w{3} \d+ \w{3} \d\d:\d\d UTC", reason)


class Broker:
    """A fake of the broker's producer."""

    def __init__(self, takes: bool) -> None:
        self.takes = takes
        self.hints: list[UUID] = []

    async def endpoints(self, endpoint_ids: list[UUID]) -> bool:
        self.hints += endpoint_ids
        return self.takes


async def test_a_hint_is_published_once_until_it_counts_as_lost(database: Database, settings: Settings) -> None:
    async with database.durable() as conn:
        await subscribe(conn, settings, URL)
        await emit(conn, 7)
        broker = Broker(True)
        assert [await sweep(database, broker, settings) for _ in range(3)] == [1, 0, 0]
        await conn.execute("update endpoint set hinted_at = now() - interval '31 seconds'")
        assert await sweep(database, broker, settings) == 1


async def test_a_delivery_that_comes_when_all_are_claimed_is_hinted_again(
    database: Database, settings: Settings
) -> None:
    broker = Broker(True)
    async with database.durable() as conn:
        await subscribe(conn, settings, URL)
        await emit(conn, 1)
        assert await sweep(database, broker, settings) == 1
        await claimed(database)
        assert await sweep(database, broker, settings) == 0
        await emit(conn, 2)
        assert await sweep(database, broker, settings) == 1


async def test_hints_that_the_broker_refused_are_published_by_the_next_sweep(
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
