"""The SQL by which the steward takes chunks back from workers whose lease has lapsed."""

from app.changes import sql as changes
from app.changes.kinds import ChangeKind
from app.queue.fair_order_sql import MARK_LOWERED, WOKEN, free_accounts, is_free, waking
from app.states import CHUNK, ChunkState
from app.worker_lease import WORKER_LEASE_LAPSED

LOOK = "select extract(epoch from now())::float8, extract(epoch from pg_postmaster_start_time())::float8"
# The workers are judged only once a lease has lapsed, and read only then: a fleet has many. `orphans`: whether there are chunks
# of workers that are gone. Without these and a lapsed lease there is nothing for REAP, which costs three times as much.
HEARTBEATS = f"""
select extract(epoch from now())::float8, extract(epoch from pg_postmaster_start_time())::float8, held.orphans, w.worker_id,
       extract(epoch from w.started_at)::float8, extract(epoch from w.renewed_at)::float8,
       extract(epoch from w.lease_until)::float8
from (select exists (select worker_id from chunk where {CHUNK.guard("reap")} except select worker_id from worker) as orphans) held
  left join worker w on exists (select from worker x where x.{WORKER_LEASE_LAPSED})"""

# After its clock was put back. Who is just renewing its lease need not wait.
BEGIN_AGAIN = """
update worker w set started_at = least(w.started_at, now()), renewed_at = now(),
  lease_until = now() + (w.lease_until - w.renewed_at)
from (select worker_id from worker where renewed_at > now() for update skip locked) ahead where w.worker_id = ahead.worker_id"""

# For a database that was restored: no process that had these leases may renew one.
END_LEASES = "update worker set lease_until = now() - interval '1 second' returning worker_id"

_READY_AGAIN = """select r.pool_id, r.tenant_id, count(*) as n, sum(r.est_tokens) as tokens, min(w.weight) as weight,
               min(r.deadline) as deadline, min(r.chunk_id) as chunk_id
             from released r join tenant w using (tenant_id) group by 1, 2"""

# Of a worker with an engine, or with chunks. Where another worker has the engine already, its `TAKE` has noted the loss, as the
# row of the locked worker says; what this statement sees of the engine may be older. A worker that stood by has lost nothing.
_LOST = f"""select now(), '{ChangeKind.WORKER_LOST}', coalesce(e.name, l.host),
  jsonb_strip_nulls(jsonb_build_object('engine', e.name, 'worker', l.worker_id, 'host', l.host, 'pid', l.pid,
    'silent_seconds', round(extract(epoch from now() - l.renewed_at)::numeric, 1),
    'charged', l.worker_id = any(%(charged)s::bigint[]), 'batches', work.batches, 'chunks', work.chunks))
  from lost l left join engine e on e.worker_id = l.worker_id
  cross join lateral (select count(*) as chunks, jsonb_agg(distinct b.request_id) as batches
    from taken_back k join batch b using (batch_id) where k.worker_id = l.worker_id) work
  where (e.name is not null or work.chunks > 0) and not l.noted"""

# A higher token fences every late write of the lost worker. The estimate is refunded: an account does not pay for lost workers.
# `lost_workers` decides which losses are charged to their chunks, and `charges` takes back the charge for a worker that is alive.
# A claim may commit after its worker was reaped or has retired. Its chunk has no worker, and is taken back as well.
# Locked rows, and chunks of locked accounts, are skipped, since the next round comes anyway. So no two statements wait for each
# other in a circle.
REAP = f"""
with lost as materialized (select worker_id, host, pid, renewed_at, noted from worker
       where worker_id = any(%(lapsed)s::bigint[]) and {WORKER_LEASE_LAPSED} for update skip locked),
 found as materialized (
       select c.chunk_id, c.batch_id, c.worker_id, c.pool_id, c.tenant_id from chunk c
       where {CHUNK.guard("reap", "c.")} and (c.worker_id in (select worker_id from lost)
         or not exists (select from worker w where w.worker_id = c.worker_id))
       for update of c skip locked),
{free_accounts("found")},
 taken_back as materialized (select * from found where {is_free("found")}),
 released as (update chunk c set state = '{ChunkState.READY}', token = token + 1, worker_id = null,
              attempt = attempt + (c.worker_id = any(%(charged)s::bigint[]))::int,
              charged_for = case when c.worker_id = any(%(charged)s::bigint[]) then c.worker_id else charged_for end
        from taken_back k where c.chunk_id = k.chunk_id returning c.pool_id, c.tenant_id, c.est_tokens, c.deadline, c.chunk_id),
{waking(_READY_AGAIN)},
 refunded as (update sched s set ready = s.ready + x.n, inflight_tokens = s.inflight_tokens - x.tokens,
              vtime = {WOKEN} - x.tokens / x.weight, {MARK_LOWERED}
       from changes x where s.pool_id = x.pool_id and s.tenant_id = x.tenant_id),
 deleted_workers as (delete from worker w using lost where w.worker_id = lost.worker_id),
 noted as ({changes.also(_LOST)})
select (select count(*) from lost), (select count(*) from released)"""
