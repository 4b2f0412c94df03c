"""The SQL of the steward's care, and of what callers do to a whole batch. Lock order: batch, chunk, sched by pool and tenant."""

from app.queue.sql import PACE, WAKE
from app.queue.types import Kind
from app.states import BATCH, CHUNK, BatchState, ChunkState, EngineState

_HALTED = f"state in ('{BatchState.PAUSED}', '{BatchState.CANCELLING}', '{BatchState.EXPIRING}')"


def _in_order(changes: str) -> str:
    """`x`: what is to change, by pool and tenant, its rows of `sched` locked in the one order in which everybody locks them."""
    return f""" x as materialized (select change.* from sched s join ({changes}) change using (pool_id, tenant_id)
       order by s.pool_id, s.tenant_id for update of s)"""


def _counted(chunks: str) -> str:
    return f"select pool_id, tenant_id, count(*) as n from {chunks} group by 1, 2"


# ---------------------------------------------------------------- lost workers, time that has come

_LOST = """select u.pool_id, u.tenant_id, count(*) as n, sum(u.est_tokens) as tokens, min(w.weight) as weight
             from u join tenant w using (tenant_id) group by 1, 2"""
LOOK = "select extract(epoch from now())::float8, extract(epoch from pg_postmaster_start_time())::float8"
BEATS = """
select extract(epoch from now())::float8, extract(epoch from pg_postmaster_start_time())::float8, w.worker_id,
       extract(epoch from w.started_at)::float8, extract(epoch from w.renewed_at)::float8,
       extract(epoch from w.lease_until)::float8
from (select) one left join worker w on true"""

# The token bump fences every late write of the dead worker. Its estimate is refunded: tenants do not pay for lost workers. Which
# losses are charged to their chunks, `losses` says.
# A claim may commit after its worker was reaped or has retired; its chunk belongs to nobody and is taken back as well.
# Chunks are locked in one order or, where the next round comes anyway, skipped when locked: no two of us wait in a circle.
REAP = f"""
with dead as materialized (select worker_id from worker
       where worker_id = any(%(lapsed)s::bigint[]) and lease_until < now() for update skip locked),
 k as materialized (
       select c.chunk_id from chunk c
       where {CHUNK.guard("reap", "c.")} and (c.worker_id in (select worker_id from dead)
         or not exists (select from worker w where w.worker_id = c.worker_id))
       for update of c skip locked),
 u as (update chunk c set state = '{ChunkState.READY}', token = token + 1, worker_id = null,
              attempt = attempt + (c.worker_id = any(%(charged)s::bigint[]))::int
       from k where c.chunk_id = k.chunk_id returning c.pool_id, c.tenant_id, c.est_tokens),
{_in_order(_LOST)},
 s as (update sched s set ready = s.ready + x.n, inflight_tokens = s.inflight_tokens - x.tokens,
              vtime = {WAKE} - x.tokens / x.weight
       from x where s.pool_id = x.pool_id and s.tenant_id = x.tenant_id),
 gone as (delete from worker w using dead where w.worker_id = dead.worker_id)
select (select count(*) from dead), (select count(*) from u)"""

_MORE_READY = f"""
{_in_order(_counted("u"))},
 s as (update sched s set ready = s.ready + x.n, vtime = {WAKE}
       from x where s.pool_id = x.pool_id and s.tenant_id = x.tenant_id)
select count(*) from u"""

# What a cancelled batch's worker has just handed back must not be handed out again before it is swept.
PROMOTE = f"""
with k as materialized (
       select c.chunk_id from chunk c
       where {CHUNK.guard("promote", "c.")} and c.not_before <= now()
         and not exists (select from batch b where b.batch_id = c.batch_id and b.{_HALTED})
       for update of c skip locked),
 u as (update chunk c set state = '{ChunkState.READY}', not_before = null
       from k where c.chunk_id = k.chunk_id returning c.pool_id, c.tenant_id),
{_MORE_READY}"""

EXPIRE = f"""
update batch set state = '{BatchState.EXPIRING}'
where {BATCH.guard("expire")} and expires_at <= now() returning batch_id"""

# ---------------------------------------------------------------- a batch's will, carried to its chunks

# A worker or the steward may put a chunk back while its batch is being paused or cancelled, having read the batch's state
# before. So only these sweeps, again and again, act on that state.


def _of(states: str, verb: str, *, one: bool) -> str:
    """The chunks that `verb` is to move, of one batch or of all that are in `states`."""
    only, wait = ("and c.batch_id = %(batch_id)s", "") if one else ("", "skip locked")
    return f"""
with k as materialized (
       select c.* from chunk c join batch b on b.batch_id = c.batch_id
       where b.state in ({states}) and {CHUNK.guard(verb, "c.")} {only}
       order by c.chunk_id for update of c {wait}),"""


_LESS_READY = f"""
{_in_order(_counted(f"k where state = '{ChunkState.READY}'"))},
 s as (update sched s set ready = s.ready - x.n
       from x where s.pool_id = x.pool_id and s.tenant_id = x.tenant_id)
select count(*) from k"""


# What a lost worker had stored before its chunk came back is counted here, for nobody will finish that chunk.
_COUNT_DONE = """
 counted as (insert into batch_delta (batch_id, ok, failed, prompt_tokens, cached_tokens, completion_tokens)
       select k.batch_id, sum(r.ok), count(*) - sum(r.ok), sum(r.prompt_tokens), sum(r.cached_tokens), sum(r.completion_tokens)
       from k cross join lateral unnest(coalesce(k.seqs, array(select generate_series(k.lo, k.hi)))) x (seq)
         cross join lateral (select * from item_result i
           where i.batch_id = k.batch_id and i.seq = x.seq and i.run = k.run limit 1) r
       where k.done + k.failed > 0 group by k.batch_id),"""


def sweeps(*, one: bool) -> tuple[str, str, str]:
    """Hold, release, remove: the chunks of paused, resumed, ending batches. `one`: of %(batch_id)s only."""
    hold = f"""{_of(f"'{BatchState.PAUSED}'", "hold", one=one)}
 u as (update chunk c set state = '{ChunkState.HELD}', not_before = null from k where c.chunk_id = k.chunk_id),
{_LESS_READY}"""
    release = f"""{_of(f"'{BatchState.OPEN}'", "release", one=one)}
 u as (update chunk c set state = '{ChunkState.READY}' from k where c.chunk_id = k.chunk_id
       returning c.pool_id, c.tenant_id),
{_MORE_READY}"""
    remove = f"""{_of(f"'{BatchState.CANCELLING}', '{BatchState.EXPIRING}'", "remove", one=one)}
 gone as (delete from chunk c using k where c.chunk_id = k.chunk_id),
{_COUNT_DONE}
{_LESS_READY}"""
    return hold, release, remove


# ---------------------------------------------------------------- the end of a batch

HAS_WORK = f"""
select exists (select from batch_delta)
    or exists (select from batch where {_HALTED})
    or exists (select from chunk where state = '{ChunkState.HELD}')"""

# Two stewards, of which one does not know yet that it leads no more, would lock the same batches in different orders.
ONE_AT_A_TIME = "select pg_advisory_xact_lock(hashtext('slackwater settle'))"

FOLD = """
with d as (delete from batch_delta where delta_id in
             (select delta_id from batch_delta order by delta_id limit 5000 for update skip locked)
           returning batch_id, ok, failed, prompt_tokens, cached_tokens, completion_tokens),
 a as (select batch_id, sum(ok) as ok, sum(failed) as failed, sum(prompt_tokens) as prompt_tokens,
              sum(cached_tokens) as cached_tokens, sum(completion_tokens) as completion_tokens from d group by 1)
update batch b set ok = b.ok + a.ok, failed = b.failed + a.failed, prompt_tokens = b.prompt_tokens + a.prompt_tokens,
       cached_tokens = b.cached_tokens + a.cached_tokens, completion_tokens = b.completion_tokens + a.completion_tokens
from a where a.batch_id = b.batch_id
returning b.batch_id, b.run, b.request_id, b.model, b.total, b.ok, b.failed, b.kind"""

# Same transaction as FOLD. A batch whose items all have a result failed if none of them succeeded, and is complete
# otherwise, even if it was to expire. One that winds up ends when no lease and no uncounted result is left. Whoever waited for
# the row's lock must find it as it was judged: meanwhile it may have ended, and run again.
FINALISE = f"""
with ending as (
  select batch_id, state, run, case
    when ok + failed = total and ok > 0 and {BATCH.guard("complete")} then '{BatchState.COMPLETED}'
    when ok + failed = total and {BATCH.guard("fail")} then '{BatchState.FAILED}'
    when {BATCH.guard("end cancelled")} then '{BatchState.CANCELLED}'
    when {BATCH.guard("end expired")} then '{BatchState.EXPIRED}' end as target
  from batch b
  where (b.batch_id = any(%(ids)s) or (%(all)s and b.state in ('{BatchState.CANCELLING}', '{BatchState.EXPIRING}')))
    and not exists (select from chunk c where c.batch_id = b.batch_id)
    and not exists (select from batch_delta d where d.batch_id = b.batch_id))
update batch b set finalized_at = now(), state = e.target
from ending e, tenant t
where b.batch_id = e.batch_id and e.target is not null and b.state = e.state and b.run = e.run and t.tenant_id = b.tenant_id
returning b.batch_id, b.request_id, b.tenant_id, t.account_id, b.model, b.run, b.state, b.total, b.ok, b.failed,
          b.prompt_tokens, b.completion_tokens, b.traceparent, b.kind, extract(epoch from now() - b.opened_at)::float8"""

# ---------------------------------------------------------------- what is under way

# Leased chunks are few, whatever the backlog. Late is said by what is left of the batch alone, at the pace of its pool.
UNDER_WAY = f"""
with running as materialized (
  select distinct batch_id, pool_id from chunk where {CHUNK.guard("finish")} and tenant_id = any(%(tenant_ids)s))
select b.tenant_id, t.account_id, b.batch_id, b.run, b.request_id, b.model, b.traceparent, b.total,
       b.ok + coalesce(d.ok, 0) + c.done, b.failed + coalesce(d.failed, 0) + c.failed,
       coalesce(b.expires_at < now() + make_interval(secs => c.tokens / nullif(rate.pace, 0)), false)
from running r join batch b using (batch_id) join tenant t using (tenant_id)
left join lateral {PACE.format(pool="r.pool_id")} rate on true
cross join lateral (
  select sum(done)::int as done, sum(failed)::int as failed, sum(est_tokens::float8 * (n - done - failed) / n) as tokens
  from chunk where chunk.batch_id = b.batch_id) c
left join lateral (
  select sum(ok)::int as ok, sum(failed)::int as failed from batch_delta x where x.batch_id = b.batch_id) d on true
where b.state = '{BatchState.OPEN}' and b.kind = '{Kind.BATCH}'"""

# Only of batches that hold a lease, which are few; what is folded is enough, since each fold tells of itself.
RUNNING = f"""
select b.batch_id, b.run, b.request_id, b.model, b.total, b.ok, b.failed, b.kind
from (select distinct batch_id from chunk where {CHUNK.guard("finish")}) c join batch b using (batch_id)
where b.finalized_at is null"""

# ---------------------------------------------------------------- what a caller asks for


def halt(verb: str) -> str:
    """UPDATE that moves one batch of a tenant by `verb`: pause, resume or cancel."""
    target = next(t.target for t in BATCH.transitions if t.verb == verb)
    return f"""
update batch set state = '{target}'
where tenant_id = %(tenant_id)s and request_id = %(request_id)s and {BATCH.guard(verb)} returning batch_id"""


# The new run has as long as the one before.
REOPEN = f"""
update batch set state = '{BatchState.OPEN}', run = run + 1, failed = 0, finalized_at = null,
       opened_at = now(), deadline = now() + (deadline - opened_at), expires_at = now() + (expires_at - opened_at)
where tenant_id = %(tenant_id)s and request_id = %(request_id)s and kind = '{Kind.BATCH}'
  and ok < total and {BATCH.guard("retry")}
  and (%(of_run)s::int is null or run = %(of_run)s)
returning batch_id, run, model, deadline, traceparent"""

# Who was answered once is not asked again, in whatever run that was.
UNANSWERED = """
select p.seq, p.est_tokens, p.model from item_payload p
where p.batch_id = %(batch_id)s
  and not exists (select from item_result r where r.batch_id = %(batch_id)s and r.seq = p.seq and r.ok = 1)
order by p.seq"""

STATE = (
    "select state, run, ok, failed, total from batch where tenant_id = %(tenant_id)s and request_id = %(request_id)s"
)

# ---------------------------------------------------------------- caches, pace, stock

LOCK_CACHES = "select from sched order by pool_id, tenant_id for update"

# A second statement, because under READ COMMITTED it sees what the holders of the locks before us have committed. Who changes
# a chunk later has not touched `sched` yet and will add its difference to what we write.
RECOMPUTE = f"""
with truth as (select pool_id, tenant_id, count(*) filter (where {CHUNK.guard("claim")})::int as ready,
                      coalesce(sum(est_tokens) filter (where {CHUNK.guard("finish")}), 0)::bigint as inflight_tokens
               from chunk group by 1, 2),
 drift as (select s.pool_id, s.tenant_id, s.ready as old_ready, s.inflight_tokens as old_inflight,
                  coalesce(t.ready, 0) as ready, coalesce(t.inflight_tokens, 0) as inflight_tokens
           from sched s left join truth t using (pool_id, tenant_id)
           where (s.ready, s.inflight_tokens) is distinct from (coalesce(t.ready, 0), coalesce(t.inflight_tokens, 0)))
update sched s set ready = d.ready, inflight_tokens = d.inflight_tokens, drifts = drifts + 1 from drift d
where s.pool_id = d.pool_id and s.tenant_id = d.tenant_id
returning s.pool_id, s.tenant_id, d.ready - d.old_ready, d.inflight_tokens - d.old_inflight"""

# Only while there is work and an engine to do it: other time says nothing of the pace. Of chunks that are with an engine what
# is done counts already; in `served_tokens` they are only at their end.
SERVED = f"""
select s.pool_id, extract(epoch from now())::float8, (sum(s.served_tokens) + coalesce(max(l.tokens), 0))::float8
from sched s left join (
  select pool_id, sum(est_tokens::float8 * (done + failed) / n) as tokens
  from chunk where {CHUNK.guard("finish")} group by pool_id) l using (pool_id)
where exists (select from engine e join worker w using (worker_id)
              where e.pool_id = s.pool_id and e.state = '{EngineState.READY}' and w.lease_until > now())
group by s.pool_id having bool_or(s.ready > 0 or s.inflight_tokens > 0)"""
NOTES = """
select extract(epoch from at)::float8, served_tokens::float8 from (
  select at, served_tokens from pace where pool_id = %(pool_id)s order by at desc limit %(limit)s) x order by at"""
NOTE_PACE = """
insert into pace (pool_id, at, served_tokens, tokens_per_second, spread)
values (%(pool_id)s, to_timestamp(%(at)s), %(served)s, %(pace)s, %(spread)s) on conflict do nothing"""
FORGET_PACE = "delete from pace where at < now() - interval '1 hour'"

PARTITIONS = """
select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
where i.inhparent in ('item_payload'::regclass, 'item_result'::regclass)"""

DAYS = """
select to_char(day, 'YYYYMMDD'), (day::date - date '2024-01-01')::bigint << 36, (day::date + 1 - date '2024-01-01')::bigint << 36
from generate_series((now() at time zone 'utc')::date, (now() at time zone 'utc')::date + %(days)s, interval '1 day') day"""

PARTITION_LOCK = "select pg_advisory_xact_lock(hashtext('slackwater partitions'))"

# ---------------------------------------------------------------- signs of trouble

GAUGES = f"""
select 'oldest_snapshot_seconds', '', coalesce(max(extract(epoch from now() - xact_start)), 0)::float8
  from pg_stat_activity where backend_xmin is not null and pid <> pg_backend_pid()
union all select 'dead_tuples', relname, n_dead_tup from pg_stat_user_tables
  where schemaname = current_schema() and relname in ('chunk', 'sched', 'worker', 'batch_delta', 'batch')
union all select 'partitions_ahead_days', '',
  coalesce(max(to_date(right(c.relname, 8), 'YYYYMMDD')) - (now() at time zone 'utc')::date, -1)
  from pg_inherits i join pg_class c on c.oid = i.inhrelid where i.inhparent = 'item_payload'::regclass
union all select 'fold_lag_deltas', '', count(*) from (select from batch_delta limit 100000) d
union all select 'oldest_ready_seconds', '', coalesce(extract(epoch from now() - (
    select b.opened_at from batch b where b.finalized_at is null
      and exists (select from chunk c where c.batch_id = b.batch_id and {CHUNK.guard("claim", "c.")})
    order by b.created_at limit 1)), 0)::float8
union all select 'open_batches', '', count(*) from (select from batch where finalized_at is null limit 100000) b
union all select 'ready_chunks', p.model, coalesce(sum(s.ready), 0) from pool p left join sched s using (pool_id) group by 2
union all select 'inflight_tokens', p.model, coalesce(sum(s.inflight_tokens), 0)
  from pool p left join sched s using (pool_id) group by 2
union all select 'cache_drifts_total', '', coalesce(sum(drifts), 0) from sched
union all select 'live_workers', '', count(*) from worker where lease_until > now()"""
