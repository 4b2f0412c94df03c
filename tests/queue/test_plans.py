"""PostgreSQL's plans for the queue's statements with a million open items: the pages read do not grow with the backlog.

Each statement is explained with real parameters and rolled back, with a custom and with a generic plan (psycopg prepares a
statement after a few executions). Pages decide, not time.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from statistics import median
from typing import Any, cast

import psycopg
import pytest
from psycopg import sql as composed_sql
from psycopg.adapt import PyFormat, Transformer
from psycopg.types.json import Jsonb

from app.db.pool import Connection
from app.queue import (
    charges,
    failure_sql,
    fair_order_sql,
    forecast_sql,
    lease_sql,
    lifecycle_sql,
    listing_sql,
    maintenance_sql,
    read_sql,
    service,
)
from app.queue.types import Lease, Result
from app.settings import Settings
from app.states import BatchState
from tests import timing
from tests.queue import support

TENANTS, CHUNKS, ITEMS = 25, 15_625, 64
PER_BATCH = 25  # chunks
SMALL = 157  # chunks of ten thousand items
SHARED = 400  # chunks leased by workers
GUARDED = re.compile(r"^(chunk|batch|item_payload.*|item_result.*)$")

FILL = """
with c as (select g, g / %(per_batch)s as b, g %% %(per_batch)s as k from generate_series(%(first)s::int, %(last)s::int - 1) g),
 bodies as (insert into item_payload (batch_id, seq, est_tokens, wants_json, body)
   select %(day)s + b, k * 64 + i, 100, false, '{}' from c, generate_series(0, 63) i where b %% 10 = 0),
 answers as (insert into item_result (batch_id, seq, run, ok, attempt, body)
   select %(day)s + b, k * 64 + i, 1, 1, 1, '{}' from c, generate_series(0, 31) i where b %% 10 = 0 and k < 2)
insert into chunk (batch_id, run, tenant_id, pool_id, lo, hi, n, est_tokens, deadline)
select %(day)s + b, 1, 1 + b %% %(tenants)s, 1, k * 64, k * 64 + 63, 64, 6400, now() + make_interval(secs => 86400 + b) from c"""

BATCHES = """
insert into batch (batch_id, request_id, tenant_id, model, endpoint, total, deadline, expires_at, state, finalized_at)
select %(day)s + b, gen_random_uuid(), 1 + b %% %(tenants)s, 'toy', '/v1', %(per_batch)s * 64, now(),
       now() + interval '1 day', %(state)s, case when %(final)s then now() end
from generate_series(%(first)s::int, %(last)s::int - 1) b"""


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
"""


@dataclass(frozen=True)
class Plan:
    """An executed statement: the pages it read, the rows it handled, and the tables it scanned completely."""

    pages: int
    rows: int
    scanned: list[str]


def read(plan: dict[str, Any]) -> Plan:
    """Read the output of EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)."""
    nodes: list[dict[str, Any]] = []
    todo = [plan]
    while todo:
        nodes.append(todo.pop())
        todo += nodes[-1].get("Plans", [])
    used = {f"CTE {node['CTE Name']}" for node in nodes if node["Node Type"] == "CTE Scan"}
    # A CTE that is never read runs last, and the top node's pages do not include it.
    apart = [plan] + [
        n for n in nodes if n.get("Subplan Name", "").startswith("CTE ") and n["Subplan Name"] not in used
    ]
    pages = sum(node["Shared Hit Blocks"] + node["Shared Read Blocks"] for node in apart)
    scans = [n for n in nodes if n["Node Type"] == "Seq Scan" and GUARDED.match(n["Relation Name"])]
    scanned = [n["Relation Name"] for n in scans if n["Shared Hit Blocks"] + n["Shared Read Blocks"]]  # some are empty
    rows = max(int(node["Actual Rows"]) * int(node["Actual Loops"]) for node in nodes)
    return Plan(pages, rows, scanned)


Parameters = Mapping[str, object] | Sequence[object]


def explain(conn: psycopg.Connection, statement: str, parameters: Parameters, *, prepared: bool) -> Plan:
    """Explain the statement and roll back. `prepared`: with a generic plan."""
    options = "explain (analyze, buffers, format json) "
    with conn.transaction(force_rollback=True):
        if not (prepared and parameters):
            row = conn.execute(options + statement, parameters).fetchone()
        else:
            conn.execute("set local plan_cache_mode = force_generic_plan")
            conn.execute(_prepare(statement, parameters))
            values = composed_sql.SQL(", ").join(
                composed_sql.Literal(value) for value in _ordered(statement, parameters)[1]
            )
            row = conn.execute(
                composed_sql.SQL(options + "execute guarded")
                + (composed_sql.SQL(" (") + values + composed_sql.SQL(")"))
            ).fetchone()
            conn.execute("deallocate guarded")
    assert row
    return read(row[0][0]["Plan"])


def _ordered(statement: str, parameters: Parameters) -> tuple[str, list[object]]:
    """The statement with $1, $2, … as psycopg sends it, and its values."""
    if isinstance(parameters, Mapping):
        names = list(dict.fromkeys(re.findall(r"%\((\w+)\)[sb]", statement)))
        numbered = re.sub(r"%\((\w+)\)[sb]", lambda found: f"${names.index(found[1]) + 1}", statement)
        return numbered.replace("%%", "%"), [parameters[name] for name in names]
    numbers = count(1)
    return re.sub("%s", lambda _: f"${next(numbers)}", statement), list(parameters)


def _prepare(statement: str, parameters: Parameters) -> bytes:
    """A PREPARE with the types that psycopg gives the values."""
    numbered, values = _ordered(statement, parameters)
    return f"prepare guarded ({', '.join(map(_type, values))}) as {numbered}".encode()


def _type(value: object) -> str:
    types = Transformer()
    types.dump_sequence([value], [PyFormat.AUTO])
    oid = 0 if value is None else (types.types or (0,))[0]
    if not oid:
        return "unknown"
    found = psycopg.adapters.types[oid]
    return found.name + ("[]" if oid == found.array_oid else "")


class Backlog:
    """The database with its open chunks."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.conn = psycopg.connect(url, autocommit=True, prepare_threshold=None, options="-c synchronous_commit=off")
        self.day = int(self.one("select next_batch_id() >> 36 << 36")[0]) + (1 << 30)
        for pool in ("many", "flood"):
            self.conn.execute("insert into pool (model) values (%s)", (pool,))
        tenants = "insert into tenant (tenant_id, account_id, name) select g, g, g from generate_series(1, %s) g"
        self.conn.execute(tenants, (TENANTS,))
        self.fill(0, SMALL)
        worker = "insert into worker (pool_id, host, pid, lease_until) values (1, 'test', 1, now() + interval '1 hour')"
        self.worker = int(self.one(worker + " returning worker_id")[0])
        self.claim = {"pool_id": 1, "worker_id": self.worker}
        self.small_claim = self.pages_of_a_claim()
        self.fill(SMALL, CHUNKS)
        self.large_claim = self.pages_of_a_claim()

    def one(self, statement: str, parameters: Parameters = ()) -> tuple[Any, ...]:
        row = self.conn.execute(statement, parameters).fetchone()
        assert row
        return row

    def pages_of_a_claim(self, **changes: int) -> float:
        """The median of seven claims, each rolled back."""
        return median(
            explain(self.conn, fair_order_sql.CLAIM, self.claim | changes, prepared=False).pages for _ in range(7)
        )

    def fill(self, first: int, last: int) -> None:
        """Chunks first..last-1 with their batches."""
        numbers = {"day": self.day, "tenants": TENANTS, "per_batch": PER_BATCH}
        batches = {"first": -(-first // PER_BATCH), "last": -(-last // PER_BATCH), "state": "open", "final": False}
        self.conn.execute(BATCHES, numbers | batches)
        self.conn.execute(FILL, numbers | {"first": first, "last": last})
        self.settle_statistics()

    def settle_statistics(self) -> None:
        self.conn.execute("truncate sched")
        self.conn.execute(
            """insert into sched (pool_id, tenant_id, ready, inflight_tokens)
               select pool_id, tenant_id, count(*) filter (where state = 'ready'),
                      coalesce(sum(est_tokens) filter (where state = 'leased'), 0) from chunk group by 1, 2"""
        )
        for table in ("chunk", "sched", "worker", "batch", "item_payload", "item_result", "batch_delta"):
            self.conn.execute(f"vacuum (analyze) {table}")


@pytest.fixture(scope="module")
def backlog(server_settings: Settings, template: str) -> Iterator[Backlog]:
    with support.copied(server_settings, template, "plans") as url:
        backlog = Backlog(url)
        yield backlog
        backlog.conn.close()


def test_a_claim_from_a_million_items_costs_what_one_from_ten_thousand_does(backlog: Backlog) -> None:
    assert backlog.one("select sum(n) from chunk") == (CHUNKS * ITEMS,)
    timing.note(f"pages per claim: {backlog.large_claim} of 1,000,000 items, {backlog.small_claim} of 10,000")
    assert backlog.large_claim <= 40
    assert backlog.large_claim <= 1.5 * backlog.small_claim


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
        row = backlog.one(fair_order_sql.CLAIM, backlog.claim | {"pool_id": pool})
        lease = Lease(*row)
        assert backlog.one(*flushing(lease)) == (1,)
        assert backlog.one(lease_sql.FINISH, finishing(lease)) == (64,)
        done += lease.n
        if number % 100 == 99:
            for table in ("chunk", "sched", "worker", "batch_delta"):
                backlog.conn.execute(f"vacuum {table}")
    return done


class Recorder:
    """A fake connection that records the last statement."""

    def __init__(self) -> None:
        self.asked: tuple[str, list[object]] = ("", [])

    async def execute(self, statement: str, parameters: list[object]) -> "Recorder":
        self.asked = (statement, parameters)
        return self

    async def fetchone(self) -> tuple[int]:
        return (1,)


def flushing(lease: Lease) -> tuple[str, list[object]]:
    """The statement and the parameters of a flush of the whole chunk."""
    recorder = Recorder()
    results = [Result(seq, True, 1, 3, 1, 5, b"{}") for seq in range(lease.lo, lease.hi + 1)]
    assert asyncio.run(service.flush(cast(Connection, recorder), lease, results))
    return recorder.asked


def finishing(lease: Lease) -> dict[str, object]:
    return {
        "chunk_id": lease.chunk_id,
        "token": lease.token,
        "worker_id": lease.worker_id,
        "batch_id": lease.batch_id,
        "run": lease.run,
        "backoff_seconds": 0.0,
        "suspects": [],
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
    with psycopg.connect(backlog.url) as old:
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


# ---------------------------------------------------------------- plans


@pytest.fixture(scope="module")
def unrest(backlog: Backlog) -> Backlog:
    """The backlog with rows in every state, and 20,000 batches that have ended."""
    numbers = {"day": backlog.day, "tenants": TENANTS, "per_batch": PER_BATCH}
    ended = {"first": 100_000, "last": 120_000, "state": "completed", "final": True}
    backlog.conn.execute(BATCHES, numbers | ended)
    backlog.conn.execute(UNREST)
    backlog.settle_statistics()
    return backlog


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
    folded = [row[0] for row in backlog.conn.execute("select distinct batch_id from batch_delta")]
    found: dict[str, tuple[str, Parameters]] = {
        "claim": (fair_order_sql.CLAIM, backlog.claim),
        "urgent claim": (
            fair_order_sql.CLAIM_URGENT,
            backlog.claim | {"urgent_seconds": 900.0, "lead_tokens": 100_000},
        ),
        "urgent claim of nothing": (
            fair_order_sql.CLAIM_URGENT,
            backlog.claim | {"urgent_seconds": 9.0, "lead_tokens": 9},
        ),
        "load": (lease_sql.LOAD, one | span),
        "load of some": (lease_sql.LOAD, one | span | {"seqs": [lease.lo + 3, lease.lo]}),
        "load of a group": (lease_sql.LOAD, one | {"run": 1, "lo": 0, "hi": 19_999, "seqs": [*range(0, 640, 10)]}),
        "flush": flushing(lease),
        "finish": (lease_sql.FINISH, finishing(lease)),
        "finish, split": (lease_sql.FINISH, finishing(lease) | {"split": True}),
        "heartbeat": (lease_sql.HEARTBEAT, {"worker_id": lease.worker_id, "lease_seconds": 30.0}),
        "retire": (lease_sql.RETIRE_WORKER, {"worker_id": lease.worker_id}),
        "take back": (charges.TAKE_BACK, {"worker_id": lease.worker_id, "most": charges.MOST}),
        "status": (read_sql.STATUS, name),
        "results": (read_sql.RESULTS, one | {"run": 1, "after": 64, "limit": 200}),
        "results and items": (read_sql.RESULTS_AND_ITEMS, one | {"run": 1, "after": 64, "limit": 200}),
        "statuses": (read_sql.STATUSES, {f"{key}s": [value] for key, value in name.items()}),
        "outlooks": (forecast_sql.OUTLOOKS, {"batch_ids": [one["batch_id"]]}),
        "failures": (failure_sql.GROUPED, one | {"run": 1, "limit": 10}),
        "refused all": (failure_sql.REFUSED_ALL, one | {"run": 1, "code": "5006"}),
        **_listings(backlog),
        "pressure": (forecast_sql.PRESSURE, {"pool_id": 1}),
        "reap": (maintenance_sql.REAP, {"lapsed": [lease.worker_id], "charged": []}),
        "promote": (maintenance_sql.PROMOTE, {}),
        "expire": (lifecycle_sql.EXPIRE, {}),
        "has work": (maintenance_sql.HAS_WORK, {}),
        "fold": (maintenance_sql.FOLD, {}),
        "finalise": (lifecycle_sql.FINALISE, {"ids": folded, "all": True}),
        "unanswered": (lifecycle_sql.UNANSWERED, one),
        "reopen": (
            lifecycle_sql.REOPEN,
            dict(zip(("tenant_id", "request_id", "of_run"), (*final, None), strict=True)),
        ),
        "cancel": (lifecycle_sql.change_state("cancel"), name),
    }
    for verb, number, query in zip(
        ("hold", "release", "remove"), (1, 4, 2), maintenance_sql.sweeps(one=True), strict=True
    ):
        batch = backlog.one(
            "select min(batch_id) from batch where batch_id >= %s and batch_id %% 50 = %s", (day, number)
        )
        found[f"{verb} of one batch"] = (query, {"batch_id": batch[0]})
    for verb, query in zip(("hold", "release", "remove"), maintenance_sql.sweeps(one=False), strict=True):
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
    wasteful = {name: plan for name, plan in plans.items() if plan.pages > 40 + 24 * plan.rows}
    assert wasteful == {}
