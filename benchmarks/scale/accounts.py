"""Accounts with waiting chunks of one item, whose result is stored already: a claim and a finish are all that is left to do."""

from dataclasses import dataclass

import psycopg

from app.db.day_tables import on_day
from app.queue import fair_order_sql, worker_sql
from benchmarks.scale.pgbench import claim, filled

_FILL = """
with made as (insert into tenant (account_id, name) select '%(name)s ' || g, '' from generate_series(1, %(accounts)s) g
              returning tenant_id),
 pool_ as (insert into pool (model) values ('%(name)s') returning pool_id),
 chunks as (insert into chunk (batch_id, run, tenant_id, pool_id, lo, hi, n, est_tokens, deadline)
       select %(batch_id)s, 1, tenant_id, pool_id, n, n, 1, 16000, now() + make_interval(secs => n)
       from (select tenant_id, pool_id, row_number() over (order by k, tenant_id) - 1 as n
             from made, pool_, generate_series(1, %(chunks)s) k) c),
 places as (insert into sched (pool_id, tenant_id, ready, vtime)
       select pool_id, tenant_id, %(chunks)s, (tenant_id * 7919) %% 2000000 from made, pool_),
 results as (insert into item_result (batch_id, seq, run, ok, attempt, prompt_tokens, completion_tokens, body)
       select %(batch_id)s, n, 1, 1, 1, 12000, 4000, '{}' from generate_series(0, %(accounts)s * %(chunks)s - 1) n)
insert into worker (pool_id, host, pid, lease_until) select pool_id, 'bench', 1, now() + interval '1 day' from pool_
returning pool_id, worker_id"""
_HOT = ("chunk", "sched", "tenant", "worker", "item_result", "batch_delta")


@dataclass(frozen=True, slots=True)
class Accounts:
    """A pool whose accounts have so much work."""

    pool_id: int
    worker_id: int
    batch_id: int

    @property
    def claim(self) -> str:
        """A script that claims a chunk."""
        return claim(self.pool_id, self.worker_id)

    @property
    def urgent_claim(self) -> str:
        """A script that claims by the urgent lane."""
        values = {"pool_id": self.pool_id, "worker_id": self.worker_id, "urgent_seconds": 900, "lead_tokens": 10**9}
        return filled(fair_order_sql.CLAIM_URGENT, values) + ";\n"

    @property
    def claim_and_finish(self) -> str:
        """A script that claims a chunk and finishes it."""
        values = dict.fromkeys(("backoff_seconds", "retry_seconds", "engine_ms", "unrun"), "0")
        values |= dict.fromkeys(("suspects", "retried"), "'{}'") | dict.fromkeys(
            ("first_tokens", "durations"), "''::bytea"
        )
        values |= {"chunk_id": ":chunk_id", "token": ":token", "worker_id": str(self.worker_id), "split": "false"}
        values |= {"batch_id": f"{self.batch_id}::bigint", "run": "1"}
        return f"{self.claim}{filled(on_day(worker_sql.FINISH, self.batch_id), values)};\n"


def fill(url: str, name: str, accounts: int, chunks: int) -> Accounts:
    """A pool with so many accounts, each with so many chunks."""
    with psycopg.connect(url, autocommit=True) as conn:
        row = conn.execute("select next_batch_id()").fetchone()
        assert row
        values = {"name": name, "accounts": accounts, "chunks": chunks, "batch_id": row[0]}
        made = conn.execute((_FILL % values).encode()).fetchone()
        assert made
        for table in _HOT:
            conn.execute(f"vacuum (analyze) {table}".encode())
    pool_id, worker_id = made
    return Accounts(pool_id, worker_id, row[0])
