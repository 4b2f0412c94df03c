"""The SQL of retention: which days can be dropped, and dropping one. A day is a range of batch ids.

Exception: these statements read and delete rows of `event`, `delivery` and `endpoint` (`app.webhooks`), because a batch and its
events must go in one transaction.
"""

from app.states import DELIVERY

# Held for the length of the connection: two runs at once would only block each other.
TRY_LOCK = "select pg_try_advisory_lock(hashtext('slackwater retention'))"
UNLOCK = "select pg_advisory_unlock(hashtext('slackwater retention'))"

NOW = "select now()"

# Every partition: attached, half detached (by an interrupted run), or detached and not yet dropped.
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

IS_OVER = """b.finalized_at is not null
  and not exists (select from chunk c where c.batch_id = b.batch_id)
  and not exists (select from batch_delta d where d.batch_id = b.batch_id)"""
# A stage stays as long as its pipeline. An outstanding delivery keeps its batch, except at a disabled or deleted endpoint, which
# is sent nothing, and at an endpoint without a URL, which is a queue that perhaps nobody pulls from.
_MAY_GO = f"""{IS_OVER} and b.finalized_at < now() - make_interval(days => greatest(%(days)s::int, t.retention_days))
  and not exists (select from pipeline p where p.pipeline_id = b.pipeline_id and coalesce(
                    p.finalized_at >= now() - make_interval(days => greatest(%(days)s::int, t.retention_days)), true))
  and not exists (select from event e join delivery d using (event_id) join endpoint p using (endpoint_id)
                  where e.batch_id = b.batch_id
                    and ({DELIVERY.guard("reap", "d.")}
                         or ({DELIVERY.guard("claim", "d.")} or {DELIVERY.guard("release", "d.")})
                         and p.state not in ('disabled', 'closing') and p.url is not null))"""

IS_HELD = f"""
select exists (select from batch b join tenant t using (tenant_id) where {_OF_DAY} and ({_MAY_GO}) is not true)"""

# Locked, so that a concurrent retry either keeps the batch or no longer finds it.
TAKE = f"""
select b.batch_id from batch b join tenant t using (tenant_id)
where {_OF_DAY} and {_MAY_GO} order by b.batch_id limit %(limit)s for update of b"""

IS_EMPTY = f"select not exists (select from batch b where {_OF_DAY})"

# The attempts of a delivery are deleted with it (ON DELETE CASCADE).
FORGET = (
    "delete from delivery where event_id in (select event_id from event where batch_id = any(%(ids)s))",
    "delete from event where batch_id = any(%(ids)s)",
    "delete from batch_phase where batch_id = any(%(ids)s)",
    "delete from batch_error where batch_id = any(%(ids)s)",
    "delete from handoff where batch_id = any(%(ids)s)",
    "delete from dependency where batch_id = any(%(ids)s)",
    "delete from gather where batch_id = any(%(ids)s)",
    "delete from parked where batch_id = any(%(ids)s)",
    """with removed as (delete from batch where batch_id = any(%(ids)s)
           returning tenant_id, ok, failed, prompt_tokens, cached_tokens, completion_tokens)
insert into removed_counts as r (tenant_id, ok, failed, prompt_tokens, cached_tokens, completion_tokens)
select tenant_id, sum(ok), sum(failed), sum(prompt_tokens), sum(cached_tokens), sum(completion_tokens)
from removed group by tenant_id order by tenant_id
on conflict (tenant_id) do update set ok = r.ok + excluded.ok, failed = r.failed + excluded.failed,
  prompt_tokens = r.prompt_tokens + excluded.prompt_tokens, cached_tokens = r.cached_tokens + excluded.cached_tokens,
  completion_tokens = r.completion_tokens + excluded.completion_tokens""",
)

# ---------------------------------------------------------------- a deleted account

ENDED = f"""
select b.batch_id, b.total from batch b
where b.tenant_id = %(tenant_id)s and {IS_OVER} order by b.batch_id limit %(limit)s"""

# The numbers of a stage have gaps.
NEXT_ITEM = "select min(seq) from item_payload where batch_id = %(batch_id)s and seq >= %(low)s"
FORGET_ITEMS = tuple(
    f"delete from {table} where batch_id = %(batch_id)s and seq >= %(low)s and seq < %(high)s"
    for table in ("item_result", "item_payload")
)

# A pool's pace is the growth of its tenants' served tokens. Without the update it would become negative. A fold that is under way
# locks its deltas before `sched`, so this must not wait for them.
FORGET_SHARES = """
with counts as (delete from removed_counts where tenant_id = %(tenant_id)s),
 own as materialized (
  select pool_id from sched where tenant_id = %(tenant_id)s order by pool_id for update),
 deleted as (delete from sched s using own where s.pool_id = own.pool_id and s.tenant_id = %(tenant_id)s
          returning s.pool_id, s.served_tokens),
 unfolded as (delete from sched_delta where delta_id in (
            select delta_id from sched_delta where tenant_id = %(tenant_id)s for update skip locked)
          returning pool_id, served_tokens),
 served as (select pool_id, sum(served_tokens)::int8 as tokens from (
          select pool_id, served_tokens from deleted union all select pool_id, served_tokens from unfolded) every group by 1)
update pace p set served_tokens = p.served_tokens - served.tokens from served where p.pool_id = served.pool_id"""

# ---------------------------------------------------------------- events without a batch

# Test events, and events about endpoints.
FORGET_LOOSE = f"""
with old as materialized (
    select v.event_id from event v where v.batch_id is null and v.occurred_at < now() - make_interval(days => %(days)s)
      and not exists (select from delivery d where d.event_id = v.event_id and {DELIVERY.guard("reap", "d.")})
    limit %(limit)s
),
deleted as (delete from delivery using old where delivery.event_id = old.event_id)
delete from event using old where event.event_id = old.event_id
"""

# Names are from PARTITIONS. None of these but the last may run inside a transaction.
FINALIZE = "alter table {parent} detach partition {name} finalize"
DETACH = "alter table {parent} detach partition {name} concurrently"
DROP = "drop table if exists {name}"
