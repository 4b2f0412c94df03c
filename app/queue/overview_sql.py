"""The SQL of the overview and of the queue's gauges."""

from app.queue.forecast_sql import latest_pace
from app.queue.item_counts_sql import MAX_BATCHES, OF_ENGINE
from app.queue.unreserved_sql import PAYABLE, counted
from app.states import BATCH, CHUNK, BatchState, EngineState
from app.worker_lease import WORKER_LEASE_HOLDS, worker_overdue

MOST_COUNTED = 1000  # of a gauge; this value means so many or more
_MOST_LOOKED_AT = 10_000  # open batches, from the oldest on

_SAMPLED_ACCOUNTS, _SAMPLED_CHUNKS = 100, 20  # by whose chunks the waiting tokens are estimated

# A steward leads as long as its connection holds the advisory lock.
_STEWARD_LEADS = """exists (select from pg_locks where locktype = 'advisory' and granted and objsubid = 1
               and database = (select oid from pg_database where datname = current_database())
               and (classid::bigint << 32) | objid::bigint = hashtext('slackwater steward')::bigint)"""


def _connected(part: str) -> str:
    return f"""exists (select from pg_stat_activity
               where datname = current_database() and application_name = 'slackwater {part}')"""


# Whether a chunk of batch b waits for a worker. Nothing is reserved for it before its turn, and without an engine.
_WAITS = f"""exists (select from chunk c where c.batch_id = b.batch_id and ({CHUNK.guard("claim", "c.")}
  or {CHUNK.guard("reserve", "c.")} and (c.pool_id, c.budgets) in (select pool_id, budgets from payable)))"""

# Whether items of batch b wait, whatever for.
_QUEUED = f"exists (select from chunk c where c.batch_id = b.batch_id and not {CHUNK.guard('finish', 'c.')})"

# The kinds of batches that wait for a model; of one that is served, nobody asks.
_WAITING_KINDS = f"""case when exists (select from engine e join worker w using (worker_id)
    where e.pool_id = p.pool_id and e.state = '{EngineState.READY}' and w.{WORKER_LEASE_HOLDS}) then '[]'::jsonb
  else (select coalesce(jsonb_agg(distinct b.kind), '[]') from (
    select batch_id from chunk c where c.pool_id = p.pool_id and ({CHUNK.guard("claim", "c.")}
      or {CHUNK.guard("reserve", "c.")}) limit {MOST_COUNTED}) w join batch b using (batch_id)) end"""

OVERVIEW = f"""
with recursive{PAYABLE},
 open as materialized (
  select batch_id, opened_at, created_at from batch where finalized_at is null limit {MAX_BATCHES})
select (select count(*) from open),
       (select extract(epoch from now() - b.opened_at)::float8 from open b where {_QUEUED} order by b.created_at limit 1),
       (select count(*) from worker where {WORKER_LEASE_HOLDS} and not {worker_overdue()}),
       {_STEWARD_LEADS},
       {_connected("notifier")},
       {_connected("maintenance")},
       (select coalesce(jsonb_object_agg(p.model, {_WAITING_KINDS}), '{{}}') from pool p
        where exists (select from sched s where s.pool_id = p.pool_id and s.ready > 0)
          or pool_id in (select pool_id from payable)),
       (select coalesce(jsonb_object_agg(e.name, jsonb_build_array({OF_ENGINE}, e.sync_in_flight)), '{{}}')
        from engine e join worker w using (worker_id) where w.{WORKER_LEASE_HOLDS}),
       extract(epoch from now() - pg_postmaster_start_time())::float8,
       (select count(*) from open join batch_phase p using (batch_id) where p.until is null and p.code = 'budget')"""

# What an operator watches: (name, table or model, value).
GAUGES = f"""
with recursive{PAYABLE},
 unreserved as materialized {counted("payable")}
select 'oldest_snapshot_seconds', '', coalesce(max(extract(epoch from now() - xact_start)), 0)::float8
  from pg_stat_activity where backend_xmin is not null and pid <> pg_backend_pid()
union all select 'dead_tuples', relname, n_dead_tup from pg_stat_user_tables
  where schemaname = current_schema() and relname in ('chunk', 'sched', 'worker', 'batch_delta', 'sched_delta', 'batch')
union all select 'partitions_ahead_seconds', '',
  86400.0 * coalesce(max(to_date(right(c.relname, 8), 'YYYYMMDD')) - (now() at time zone 'utc')::date, -1)
  from pg_inherits i join pg_class c on c.oid = i.inhrelid where i.inhparent = 'item_payload'::regclass
union all select 'fold_lag_deltas', '', count(*) from (select from batch_delta limit {MOST_COUNTED}) d
union all select 'oldest_ready_seconds', '', coalesce(extract(epoch from now() - (
    select b.opened_at from (
      select * from (select * from batch where finalized_at is null order by created_at limit {_MOST_LOOKED_AT}) oldest
      where {BATCH.guard("pause")} order by created_at limit {MOST_COUNTED}) b
    where {_WAITS} order by b.created_at limit 1)), 0)::float8
union all select 'open_batches', '', count(*) from (select from batch where finalized_at is null limit {MOST_COUNTED}) b
union all select 'ready_chunks', p.model, coalesce(sum(x.n), 0) from pool p left join (
    select pool_id, ready::bigint as n from sched union all select pool_id, n from unreserved) x using (pool_id)
  group by 2
union all select 'inflight_tokens', p.model, coalesce(sum(s.inflight_tokens), 0)
  from pool p left join sched s using (pool_id) group by 2
union all select 'cache_drifts_total', '', coalesce(sum(drifts), 0) from sched
union all select 'live_workers', '', count(*) from worker where {WORKER_LEASE_HOLDS}
union all select 'fold_lag_seconds', '', coalesce(
  (select extract(epoch from now() - at) from batch_delta order by delta_id limit 1), 0)::float8
union all select 'overdue_batches', '', count(*) from (
  select from batch where expires_at < now() - interval '1 minute' and state in ('{BatchState.OPEN}', '{BatchState.PAUSED}')
  limit {MOST_COUNTED}) late
union all select 'steward_leads', '', {_STEWARD_LEADS}::int
union all select 'notifier_connected', '', {_connected("notifier")}::int
union all select 'maintenance_connected', '', {_connected("maintenance")}::int
union all (
 with waiting as materialized (
  select pool_id, tenant_id, ready from sched where ready > 0 order by ready desc limit {_SAMPLED_ACCOUNTS}),
 sampled as materialized (
  select w.pool_id, avg(c.est_tokens) as mean from waiting w cross join lateral (
    select est_tokens from chunk where {CHUNK.guard("claim")} and pool_id = w.pool_id and tenant_id = w.tenant_id
    order by deadline, chunk_id limit {_SAMPLED_CHUNKS}) c group by 1)
 select 'waiting_tokens', p.model, coalesce(sum(s.ready) * max(m.mean), 0)
   + coalesce((select sum(n * tokens) from unreserved x where x.pool_id = p.pool_id), 0)
 from pool p left join sched s using (pool_id) left join sampled m using (pool_id) group by 2, p.pool_id)
union all select 'pace_tokens_per_second', p.model, x.pace from pool p join lateral {latest_pace("p.pool_id")} x on true
union all select 'forecast_error_ratio', p.model, x.spread from pool p join lateral {latest_pace("p.pool_id")} x on true
  where x.spread is not null"""
