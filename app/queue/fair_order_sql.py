"""The SQL of the fair order: which account's chunk a worker gets next.

An account's virtual time is the tokens it was served, divided by its weight (`sched.vtime`). The account with the lowest
virtual time is served next; within an account, the chunk with the earliest deadline. A claim charges the chunk's estimate, and
`worker_sql.FINISH` corrects it to what was used. `sched.ready` and `sched.inflight_tokens` cache counts of `chunk`.
"""

from app.db.durability import RELAXED
from app.states import CHUNK, ChunkState
from app.worker_lease import WORKER_LEASE_HOLDS

# An idle account saves up no share. When it has work again, its virtual time is raised to the lowest one of the active
# accounts, or, if none is active, to the highest of all. Otherwise an account that was served before a pause of the pool would
# stand behind the first account to arrive after it.
CURRENT_VIRTUAL_TIME = """coalesce(min(m.vtime) filter (where m.ready > 0), max(m.vtime), 0) from sched m"""
WAKE = f"""case when s.ready > 0 then s.vtime else greatest(s.vtime,
    (select {CURRENT_VIRTUAL_TIME} where m.pool_id = s.pool_id)) end"""

# ---------------------------------------------------------------- claim

_LEASE = f"""
 leased as (update chunk c set state = '{ChunkState.LEASED}', token = token + 1, worker_id = %(worker_id)s
       from next_chunk where c.chunk_id = next_chunk.chunk_id
         and exists (select from worker where worker_id = %(worker_id)s and {WORKER_LEASE_HOLDS})
       returning c.chunk_id, c.token, c.worker_id, c.batch_id, c.run, c.tenant_id, c.lo, c.hi, c.seqs, c.n, c.est_tokens,
                 c.attempt, c.deaths, c.retries, next_chunk.weight),
 charged as (update sched s set vtime = s.vtime + leased.est_tokens / leased.weight, ready = s.ready - 1,
              inflight_tokens = s.inflight_tokens + leased.est_tokens
       from leased where s.pool_id = %(pool_id)s and s.tenant_id = leased.tenant_id)
select chunk_id, token, worker_id, batch_id, run, tenant_id, lo, hi, seqs, n, est_tokens, attempt, deaths, retries from leased
where {RELAXED}"""

_EARLIEST_CHUNK = f"""
   select c.chunk_id, a.weight from accounts a cross join lateral (
     select chunk_id from chunk where {CHUNK.guard("claim")} and pool_id = %(pool_id)s and tenant_id = a.tenant_id
     order by deadline, chunk_id limit 1 for update skip locked) c limit 1"""

# Accounts by virtual time, then the earliest deadline. Exactly one chunk is locked. MATERIALIZED, because a re-evaluated LIMIT
# under FOR UPDATE can lock more rows than it returns.
CLAIM = f"""
with accounts as (select s.tenant_id, w.weight from sched s join tenant w using (tenant_id)
           where s.pool_id = %(pool_id)s and s.ready > 0 and s.inflight_tokens < w.max_inflight_tokens
           order by s.vtime limit 256),
 next_chunk as materialized ({_EARLIEST_CHUNK}),
{_LEASE}"""

# The urgent lane: accounts by their earliest deadline, if it is near. Short deadlines buy no extra share: an account that is
# ahead of the lowest virtual time by more than `lead_tokens` is skipped, and the lane charges as an ordinary claim does.
CLAIM_URGENT = f"""
with lowest as materialized (select coalesce(min(vtime) filter (where ready > 0), 0) as vtime from sched
                            where pool_id = %(pool_id)s),
 accounts as materialized (
   select s.tenant_id, w.weight from lowest, sched s join tenant w using (tenant_id) cross join lateral (
     select deadline from chunk where {CHUNK.guard("claim")} and pool_id = %(pool_id)s and tenant_id = s.tenant_id
     order by deadline, chunk_id limit 1) c
   where (select min(deadline) from chunk where {CHUNK.guard("claim")} and pool_id = %(pool_id)s)
           < now() + make_interval(secs => %(urgent_seconds)s)
     and s.pool_id = %(pool_id)s and s.ready > 0 and s.inflight_tokens < w.max_inflight_tokens
     and c.deadline < now() + make_interval(secs => %(urgent_seconds)s)
     and s.vtime <= lowest.vtime + %(lead_tokens)s / w.weight
   order by c.deadline limit 4),
 next_chunk as materialized ({_EARLIEST_CHUNK}),
{_LEASE}"""

# ---------------------------------------------------------------- changes to several accounts at once


def in_lock_order(changes: str) -> str:
    """The CTE `changes`: rows by pool and tenant. It locks their rows of `sched` in the one order that every statement uses."""
    return f""" changes as materialized (select change.* from sched s join ({changes}) change using (pool_id, tenant_id)
       order by s.pool_id, s.tenant_id for update of s)"""


def chunks_by_account(chunks: str) -> str:
    """How many of these chunks each account has in each pool, as `n`."""
    return f"select pool_id, tenant_id, count(*) as n from {chunks} group by 1, 2"


# ---------------------------------------------------------------- the cached counts

LOCK_CACHES = "select from sched order by pool_id, tenant_id for update"

# A separate statement: under READ COMMITTED it sees what earlier holders of the locks have committed. A transaction that
# changes a chunk later has not changed `sched` yet, and adds its difference to the values written here.
RECOMPUTE = f"""
with counted as (select pool_id, tenant_id, count(*) filter (where {CHUNK.guard("claim")})::int as ready,
                      coalesce(sum(est_tokens) filter (where {CHUNK.guard("finish")}), 0)::bigint as inflight_tokens
               from chunk group by 1, 2),
 drift as (select s.pool_id, s.tenant_id, s.ready as old_ready, s.inflight_tokens as old_inflight,
                  coalesce(t.ready, 0) as ready, coalesce(t.inflight_tokens, 0) as inflight_tokens
           from sched s left join counted t using (pool_id, tenant_id)
           where (s.ready, s.inflight_tokens) is distinct from (coalesce(t.ready, 0), coalesce(t.inflight_tokens, 0)))
update sched s set ready = d.ready, inflight_tokens = d.inflight_tokens, drifts = drifts + 1 from drift d
where s.pool_id = d.pool_id and s.tenant_id = d.tenant_id
returning s.pool_id, s.tenant_id, d.ready - d.old_ready, d.inflight_tokens - d.old_inflight"""
