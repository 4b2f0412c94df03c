"""The SQL of the steward's work on chunks: reap, promote, sweep, and fold counts.

Lock order: batch, chunk, sched by pool and tenant.
"""

from app.queue.fair_order_sql import WAKE, chunks_by_account, in_lock_order
from app.states import CHUNK, BatchState, ChunkState

_HALTED = f"state in ('{BatchState.PAUSED}', '{BatchState.CANCELLING}', '{BatchState.EXPIRING}')"

# ---------------------------------------------------------------- reap, promote

LOOK = "select extract(epoch from now())::float8, extract(epoch from pg_postmaster_start_time())::float8"
HEARTBEATS = """
select extract(epoch from now())::float8, extract(epoch from pg_postmaster_start_time())::float8, w.worker_id,
       extract(epoch from w.started_at)::float8, extract(epoch from w.renewed_at)::float8,
       extract(epoch from w.lease_until)::float8
from (select) one left join worker w on true"""

_READY_AGAIN = """select r.pool_id, r.tenant_id, count(*) as n, sum(r.est_tokens) as tokens, min(w.weight) as weight
             from released r join tenant w using (tenant_id) group by 1, 2"""

# A higher token fences every late write of the lost worker. The estimate is refunded: an account does not pay for lost workers.
# `lost_workers` decides which losses are charged to their chunks, and `charges` takes back the charge for a worker that is alive.
# A claim may commit after its worker was reaped or has retired. Its chunk has no worker, and is taken back as well.
# Locked rows are skipped, since the next round comes anyway. So no two statements wait for each other in a circle.
REAP = f"""
with lost as materialized (select worker_id from worker
       where worker_id = any(%(lapsed)s::bigint[]) and lease_until < now() for update skip locked),
 taken_back as materialized (
       select c.chunk_id from chunk c
       where {CHUNK.guard("reap", "c.")} and (c.worker_id in (select worker_id from lost)
         or not exists (select from worker w where w.worker_id = c.worker_id))
       for update of c skip locked),
 released as (update chunk c set state = '{ChunkState.READY}', token = token + 1, worker_id = null,
              attempt = attempt + (c.worker_id = any(%(charged)s::bigint[]))::int,
              charged_for = case when c.worker_id = any(%(charged)s::bigint[]) then c.worker_id else charged_for end
        from taken_back k where c.chunk_id = k.chunk_id returning c.pool_id, c.tenant_id, c.est_tokens),
{in_lock_order(_READY_AGAIN)},
 refunded as (update sched s set ready = s.ready + x.n, inflight_tokens = s.inflight_tokens - x.tokens,
              vtime = {WAKE} - x.tokens / x.weight
       from changes x where s.pool_id = x.pool_id and s.tenant_id = x.tenant_id),
 deleted_workers as (delete from worker w using lost where w.worker_id = lost.worker_id)
select (select count(*) from lost), (select count(*) from released)"""

_MORE_READY = f"""
{in_lock_order(chunks_by_account("released"))},
 recounted as (update sched s set ready = s.ready + x.n, vtime = {WAKE}
       from changes x where s.pool_id = x.pool_id and s.tenant_id = x.tenant_id)
select count(*) from released"""

# A chunk that the worker of a cancelled batch has just returned must not be leased again before the sweep removes it.
PROMOTE = f"""
with due as materialized (
       select c.chunk_id from chunk c
       where {CHUNK.guard("promote", "c.")} and c.not_before <= now()
         and not exists (select from batch b where b.batch_id = c.batch_id and b.{_HALTED})
       for update of c skip locked),
 released as (update chunk c set state = '{ChunkState.READY}', not_before = null
       from due where c.chunk_id = due.chunk_id returning c.pool_id, c.tenant_id),
{_MORE_READY}"""

# ---------------------------------------------------------------- sweep: apply a batch's state to its chunks

# A worker or the steward may return a chunk while its batch is being paused or cancelled, if it read the batch's state before.
# Therefore only these sweeps act on that state, and they are repeated.


def _to_move(states: str, verb: str, *, one: bool) -> str:
    """The chunks that `verb` moves: those of one batch, or of all batches in `states`."""
    only, wait = ("and c.batch_id = %(batch_id)s", "") if one else ("", "skip locked")
    return f"""
with to_move as materialized (
       select c.* from chunk c join batch b on b.batch_id = c.batch_id
       where b.state in ({states}) and {CHUNK.guard(verb, "c.")} {only}
       order by c.chunk_id for update of c {wait}),"""


_LESS_READY = f"""
{in_lock_order(chunks_by_account(f"to_move where state = '{ChunkState.READY}'"))},
 recounted as (update sched s set ready = s.ready - x.n
       from changes x where s.pool_id = x.pool_id and s.tenant_id = x.tenant_id)
select count(*) from to_move"""


# Results that a lost worker stored before its chunk came back are counted here, because no worker will finish that chunk.
_COUNT_DONE = """
 counted as (insert into batch_delta (batch_id, ok, failed, prompt_tokens, cached_tokens, completion_tokens)
       select k.batch_id, sum(r.ok), count(*) - sum(r.ok), sum(r.prompt_tokens), sum(r.cached_tokens), sum(r.completion_tokens)
       from to_move k cross join lateral unnest(coalesce(k.seqs, array(select generate_series(k.lo, k.hi)))) x (seq)
         cross join lateral (select * from item_result i
           where i.batch_id = k.batch_id and i.seq = x.seq and i.run = k.run limit 1) r
       where k.done + k.failed > 0 group by k.batch_id),"""


def sweeps(*, one: bool) -> tuple[str, str, str]:
    """Hold, release, remove: for the chunks of paused, resumed, and ending batches. `one`: only those of %(batch_id)s."""
    hold = f"""{_to_move(f"'{BatchState.PAUSED}'", "hold", one=one)}
 held as (update chunk c set state = '{ChunkState.HELD}', not_before = null
       from to_move k where c.chunk_id = k.chunk_id),
{_LESS_READY}"""
    release = f"""{_to_move(f"'{BatchState.OPEN}'", "release", one=one)}
 released as (update chunk c set state = '{ChunkState.READY}' from to_move k where c.chunk_id = k.chunk_id
       returning c.pool_id, c.tenant_id),
{_MORE_READY}"""
    remove = f"""{_to_move(f"'{BatchState.CANCELLING}', '{BatchState.EXPIRING}'", "remove", one=one)}
 removed as (delete from chunk c using to_move k where c.chunk_id = k.chunk_id),
{_COUNT_DONE}
{_LESS_READY}"""
    return hold, release, remove


# ---------------------------------------------------------------- fold: add the counts of finished chunks to their batches

HAS_WORK = f"""
select exists (select from batch_delta)
    or exists (select from batch where {_HALTED})
    or exists (select from chunk where state = '{ChunkState.HELD}')"""

# Two stewards at once, one of which has lost the lead without noticing yet, would lock the same batches in different orders.
ONE_AT_A_TIME = "select pg_advisory_xact_lock(hashtext('slackwater settle'))"

FOLD = """
with deltas as (delete from batch_delta where delta_id in
             (select delta_id from batch_delta order by delta_id limit 5000 for update skip locked)
           returning batch_id, ok, failed, prompt_tokens, cached_tokens, completion_tokens),
 added as (select batch_id, sum(ok) as ok, sum(failed) as failed, sum(prompt_tokens) as prompt_tokens,
              sum(cached_tokens) as cached_tokens, sum(completion_tokens) as completion_tokens from deltas group by 1)
update batch b set ok = b.ok + a.ok, failed = b.failed + a.failed, prompt_tokens = b.prompt_tokens + a.prompt_tokens,
       cached_tokens = b.cached_tokens + a.cached_tokens, completion_tokens = b.completion_tokens + a.completion_tokens
from added a where a.batch_id = b.batch_id
returning b.batch_id, b.run, b.request_id, b.model, b.total, b.ok, b.failed, b.kind"""
