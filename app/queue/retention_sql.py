"""The SQL of retention: which days may go, and taking one out of the tables. A day is a range of batch ids."""

from app.states import DELIVERY

# Held by a connection; two at once would only stand in each other's way.
TRY_LOCK = "select pg_try_advisory_lock(hashtext('slackwater retention'))"

# Every partition whether attached, half detached (a run was cut short) or detached and not dropped yet.
PARTITIONS = """
select c.relname, left(c.relname, -9), i.inhrelid is not null, coalesce(i.inhdetachpending, false), x.day,
       x.day <= (now() at time zone 'utc')::date - 1 - %(days)s::int,
       (x.day - date '2024-01-01')::bigint << 36, (x.day + 1 - date '2024-01-01')::bigint << 36
from pg_class c left join pg_inherits i on i.inhrelid = c.oid
cross join lateral (select to_date(right(c.relname, 8), 'YYYYMMDD') as day) x
where c.relnamespace = (select relnamespace from pg_class where oid = 'item_payload'::regclass)
  and c.relkind = 'r' and c.relname ~ '^item_(payload|result)_[0-9]{8}$'
order by x.day, c.relname"""

_OF_DAY = "b.batch_id >= %(low)s and b.batch_id < %(high)s"

# A delivery still to be made keeps its batch, unless nobody is to hear it: of a disabled or deleted endpoint nothing is sent. One
# that is to be fetched keeps nothing for ever: nobody may come.
_IS_OVER = """b.finalized_at is not null
  and not exists (select from chunk c where c.batch_id = b.batch_id)
  and not exists (select from batch_delta d where d.batch_id = b.batch_id)"""
_MAY_GO = f"""{_IS_OVER} and b.finalized_at < now() - make_interval(days => greatest(%(days)s::int, t.retention_days))
  and not exists (select from event e join delivery d using (event_id) join endpoint p using (endpoint_id)
                  where e.batch_id = b.batch_id
                    and ({DELIVERY.guard("reap", "d.")}
                         or ({DELIVERY.guard("claim", "d.")} or {DELIVERY.guard("release", "d.")})
                         and p.state not in ('disabled', 'closing') and p.url is not null))"""

IS_HELD = f"""
select exists (select from batch b join tenant t using (tenant_id) where {_OF_DAY} and ({_MAY_GO}) is not true)"""

# Locked, so that a batch that is being opened again is either kept or not found by whoever opens it.
TAKE = f"""
select b.batch_id from batch b join tenant t using (tenant_id)
where {_OF_DAY} and {_MAY_GO} order by b.batch_id limit %(limit)s for update of b"""

IS_EMPTY = f"select not exists (select from batch b where {_OF_DAY})"

# Attempts go with their delivery.
FORGET = (
    "delete from delivery where event_id in (select event_id from event where batch_id = any(%(ids)s))",
    "delete from event where batch_id = any(%(ids)s)",
    "delete from batch where batch_id = any(%(ids)s)",
)

# ---------------------------------------------------------------- what a deleted account leaves

ENDED = f"""
select b.batch_id, b.total from batch b
where b.tenant_id = %(tenant_id)s and {_IS_OVER} order by b.batch_id limit %(limit)s"""

FORGET_ITEMS = tuple(
    f"delete from {table} where batch_id = %(batch_id)s and seq >= %(low)s and seq < %(high)s"
    for table in ("item_result", "item_payload")
)

# The pace of a pool is the growth of what all its tenants were served: without this it would fall below zero.
FORGET_SHARES = """
with own as materialized (
  select pool_id from sched where tenant_id = %(tenant_id)s order by pool_id for update),
 gone as (delete from sched s using own where s.pool_id = own.pool_id and s.tenant_id = %(tenant_id)s
          returning s.pool_id, s.served_tokens)
update pace p set served_tokens = p.served_tokens - gone.served_tokens from gone where p.pool_id = gone.pool_id"""

# ---------------------------------------------------------------- events of no batch

# Events of no batch: tests, and what is told of endpoints.
FORGET_LOOSE = f"""
with old as materialized (
    select v.event_id from event v where v.batch_id is null and v.occurred_at < now() - make_interval(days => %(days)s)
      and not exists (select from delivery d where d.event_id = v.event_id and {DELIVERY.guard("reap", "d.")})
    limit %(limit)s
),
told as (delete from delivery using old where delivery.event_id = old.event_id)
delete from event using old where event.event_id = old.event_id
"""

# Names are from PARTITIONS. None of these but the last may run inside a transaction.
FINALIZE = "alter table {parent} detach partition {name} finalize"
DETACH = "alter table {parent} detach partition {name} concurrently"
DROP = "drop table if exists {name}"
