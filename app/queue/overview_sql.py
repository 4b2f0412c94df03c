"""The SQL of the overview."""

from app.states import CHUNK

MOST = 100_000  # batches looked at

# Leased chunks are few, whatever the backlog. The steward leads as long as its connection holds its lock.
LOOK = f"""
with open as materialized (
  select batch_id, opened_at, created_at, total - ok - failed as items from batch where finalized_at is null limit {MOST}),
 leased as (select coalesce(sum(n - done - failed), 0)::bigint as items from chunk where {CHUNK.guard("finish")})
select (select count(*) from open),
       greatest(0, (select coalesce(sum(items), 0) from open)::bigint - leased.items),
       leased.items,
       (select extract(epoch from now() - o.opened_at)::float8 from open o
        where exists (select from chunk c where c.batch_id = o.batch_id and {CHUNK.guard("claim", "c.")})
        order by o.created_at limit 1),
       (select count(*) from worker where lease_until > now()),
       exists (select from pg_locks where locktype = 'advisory' and granted and objsubid = 1
               and database = (select oid from pg_database where datname = current_database())
               and (classid::bigint << 32) | objid::bigint = hashtext('slackwater steward')::bigint),
       exists (select from pg_stat_activity
               where datname = current_database() and application_name = 'slackwater notifier')
from leased"""
