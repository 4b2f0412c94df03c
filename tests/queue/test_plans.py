"""PostgreSQL's plans for the queue's statements with a million open items: the pages read do not grow with the backlog.

Each statement is explained with real parameters and rolled back, with a custom and with a generic plan (psycopg prepares a
statement after a few executions). Pages decide, not time.
"""

import asyncio
from typing import cast

import psycopg
import pytest
from psycopg.types.json import Jsonb

from app.db.day_tables import on_day
from app.db.pool import Connection
from app.engines import engine_report
from app.engines.engine_report import EngineReport
from app.pipelines import feeding_sql
from app.queue import (
    batch_state_sql,
    charges,
    chunk_sweeps_sql,
    expiry,
    failure_sql,
    fair_order_sql,
    forecast_sql,
    handoff_sql,
    heartbeat_sql,
    listing_sql,
    read_sql,
    reaping_sql,
    response_log_sql,
    service,
    settling_sql,
    worker_sql,
)
from app.queue.types import Lease, Result
from app.states import BatchState
from tests import timing
from tests.queue.plans import BATCHES, CHUNKS, ITEMS, PATIENT, PER_BATCH, TENANTS, Backlog, Parameters, explain

SHARED = 400  # chunks leased by workers


# Everything that is not simply waiting: leased chunks of live and lost workers, returned chunks, and batches in every state.
UNREST = """
insert into worker (pool_id, host, pid, lease_until)
  select 1, 'test', g, now() + make_interval(secs => case when g > 1 then 3600 else -1 end) from generate_series(1, 9) g;
update chunk set state = 'leased', token = 1, worker_id = (select min(worker_id) from worker) + chunk_id % 9
  where chunk_id % 200 = 7;
update chunk set deadline = now() + interval '5 minutes' where chunk_id % 200 = 9;
update chunk set done = 1 where chunk_id % 100 = 11;
update chunk set state = 'delayed', not_before = now() + make_interval(secs => case when chunk_id % 400 = 8 then -1 else 60 end)
  where chunk_id % 40 = 8;
update batch set state = 'paused' where state = 'open' and batch_id % 50 = 1;
update batch set state = 'cancelling' where state = 'open' and batch_id % 50 = 2;
update batch set expires_at = now() - interval '1 second' where state = 'open' and batch_id % 50 = 3;
update chunk set state = 'held', worker_id = null, not_before = null
  where batch_id in (select batch_id from batch where state = 'open' and batch_id % 50 = 4);
insert into batch_delta (batch_id, ok, failed, prompt_tokens, cached_tokens, completion_tokens)
  select batch_id, 1, 0, 0, 0, 0 from batch where state = 'open' and batch_id % 20 = 5;
insert into sched_delta (pool_id, tenant_id, est_tokens, used_tokens, served_tokens)
  select 1, 1 + g % 25, 6400, 5000, 6400 from generate_series(1, 1000) g;
"""

# Five thousand open stages, each with a child, of which three have handed everything on, and as many markers of the others.
STAGES = """
insert into batch (batch_id, request_id, tenant_id, model, endpoint, total, deadline, kind, pipeline_id, parent_id, feeds, fed,
                   state, finalized_at)
  select %(first)s + g, gen_random_uuid(), 1, 'toy', '/v1/chat/completions', 0, now() + interval '1 day', 'stage',
         %(first)s + g - g %% 2, case when g %% 2 = 1 then %(first)s + g - 1 end, g %% 2 = 0, g %% 2 = 1,
         case when g in (0, 2, 4) then 'completed' else 'open' end, case when g in (0, 2, 4) then now() end
  from generate_series(0, 9999) g"""
MARKERS = """
insert into handoff (batch_id, run, seqs, bytes)
  select %(first)s + 2 * g, 1, array[1, 2, 3], 300 from generate_series(3, 4999) g"""


def test_a_claim_from_a_million_items_costs_what_one_from_ten_thousand_does(backlog: Backlog) -> None:
    assert backlog.one("select sum(n) from chunk") == (CHUNKS * ITEMS,)
    timing.note(f"pages per claim: {backlog.large_claim} of 1,000,000 items, {backlog.small_claim} of 10,000")
    # A claim looks at 16 accounts, and reads two pages for the weight of each; ten thousand items are of seven.
    assert backlog.large_claim <= 80
    assert backlog.large_claim - backlog.small_claim <= 2 * 16


def flood(backlog: Backlog) -> None:
    """One tenant with 1,000 chunks in a pool of its own."""
    backlog.conn.execute(
        """insert into chunk (batch_id, run, tenant_id, pool_id, lo, hi, n, est_tokens, deadline)
           select %s, 1, 1, 2, g * 64, g * 64 + 63, 64, 6400, now() from generate_series(1, 1000) g""",
        (backlog.day - 1,),
    )
    backlog.settle_statistics()


def run_chunks(backlog: Backlog, pool: int, chunks: int) -> int:
    """Claim, flush and finish so many chunks. Returns the number of items."""
    done = 0
    for number in range(chunks):
        row = backlog.one(fair_order_sql.CLAIM[1], backlog.claim | {"pool_id": pool})
        lease = Lease(*row)
        assert backlog.one(*flushing(lease)) == (1,)
        assert backlog.one(on_day(worker_sql.FINISH, lease.batch_id), finishing(lease)) == (64,)
        done += lease.n
        if number % 100 == 99:
            for table in ("chunk", "sched", "worker", "batch_delta", "sched_delta"):
                backlog.conn.execute(f"vacuum {table}")
    return done


class Recorder:
    """A fake connection that records the last statement."""

    def __init__(self) -> None:
        self.asked: tuple[str, list[object]] = ("", [])

    async def execute(self, statement: str, parameters: list[object], *, binary: bool) -> "Recorder":
        self.asked = (statement, parameters)
        return self

    async def fetchone(self) -> tuple[int]:
        return (1,)


def flushing(lease: Lease, *, feeds: bool = False) -> tuple[str, list[object]]:
    """The statement and the parameters of a flush of the whole chunk."""
    recorder = Recorder()
    results = [Result(seq, True, 1, 3, 1, 5, b"{}") for seq in range(lease.lo, lease.hi + 1)]
    assert asyncio.run(service.flush(cast(Connection, recorder), lease, results, feeds=feeds))
    return recorder.asked


def heartbeat_of(workers: list[int]) -> tuple[str, Parameters]:
    """The statement and the parameters of a heartbeat of hungry workers with engines."""
    reports = [(1, worker, EngineReport(True, "open", 8, hungry=True)) for worker in workers]
    names = {"worker_ids": workers, "hungry": [True] * len(workers), "lease_seconds": 30.0}
    return heartbeat_sql.HEARTBEAT, names | engine_report.columns(reports)


def finishing(lease: Lease) -> dict[str, object]:
    return {
        "chunk_id": lease.chunk_id,
        "token": lease.token,
        "worker_id": lease.worker_id,
        "batch_id": lease.batch_id,
        "run": lease.run,
        "backoff_seconds": 0.0,
        "suspects": [],
        "engine_ms": 640,
        "unrun": 0,
        "first_tokens": bytes(64),
        "durations": bytes(64),
        "retried": [],
        "retry_seconds": 0.0,
        "split": False,
    }


@pytest.mark.parametrize(("pool", "who"), [(1, "25 tenants"), (2, "one tenant")])
def test_an_old_snapshot_left_open_makes_a_claim_at_most_three_times_as_dear(
    backlog: Backlog, pool: int, who: str
) -> None:
    """The usual failure of queues in PostgreSQL: VACUUM can remove no row that was deleted since the snapshot."""
    if pool == 2:
        flood(backlog)
    before = backlog.pages_of_a_claim(pool_id=pool)
    with psycopg.connect(backlog.url, options=PATIENT) as old:
        old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        old.execute("select count(*) from chunk")
        items = run_chunks(backlog, pool, 200)
        pinned = backlog.pages_of_a_claim(pool_id=pool)
    backlog.settle_statistics()
    after = backlog.pages_of_a_claim(pool_id=pool)
    timing.note(
        f"pages per claim, {who}: {before}; {pinned} after {items} items under an old snapshot; {after} after it"
    )
    assert pinned <= 3 * before
    assert after <= 1.5 * before


def test_a_worker_finds_its_chunk_by_the_key_though_no_other_chunk_is_leased(backlog: Backlog) -> None:
    """The index of leased chunks by worker then seems cheaper, but every chunk that the worker has had is still in it."""
    events = {"count": 1, "body": b""}
    with backlog.conn.transaction(force_rollback=True):
        lease = Lease(*backlog.one(fair_order_sql.CLAIM[1], backlog.claim))
        fence = {name: getattr(lease, name) for name in ("chunk_id", "token", "worker_id", "batch_id")}
        plans = (
            explain(backlog.conn, *flushing(lease), prepared=True),
            explain(backlog.conn, on_day(worker_sql.FINISH, lease.batch_id), finishing(lease), prepared=True),
            explain(backlog.conn, response_log_sql.APPEND_EVENTS, fence | events, prepared=True),
        )
    assert [{name for name in plan.indexes if name.startswith("chunk_")} for plan in plans] == [{"chunk_pkey"}] * 3


# ---------------------------------------------------------------- plans


@pytest.fixture(scope="module")
def unrest(backlog: Backlog) -> Backlog:
    """The backlog with rows in every state, and 20,000 batches that have ended."""
    numbers = {"day": backlog.day, "tenants": TENANTS, "per_batch": PER_BATCH}
    ended = {"first": 100_000, "last": 120_000, "state": "completed", "final": True}
    backlog.conn.execute(BATCHES, numbers | ended)
    backlog.conn.execute(UNREST)
    for statement in (STAGES, MARKERS):
        backlog.conn.execute(statement, {"first": first_stage(backlog)})
    backlog.settle_statistics()
    return backlog


def first_stage(backlog: Backlog) -> int:
    return backlog.day + (1 << 29)


def statements(backlog: Backlog) -> dict[str, tuple[str, Parameters]]:
    """Each statement with parameters that find work."""
    day = backlog.day
    leased = backlog.one(
        """select chunk_id, token, worker_id, batch_id, run, tenant_id, lo, hi, seqs, n, est_tokens from chunk
           where state = 'leased' and batch_id %% 10 = 0 limit 1"""
    )
    lease = Lease(*leased)
    one = {"batch_id": lease.batch_id}
    name = {"tenant_id": lease.tenant_id}
    name |= {"request_id": backlog.one("select request_id from batch where batch_id = %s", (lease.batch_id,))[0]}
    final = backlog.one("select tenant_id, request_id from batch where state = 'completed' limit 1")
    span = {"run": 1, "lo": lease.lo, "hi": lease.hi, "seqs": None}
    deltas = [row[0] for row in backlog.conn.execute("select delta_id from batch_delta order by 1 limit 5000")]
    folded = [row[0] for row in backlog.conn.execute("select distinct batch_id from batch_delta")]
    found: dict[str, tuple[str, Parameters]] = {
        "claim": (fair_order_sql.CLAIM[1], backlog.claim),
        "claim of four": (fair_order_sql.CLAIM[4], backlog.claim),
        "urgent claim": (
            fair_order_sql.CLAIM_URGENT,
            backlog.claim | {"urgent_seconds": 900.0, "lead_tokens": 100_000},
        ),
        "urgent claim of nothing": (
            fair_order_sql.CLAIM_URGENT,
            backlog.claim | {"urgent_seconds": 9.0, "lead_tokens": 9},
        ),
        "load": (on_day(worker_sql.LOAD, lease.batch_id), one | span),
        "load of some": (on_day(worker_sql.LOAD, lease.batch_id), one | span | {"seqs": [lease.lo + 3, lease.lo]}),
        "load of a group": (
            on_day(worker_sql.LOAD, lease.batch_id),
            one | {"run": 1, "lo": 0, "hi": 19_999, "seqs": [*range(0, 640, 10)]},
        ),
        "flush": flushing(lease),
        "flush, feeding": flushing(lease, feeds=True),
        "look for markers": (handoff_sql.LOOK, {"limit": 64}),
        "take markers": (handoff_sql.TAKE, {"batch_ids": [lease.batch_id] * 3, "ids": [1, 2, 3]}),
        "close": (handoff_sql.CLOSE, {}),
        "ripe": (handoff_sql.RIPE, {}),
        "open inputs": (handoff_sql.OPEN, {"batch_ids": [lease.batch_id], "seqs": [1]}),
        "items that are handed on": (
            on_day(feeding_sql.READ, lease.batch_id),
            one | {"run": 1, "requests": True, "seqs": [lease.lo, lease.hi]},
        ),
        "items of a pack": (
            on_day(feeding_sql.READ_RANGE, lease.batch_id),
            one | {"run": 1, "requests": False, "low": lease.lo, "high": lease.hi, "limit": 2000},
        ),
        "finish": (on_day(worker_sql.FINISH, lease.batch_id), finishing(lease)),
        "finish, split": (on_day(worker_sql.FINISH, lease.batch_id), finishing(lease) | {"split": True}),
        "heartbeat": heartbeat_of([lease.worker_id, lease.worker_id + 1]),
        "heartbeat without news": (
            heartbeat_sql.HEARTBEAT_WITHOUT_NEWS,
            {"worker_ids": [lease.worker_id], "hungry": [True], "lease_seconds": 30.0, "engine_ids": [1, 2]},
        ),
        "retire": (worker_sql.RETIRE_WORKER, {"worker_id": lease.worker_id}),
        "take back": (charges.TAKE_BACK, {"worker_id": lease.worker_id, "most": charges.MOST}),
        "status": (read_sql.STATUS, name),
        "results": (on_day(read_sql.RESULTS, lease.batch_id), one | {"run": 1, "after": 64, "limit": 200}),
        "results and items": (
            on_day(read_sql.RESULTS_AND_ITEMS, lease.batch_id),
            one | {"run": 1, "after": 64, "limit": 200},
        ),
        "statuses": (read_sql.STATUSES, {f"{key}s": [value] for key, value in name.items()}),
        "outlooks": (forecast_sql.OUTLOOKS, {"batch_ids": [one["batch_id"]]}),
        "failures": (on_day(failure_sql.GROUPED, lease.batch_id), one | {"run": 1, "limit": 10}),
        "refused all": (
            on_day(failure_sql.REFUSED_ALL, lease.batch_id),
            {"ids": [one["batch_id"]], "runs": [1], "code": "5006"},
        ),
        "perhaps incomplete": (
            on_day(response_log_sql.PERHAPS_INCOMPLETE, lease.batch_id),
            {"ids": [one["batch_id"]], "after": -1, "limit": 10},
        ),
        **_listings(backlog),
        "heartbeats": (reaping_sql.HEARTBEATS, {}),
        "reap": (reaping_sql.REAP, {"lapsed": [lease.worker_id], "charged": []}),
        "promote": (chunk_sweeps_sql.PROMOTE, {}),
        "expire": (expiry.EXPIRE, {}),
        "has work": (settling_sql.HAS_WORK, {}),
        "take deltas": (settling_sql.TAKE, {}),
        "usage": (settling_sql.USAGE, {"ids": deltas}),
        "fold": (settling_sql.FOLD, {"ids": deltas}),
        "fold into the order": (fair_order_sql.FOLD_DELTAS, {}),
        "finalise": (settling_sql.FINALISE, {"ids": folded, "all": True}),
        "unanswered": (on_day(batch_state_sql.UNANSWERED, lease.batch_id), one),
        "reopen": (
            batch_state_sql.REOPEN,
            dict(zip(("tenant_id", "request_id", "of_run"), (*final, None), strict=True)),
        ),
        "cancel": (batch_state_sql.transition("cancel"), name),
    }
    for verb, number, query in zip(
        ("hold", "release", "remove"), (1, 4, 2), chunk_sweeps_sql.sweeps(one=True), strict=True
    ):
        batch = backlog.one(
            "select min(batch_id) from batch where batch_id >= %s and batch_id %% 50 = %s", (day, number)
        )
        found[f"{verb} of one batch"] = (on_day(query, batch[0]), {"batch_id": batch[0]})
    for verb, query in zip(("hold", "release", "remove"), chunk_sweeps_sql.sweeps(one=False), strict=True):
        found[f"{verb} of all"] = (query, {})
    return found


def _listings(backlog: Backlog) -> dict[str, tuple[str, Parameters]]:
    """A page with each filter, and with some combinations."""
    row = backlog.one(
        "select tenant_id, created_at, request_id from batch where state = 'completed' order by batch_id limit 1"
    )
    values: dict[str, object] = dict(zip(("tenant_id", "after_at", "after"), row, strict=True)) | {"limit": 21}
    values |= {"models": ["toy", "other"], "states": [*BatchState], "started": [None] * len(BatchState)}
    values |= {"created_after": row[1], "created_before": row[1], "tags": ["rare"], "metadata": Jsonb({"k": "rare"})}
    asked = ({}, {"after"}, {"states"}, {"models", "states"}, {"tags"}, {"metadata"}, {"states", "after"})
    asked += ({"created_after", "created_before"},)
    return {
        f"listing by {', '.join(sorted(names)) or 'nothing'}": (listing_sql.page(names), _used(names, values))
        for names in map(set, asked)
    }


def _used(names: set[str], values: dict[str, object]) -> dict[str, object]:
    """Only the parameters that the statement uses, because a generic plan needs the type of each."""
    more = {"after": {"after_at"}, "states": {"started"}}
    used = {"tenant_id", "limit", *names}.union(*(more.get(name, set()) for name in names))
    return {name: value for name, value in values.items() if name in used}


# `close` updates a child and its parent for each row. `expire` and `promote` move a row in all indexes of its table, and read two
# or three pages in each. The list: where the planner knows that the account has most batches, it walks the index of all accounts'
# batches, newest first, and leaves out those of others. Our statements are planned for all parameters, and walk the index of the
# account.
WIDER = {"close": 2, "expire": 1.25, "promote": 1.25, "listing by nothing": 2}


@pytest.mark.parametrize("prepared", [False, True], ids=["planned for its parameters", "planned once for all"])
def test_no_statement_reads_a_table_of_the_queue_from_end_to_end(unrest: Backlog, prepared: bool) -> None:
    plans = {
        name: explain(unrest.conn, statement, parameters, prepared=prepared)
        for name, (statement, parameters) in statements(unrest).items()
    }
    timing.note(
        f"pages ({'generic' if prepared else 'custom'} plans): "
        + ", ".join(f"{n} {p.pages}/{p.rows}" for n, p in plans.items())
    )
    assert {name: plan.scanned for name, plan in plans.items() if plan.scanned} == {}
    wasteful = {name: plan for name, plan in plans.items() if plan.pages > 40 + 24 * plan.rows * WIDER.get(name, 1)}
    assert wasteful == {}
