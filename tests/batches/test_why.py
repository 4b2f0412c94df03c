"""Claims about the chain of reasons for which a batch waits, by the state of queue and engines, and about its cost."""

import asyncio
import re
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from app.batches import installation_status, lifecycle
from app.batches.phases import PhaseLog
from app.batches.why_chain import Polls, Why, explained
from app.db.pool import Connection, Database
from app.engines import overview
from app.engines import service as engines
from app.queue import chunk_sweeps, forecast_sql, reads, reaping, service
from app.queue.ingest import NewBatch
from app.queue.types import Lease
from app.tenants.service import Tenant
from tests.queue import support
from tests.queue.plans import Backlog, explain


async def why(database: Database, tenant_id: int, request_id: uuid.UUID) -> Why | None:
    """The chain of a batch as the routes read it; None: the tenant has no such batch."""
    [sight] = await reads.snapshots(database, [(tenant_id, request_id)])
    return None if sight is None else await explained(database, *sight)


@dataclass
class Scene:
    """A tenant, a pool with worker and engine, and a batch of four chunks."""

    database: Database
    conn: Connection
    tenant: int
    pool: int
    worker: int
    engine: int
    batch: NewBatch

    async def why(self) -> Why:
        found = await why(self.database, self.tenant, self.batch.request_id)
        assert found is not None
        return found

    async def waiting(self) -> tuple[str, str]:
        """Code and message of what holds the batch up; twice empty if nothing does."""
        link = (await self.why()).waiting
        return (link.code, link.message) if link else ("", "")

    async def report(
        self,
        reason: str,
        allowance: int,
        signal: str | None = None,
        value: float = 0,
        threshold: float = 0,
        *,
        ready: bool = True,
        **more: object,
    ) -> None:
        said = ({"signal": signal, "value": value, "threshold": threshold} if signal else {}) | more
        ok = await support.report_engine(
            self.conn,
            self.engine,
            self.worker,
            ready=ready,
            reason=reason,
            allowance=allowance,
            **said,  # type: ignore[arg-type]
        )
        assert ok

    async def aged(self, seconds: float) -> None:
        """As if everything had been as it is for so much longer."""
        await self.conn.execute("update engine set reason_since = reason_since - make_interval(secs => %s)", (seconds,))
        await self.conn.execute("update batch set opened_at = opened_at - make_interval(secs => %s)", (seconds,))

    async def claim(self) -> Lease:
        lease = await support.claim(self.conn, self.pool, self.worker)
        assert lease is not None
        return lease


@pytest.fixture
async def scene(database: Database) -> AsyncIterator[Scene]:
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
        worker = await support.make_worker(database, pool)
        batch = await support.submit(database, tenant, pool, 64)
        engine = await engines.take_engine(
            conn, pool_id=pool, worker_id=worker, name="engine-0", url="http://e", mode="attached"
        )
        assert engine is not None
        yield Scene(database, conn, tenant, pool, worker, engine, batch)


async def test_a_closed_gate_is_the_reason_with_signal_limit_and_time(scene: Scene) -> None:
    await scene.report("shrink_latency", 0, "step_seconds", 0.031, 0.025)
    await scene.aged(600)
    link = (await scene.why()).waiting
    assert link is not None
    assert link.code == "shrink_latency"
    assert "step time 31 ms, the aim is at most 25 ms, for 10 min" in link.message
    assert link.since is not None


async def test_since_is_kept_while_the_reason_is_and_begins_again_with_another(scene: Scene) -> None:
    await scene.report("closed_kv", 0, "kv_usage", 0.9, 0.85)
    await scene.aged(500)
    before = (await scene.why()).gates[0]
    await scene.report("closed_kv", 0, "kv_usage", 0.95, 0.85)
    again = (await scene.why()).gates[0]
    assert (again.since, again.value) == (before.since, 0.95)
    await scene.report("open", 16, "load", 1, 62)
    assert (await scene.why()).gates[0].since > before.since


@pytest.mark.parametrize("released", [False, True])
async def test_since_is_kept_where_a_new_worker_finds_the_engine_still_down(scene: Scene, released: bool) -> None:
    await scene.report("engine_down", 0, ready=False)
    await scene.aged(80)
    before = (await scene.why()).gates[0]
    if released:
        await engines.release_engine(scene.conn, scene.engine, scene.worker, lapsed=True)
    await scene.conn.execute("update worker set lease_until = now() - interval '1 s'")
    scene.worker = await support.make_worker(scene.database, scene.pool)
    assert await engines.take_engine(
        scene.conn, pool_id=scene.pool, worker_id=scene.worker, name="engine-0", url="http://e", mode="attached"
    )
    await scene.report("engine_down", 0, ready=False)
    assert (await scene.why()).gates[0].since == before.since
    await scene.report("open", 16, "load", 1, 62)
    assert (await scene.why()).gates[0].since > before.since


@pytest.mark.parametrize("row", ["worker", "engine"])
async def test_an_engine_that_died_with_its_worker_is_down_since_that_was_heard_of_last(scene: Scene, row: str) -> None:
    """Of a worker that was removed since then, its engine's last report is what is left."""
    await scene.report("open", 16, "load", 1, 62)
    await scene.conn.execute("update worker set renewed_at = now(), lease_until = now() - interval '1 s'")
    moment = "renewed_at" if row == "worker" else "heartbeat_at"
    [(heard,)] = await (await scene.conn.execute(f"select {moment} from {row}".encode())).fetchall()
    if row == "engine":
        await reaping.reap(scene.conn)
    scene.worker = await support.make_worker(scene.database, scene.pool)
    assert await engines.take_engine(
        scene.conn, pool_id=scene.pool, worker_id=scene.worker, name="engine-0", url="http://e", mode="attached"
    )
    await scene.report("engine_down", 0, ready=False)
    assert (await scene.why()).gates[0].since == heard


async def test_a_batch_does_not_wait_for_longer_than_it_exists(scene: Scene) -> None:
    await scene.report("closed_kv", 0, "kv_usage", 0.9, 0.85)
    await scene.conn.execute("update engine set reason_since = now() - interval '3 days'")
    link = (await scene.why()).waiting
    row = await (await scene.conn.execute("select opened_at from batch")).fetchone()
    assert link is not None
    assert row is not None
    assert link.since == row[0]
    assert link.message.endswith("for 3 days")


async def test_without_an_engine_the_reason_has_the_time_of_its_loss(scene: Scene) -> None:
    await scene.conn.execute("update worker set lease_until = now() - interval '1 s'")
    link = (await scene.why()).waiting
    assert link is not None
    assert (link.code, link.message) == ("no_engine", "no engine serves toy now; the batch is kept until one does")
    row = await (await scene.conn.execute("select heartbeat_at from engine")).fetchone()
    assert row is not None
    assert link.since == row[0]
    await scene.conn.execute("delete from engine")
    assert (await scene.waiting())[0] == "no_engine"


async def test_a_batch_whose_engine_serves_another_model_waits_since_it_was_seen_to_and_not_since_its_submit(
    scene: Scene,
) -> None:
    await scene.report("open", 16, "load", 1, 62)
    await service.finish(scene.conn, await scene.claim(), backoff_seconds=300)
    other = await support.make_pool(scene.conn, "other")
    await scene.conn.execute("update engine set pool_id = %s", (other,))
    link = (await scene.why()).waiting
    assert link is not None
    assert (link.code, link.since) == ("no_engine", None)
    await PhaseLog(scene.database).look()
    row = await (await scene.conn.execute("select at from batch_phase")).fetchone()
    link = (await scene.why()).waiting
    assert link is not None
    assert row is not None
    assert link.since == row[0]


async def test_a_batch_that_has_run_does_not_wait_its_turn_since_its_submit(scene: Scene) -> None:
    async def since() -> tuple[str, bool]:
        link = (await scene.why()).waiting
        assert link is not None
        return link.code, link.since is not None

    await scene.report("open", 16, "load", 1, 62)
    assert await since() == ("next", True)
    await service.finish(scene.conn, await scene.claim(), backoff_seconds=300)
    await scene.conn.execute("update chunk set state = 'ready', not_before = null where state = 'delayed'")
    assert await since() == ("allowance_spent", False)


async def test_an_engine_that_starts_or_is_down_is_distinguished_from_a_closed_gate(scene: Scene) -> None:
    assert (await scene.waiting())[0] == "engine_starting"
    await scene.report("engine_down", 0, ready=False)
    assert (await scene.waiting())[0] == "engine_down"


async def test_an_engine_that_is_dead_or_drained_is_no_engine_that_serves(scene: Scene) -> None:
    async def engine() -> tuple[str, bool]:
        [link] = [each for each in (await scene.why()).chain if each.code == "engines"]
        return link.message, link.met

    await scene.report("open", 16, "load", 1, 62)
    assert await engine() == ("1 engine serves toy", True)
    await scene.report("engine_down", 0, ready=False)
    assert await engine() == ("1 engine serves toy, but it does not answer", False)
    await scene.report("draining", 0)
    assert await engines.change_intake(scene.conn, "engine-0", "drain")
    assert await engine() == ("1 engine serves toy, but it is drained", False)


async def test_a_full_engine_is_not_one_that_is_as_it_should_be_for_work_that_waits(scene: Scene) -> None:
    for reason, met in (("open", True), ("full", False)):
        await scene.report(reason, 16, "load", 62, 62)
        assert [each.met for each in (await scene.why()).chain if each.code == reason] == [met]


async def test_one_open_engine_is_enough_and_without_any_the_last_to_close_counts(scene: Scene) -> None:
    await scene.report("closed_kv", 0, "kv_usage", 0.9, 0.85)
    await scene.aged(60)
    other = await engines.take_engine(
        scene.conn, pool_id=scene.pool, worker_id=scene.worker, name="engine-1", url="http://f", mode="attached"
    )
    assert other is not None
    await support.report_engine(scene.conn, other, scene.worker, ready=True, reason="closed_slots", allowance=0)
    assert (await scene.waiting())[0] == "closed_slots"
    await support.report_engine(scene.conn, other, scene.worker, ready=True, reason="open", allowance=4)
    assert (await scene.waiting())[0] == "next"
    chain = (await scene.why()).chain
    assert [link.code for link in chain] == ["engines", "open", "closed_kv", "next", "eta_unknown"]
    assert chain[-1].message.endswith("was not measured in the last hour")
    await scene.conn.execute("insert into pace values (%s, now() - interval '3 minutes', 7, 0)", (scene.pool,))
    message = (await scene.why()).chain[-1].message
    assert re.search(r"no item of \S+ has ended in the last 3 min", message)


async def test_a_paused_batch_is_paused_whatever_its_engines_do(scene: Scene) -> None:
    await lifecycle.change_state(scene.database, Tenant(scene.tenant, "acme"), scene.batch.request_id, "pause")
    code, message = await scene.waiting()
    assert (code, message) == ("paused", "the batch is paused; resume it to go on")


async def test_a_batch_that_is_wholly_with_an_engine_waits_for_nothing_until_the_gate_closes(scene: Scene) -> None:
    await scene.report("open", 16, "load", 1, 62)
    for _ in range(4):
        await scene.claim()
    assert await scene.waiting() == ("", "")
    assert "running" in [link.code for link in (await scene.why()).chain]
    await scene.report("closed_kv", 0, "kv_usage", 0.9, 0.85)
    assert await scene.waiting() == ("", "")  # for a moment: what is in the engine goes on
    await scene.aged(10)
    assert (await scene.waiting())[0] == "closed_kv"


async def test_a_batch_that_runs_with_others_at_full_speed_does_not_wait(scene: Scene) -> None:
    await scene.report("open", 16, "load", 1, 62)
    await scene.claim()
    found = await scene.why()
    assert found.waiting is None
    assert "16 claimed by a worker, 48 queued" in [link.message for link in found.chain]
    assert "every place for batch work is taken, 16 requests in all" in [link.message for link in found.chain]
    other = await support.make_tenant(scene.conn, "other", 3)
    theirs = await support.submit(scene.database, other, scene.pool, 16)
    found = await scene.why()
    assert found.waiting is None
    assert "fair_share" in [link.code for link in found.chain]
    behind = await why(scene.database, other, theirs.request_id)
    assert behind is not None
    assert behind.waiting is not None
    assert behind.waiting.code == "fair_share"


async def test_items_that_run_alone_are_the_reason_and_not_the_allowance(scene: Scene) -> None:
    await scene.report("open", 14, "load", 1, 62)
    assert await service.finish(scene.conn, await scene.claim(), suspects=[0, 1])
    leases = [await scene.claim() for _ in range(3)]
    assert "suspects" not in [link.code for link in (await scene.why()).chain]
    await chunk_sweeps.promote(scene.conn)
    leases += [await scene.claim(), await scene.claim()]
    assert any(lease.deaths for lease in leases)
    found = {link.code: link.message for link in (await scene.why()).chain}
    assert found["suspects"] == "items that were in an engine or a worker that died run one at a time first"
    assert "allowance_spent" not in found


async def test_an_engine_that_is_being_started_moves_the_end_by_as_long_as_that_takes(scene: Scene) -> None:
    await scene.conn.execute("insert into pace values (%s, now(), 0, 100, 0.1)", (scene.pool,))
    await scene.report("open", 16, "load", 1, 62)
    before = (await scene.why()).estimate
    await scene.report("engine_down", 0, ready=False, start_seconds=40, expected_seconds=30)
    found = await scene.why()
    assert before
    assert before.eta_seconds
    assert found.estimate
    assert found.waiting
    assert found.estimate.eta_seconds == pytest.approx(before.eta_seconds + 30, abs=2)
    assert found.waiting.message.startswith("engine-0 does not answer, for ")
    assert "back in about 30 s if it takes as long as lately" in found.waiting.message
    assert await engines.start_seconds(scene.conn, scene.engine) == 40


async def test_an_engine_of_our_own_that_was_killed_is_told_as_the_status_tells_it(scene: Scene) -> None:
    await scene.conn.execute("update engine set mode = 'managed'")
    ended = "it was killed (SIGKILL)"
    await scene.report("engine_down", 0, ready=False, start_seconds=40, expected_seconds=30, detail=ended)
    [told] = await overview.recent_engines(scene.conn)
    [view] = installation_status.describe([told], None)["engines"]
    code, message = await scene.waiting()
    assert code == "engine_starting"
    assert message.startswith("engine-0 does not answer, for ")
    for said in (message, view["message"]):
        assert f": {ended}, and is started again" in said


async def test_unreadable_telemetry_is_shown_with_the_metric_that_is_missing(scene: Scene) -> None:
    lacks = "/metrics has no vllm:kv_cache_usage_perc"
    await scene.report("closed_unknown", 0, "telemetry", 0, 1, detail=lacks)
    code, message = await scene.waiting()
    assert code == "closed_unknown"
    assert message.startswith("engine-0 sends no telemetry that can be read, for ")
    assert message.endswith(f": {lacks}")


async def test_items_that_rest_before_another_try_are_the_reason_only_if_nothing_else_can_run(scene: Scene) -> None:
    await scene.report("open", 16, "load", 1, 62)
    for _ in range(4):
        await service.finish(scene.conn, await scene.claim(), backoff_seconds=300)
    code, message = await scene.waiting()
    assert code == "backoff"
    assert message == "64 items will be tried again, the next in 5 min"
    await scene.conn.execute("update chunk set state = 'ready', not_before = null where lo = 0")
    assert (await scene.waiting())[0] != "backoff"


async def test_the_fair_order_counts_what_is_ahead_and_who_shares(scene: Scene) -> None:
    await scene.report("open", 16, "load", 1, 62)
    later = await support.submit(scene.database, scene.tenant, scene.pool, 16)
    other = await support.make_tenant(scene.conn, "other", 3)
    await support.submit(scene.database, other, scene.pool, 16)
    found = await why(scene.database, scene.tenant, later.request_id)
    assert found is not None
    assert found.waiting is not None
    assert found.waiting.code == "fair_share"
    assert found.waiting.message == "2 accounts at work, this one's share is 25%, behind 1 batch of its own"
    assert await why(scene.database, other, later.request_id) is None


async def test_behind_batches_of_its_own_account_alone_a_batch_says_how_many(scene: Scene) -> None:
    await scene.report("open", 16, "load", 1, 62)
    await scene.claim()
    last = [await support.submit(scene.database, scene.tenant, scene.pool, 1) for _ in range(2)][-1]
    found = await why(scene.database, scene.tenant, last.request_id)
    assert found is not None
    assert found.waiting is not None
    assert (found.waiting.code, found.waiting.message) == ("own_batches", "behind 2 batches of its account")


async def test_an_account_at_its_limit_is_a_reason_to_wait(scene: Scene) -> None:
    await scene.report("open", 16, "load", 1, 62)
    await scene.claim()
    await scene.conn.execute("update tenant set max_inflight_tokens = 1000")
    code, message = await scene.waiting()
    assert code == "account_limit"
    assert message == "the account has 1,600 tokens in flight, the limit is 1,000 tokens"


async def test_a_final_batch_and_one_in_its_last_moments_wait_for_nothing(scene: Scene) -> None:
    await scene.report("open", 16, "load", 1, 62)
    await support.drain(scene.database, scene.pool, scene.worker)
    found = await scene.why()
    assert [link.code for link in found.chain] == ["settling"]
    assert found.waiting is None
    await support.settle(scene.database)
    found = await scene.why()
    assert (found.chain, found.waiting) == ((), None)
    assert await why(scene.database, scene.tenant, uuid.uuid4()) is None


async def test_polls_at_the_same_time_share_a_look_and_each_gets_its_own_answer(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = await support.submit(scene.database, scene.tenant, scene.pool, 16)
    ids = [scene.batch.request_id, later.request_id, uuid.uuid4()]
    looks: list[int] = []

    async def counting(database: Database, asked: list[tuple[int, uuid.UUID]]) -> list[reads.BatchSnapshot | None]:
        looks.append(len(asked))
        return await sights(database, asked)

    sights = reads.snapshots
    monkeypatch.setattr(reads, "snapshots", counting)
    polls = Polls(scene.database)
    answers = await asyncio.gather(*(polls.why(scene.tenant, ids[n % 3]) for n in range(30)))
    found = [answer and answer.status.request_id for answer in answers]
    assert found == [None if n % 3 == 2 else ids[n % 3] for n in range(30)]
    assert len(looks) <= 2
    assert sum(looks) == 30


async def test_a_poll_never_returns_a_state_from_before_it_arrived(scene: Scene) -> None:
    polls = Polls(scene.database)
    assert (await asyncio.gather(polls.why(scene.tenant, scene.batch.request_id)))[0] is not None
    await lifecycle.change_state(scene.database, Tenant(scene.tenant, "acme"), scene.batch.request_id, "pause")
    answer = await polls.why(scene.tenant, scene.batch.request_id)
    assert answer is not None
    assert answer.status.state == "paused"


async def test_a_database_that_fails_fails_every_poll_of_the_look_and_not_the_next(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(database: Database, asked: list[tuple[int, uuid.UUID]]) -> list[reads.BatchSnapshot | None]:
        raise TimeoutError

    polls = Polls(scene.database)
    with monkeypatch.context() as patched:
        patched.setattr(reads, "snapshots", failing)
        asked = (polls.why(scene.tenant, scene.batch.request_id) for _ in range(3))
        assert [type(each) for each in await asyncio.gather(*asked, return_exceptions=True)] == [TimeoutError] * 3
    assert await polls.why(scene.tenant, scene.batch.request_id) is not None


@pytest.mark.parametrize("prepared", [False, True], ids=["planned for its parameters", "planned once for all"])
def test_the_answer_reads_only_the_chunks_of_its_batch(backlog: Backlog, prepared: bool) -> None:
    [batch] = backlog.one("select max(batch_id) from chunk")
    plan = explain(backlog.conn, forecast_sql.OUTLOOKS, {"batch_ids": [batch]}, prepared=prepared)
    assert plan.scanned == []
    assert plan.pages < 120, plan  # of which two for each account, whose weight is looked up
