"""The costs of statements by their plans, on a database with a million queued items."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from statistics import median
from typing import Any

import psycopg
import pytest
from psycopg import sql as composed_sql
from psycopg.adapt import PyFormat, Transformer

from app.queue import fair_order_sql
from tests.databases import Ring

TENANTS, CHUNKS, ITEMS = 25, 15_625, 64
PER_BATCH = 25  # chunks
SMALL = 157  # chunks of ten thousand items
PATIENT = (
    "-c idle_in_transaction_session_timeout=0"  # of a session whose snapshot is to stay, however slow the machine is
)
GUARDED = re.compile(r"^(chunk|batch|handoff|gather|item_payload.*|item_result.*)$")
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


@dataclass(frozen=True)
class Plan:
    """An executed statement: the pages it read, the rows it handled, the tables it scanned completely, and its indexes."""

    pages: int
    rows: int
    scanned: list[str]
    indexes: set[str]


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
    return Plan(pages, rows, scanned, {node["Index Name"] for node in nodes if "Index Name" in node})


Parameters = Mapping[str, object] | Sequence[object]


def explain(conn: psycopg.Connection, statement: str, parameters: Parameters, *, prepared: bool) -> Plan:
    """Explain the statement and roll back. `prepared`: with a generic plan."""
    options = "explain (analyze, buffers, format json) "
    with conn.transaction(force_rollback=True):
        if not (prepared and parameters):
            row = conn.execute(options + statement, parameters).fetchone()
        else:
            conn.execute("set local plan_cache_mode = force_generic_plan")
            conn.execute(prepare(statement, parameters))
            row = conn.execute(composed_sql.SQL(options) + execution(statement, parameters)).fetchone()
            conn.execute("deallocate guarded")
    assert row
    return read(row[0][0]["Plan"])


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
            explain(self.conn, fair_order_sql.CLAIM[1], self.claim | changes, prepared=False).pages for _ in range(7)
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
        for table in (
            "chunk",
            "sched",
            "worker",
            "batch",
            "item_payload",
            "item_result",
            "batch_delta",
            "sched_delta",
            "handoff",
        ):
            self.conn.execute(f"vacuum (analyze) {table}")


@pytest.fixture(scope="module")
def backlog(ring: Ring) -> Iterator[Backlog]:
    with ring.taken() as url:
        backlog = Backlog(url)
        yield backlog
        backlog.conn.close()


def _ordered(statement: str, parameters: Parameters) -> tuple[str, list[object]]:
    """The statement with $1, $2, … as psycopg sends it, and its values."""
    if isinstance(parameters, Mapping):
        names = list(dict.fromkeys(re.findall(r"%\((\w+)\)[sb]", statement)))
        numbered = re.sub(r"%\((\w+)\)[sb]", lambda found: f"${names.index(found[1]) + 1}", statement)
        return numbered.replace("%%", "%"), [parameters[name] for name in names]
    numbers = count(1)
    return re.sub("%s", lambda _: f"${next(numbers)}", statement), list(parameters)


def execution(statement: str, parameters: Parameters) -> composed_sql.Composed:
    """The EXECUTE of the prepared statement."""
    values = composed_sql.SQL(", ").join(composed_sql.Literal(value) for value in _ordered(statement, parameters)[1])
    return composed_sql.SQL("execute guarded (") + values + composed_sql.SQL(")")


def prepare(statement: str, parameters: Parameters) -> bytes:
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
