"""The SQL of the overview and of the queue's gauges."""

from app.states import BATCH, CHUNK
from app.worker_lease import WORKER_LEASE_HOLDS

MAX_BATCHES = 100_000  # more are not counted
MOST_COUNTED = 1000  # of a gauge; this value means so many or more
_MOST_LOOKED_AT = 10_000  # open batches, from the oldest on

# Leased chunks are few, whatever the backlog. A steward leads as long as its connection holds the advisory lock.
OVERVIEW = f"""
with open as materialized (
  select batch_id, opened_at, created_at, total - ok - failed as items from batch where finalized_at is null limit {MAX_BATCHES}),
 leased as (select coalesce(sum(n - done - failed), 0)::bigint as items from chunk where {CHUNK.guard("finish")})
select (select count(*) from open),
       greatest(0, (select coalesce(sum(items), 0) from open)::bigint - leased.items),
       leased.items,
       (select extract(epoch from now() - o.opened_at)::float8 from open o
        where exists (select from chunk c where c.batch_id = o.batch_id and {CHUNK.guard("claim", "c.")})
        order by o.created_at limit 1),
       (select count(*) from worker where {WORKER_LEASE_HOLDS}),
       exists (select from pg_locks where locktype = 'advisory' and granted and objsubid = 1
               and database = (select oid from pg_database where datname = current_database())
               and (classid::bigint << 32) | objid::bigint = hashtext('slackwater steward')::bigint),
       exists (select from pg_stat_activity
               where datname = current_database() and application_name = 'slackwater notifier')
from leased"""

# What an operator watches: (name, table or model, value).
GAUGES = f"""
select 'oldest_snapshot_seconds', '', coalesce(max(extract(epoch from now() - xact_start)), 0)::float8
  from pg_stat_activity where backend_xmin is not null and pid <> pg_backend_pid()
union all select 'dead_tuples', relname, n_dead_tup from pg_stat_user_tables
  where schemaname = current_schema() and relname in ('chunk', 'sched', 'worker', 'batch_delta', 'batch')
union all select 'partitions_ahead_days', '',
  coalesce(max(to_date(right(c.relname, 8), 'YYYYMMDD')) - (now() at time zone 'utc')::date, -1)
  from pg_inherits i join pg_class c on c.oid = i.inhrelid where i.inhparent = 'item_payload'::regclass
union all select 'fold_lag_deltas', '', count(*) from (select from batch_delta limit {MOST_COUNTED}) d
union all select 'ledger_lag_seconds', '', coalesce(extract(epoch from now() - (
    select at from batch_delta order by delta_id limit 1)), 0)
union all select 'oldest_ready_seconds', '', coalesce(extract(epoch from now() - (
    select b.opened_at from (
      select * from (select * from batch where finalized_at is null order by created_at limit {_MOST_LOOKED_AT}) oldest
      where {BATCH.guard("pause")} order by created_at limit {MOST_COUNTED}) b
    where exists (select from chunk c where c.batch_id = b.batch_id and {CHUNK.guard("claim", "c.")})
    order by b.created_at limit 1)), 0)::float8
union all select 'open_batches', '', count(*) from (select from batch where finalized_at is null limit {MOST_COUNTED}) b
union all select 'ready_chunks', p.model, coalesce(sum(s.ready), 0) from pool p left join sched s using (pool_id) group by 2
union all select 'inflight_tokens', p.model, coalesce(sum(s.inflight_tokens), 0)
  from pool p left join sched s using (pool_id) group by 2
union all select 'cache_drifts_total', '', coalesce(sum(drifts), 0) from sched
union all select 'live_workers', '', count(*) from worker where {WORKER_LEASE_HOLDS}"""
