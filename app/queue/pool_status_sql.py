"""The SQL of `pool_status`: one look at all pools, which the steward takes for all workers and autoscalers."""

from app.db.durability import RELAXED
from app.queue.forecast_sql import REMAINING_TOKENS, latest_pace
from app.queue.unreserved_sql import PAYABLE
from app.states import CHUNK, BatchState, EngineState
from app.worker_lease import WORKER_LEASE_HOLDS

FRESH = "at > now() - interval '1 minute'"  # an older row is not used

# Deadlines that are close together are one, so that many batches are few entries: the farther away, the closer they seem.
_CLOSE = """
 case when deadline < now() + interval '15 minutes' then interval '15 seconds'
      when deadline < now() + interval '1 day' then interval '1 minute' else interval '15 minutes' end"""

_MAY_RUN = " or ".join([*map(CHUNK.guard, ("claim", "finish", "promote")), f"({CHUNK.guard('reserve')} and g.served)"])

# Nothing is reserved in a pool without an engine, so the first chunk that its budgets can pay asks for one (`asking`).
# Each table is read once for all pools. `work`: what the chunks of a batch in a pool still need, and how much of it may run now.
_WORK = f"""
 work as materialized (
  select c.pool_id, batch_id, deadline, sum({REMAINING_TOKENS}) as tokens,
         sum({REMAINING_TOKENS}) filter (where {_MAY_RUN}) as due,
         bool_or({CHUNK.guard("claim")}) as ready
  from chunk c left join payable g on g.budgets = c.budgets and g.pool_id = c.pool_id group by 1, 2, 3),
 asking as (select * from unnest(%(pool_ids)s::int2[], %(deadlines)s::timestamptz[], %(tokens)s::float8[])
         x (pool_id, deadline, tokens)),
 due as (select pool_id, date_bin({_CLOSE}, deadline, 'epoch') as deadline, sum(due) as tokens, bool_or(ready) as ready
         from work where due > 0 group by 1, 2
         union all
         select pool_id, date_bin({_CLOSE}, deadline, 'epoch'), tokens, false from asking),
 demand as (select pool_id, array_agg(deadline order by deadline) as deadlines, array_agg(tokens order by deadline) as tokens,
                   bool_or(ready) as ready from due group by 1)"""

# The slack of a pool: the smallest share of its window that a batch with a deadline has left once it is done, at the latest
# pace. Without a pace, the time until the deadline alone decides.
_PRESSURE = f"""
 pressure as (
  select w.pool_id, min((extract(epoch from b.expires_at - now())
              - case when r.pace is null then 0 else w.tokens / greatest(r.pace, 1) end)
              / greatest(extract(epoch from b.expires_at - b.opened_at), 1))::float8 as slack
  from (select pool_id, batch_id, sum(tokens) as tokens from work group by 1, 2 having sum(tokens) > 0) w
  join batch b on b.batch_id = w.batch_id and b.state = '{BatchState.OPEN}' and b.expires_at is not null
  left join (select pool_id, one.pace from pool cross join lateral {latest_pace("pool.pool_id")} one) r
    on r.pool_id = w.pool_id
  group by 1)"""

# `starves`: a worker waits for work, and its engine has none. `pace`: estimated tokens per second of one engine that works, if
# the pool's pace was measured just now.
_FLEET = f"""
 workforce as (select pool_id, count(*)::int as workers from worker where {WORKER_LEASE_HOLDS} group by 1),
 engines as (
  select e.pool_id, count(*) filter (where e.state = '{EngineState.READY}' and w.{WORKER_LEASE_HOLDS})::int as ready,
         count(*) filter (where e.batch_in_flight > 0 and w.{WORKER_LEASE_HOLDS}) as working,
         bool_or(w.hungry and e.batch_in_flight = 0 and w.{WORKER_LEASE_HOLDS}) as starves,
         max(e.start_seconds) as start_seconds
  from engine e left join worker w using (worker_id) where e.pool_id is not null group by 1),
 speed as (
  select e.pool_id, n.tokens_per_second / greatest(1, e.working) as pace from engines e cross join lateral (
    select tokens_per_second from pace where pool_id = e.pool_id and tokens_per_second > 0
      and at > now() - interval '10 seconds' order by at desc limit 1) n)"""

# The speed of an engine stays, because it is asked for just when no engine runs.
WRITE = f"""
with recursive{PAYABLE},{_FLEET},{_WORK},{_PRESSURE}
insert into pool_status as s (pool_id, at, workers, engines, slack, scarce, engine_pace, start_seconds, deadlines, tokens)
select p.pool_id, now(), coalesce(f.workers, 0), coalesce(e.ready, 0), x.slack,
       coalesce(e.starves and d.ready is not true, false),
       v.pace, e.start_seconds, coalesce(d.deadlines, '{{}}'), coalesce(d.tokens, '{{}}')
from pool p left join workforce f using (pool_id) left join engines e using (pool_id) left join speed v using (pool_id)
  left join pressure x using (pool_id) left join demand d using (pool_id)
where {RELAXED}
on conflict (pool_id) do update set at = excluded.at, workers = excluded.workers, engines = excluded.engines,
  slack = excluded.slack, scarce = excluded.scarce, engine_pace = coalesce(excluded.engine_pace, s.engine_pace),
  start_seconds = excluded.start_seconds, deadlines = excluded.deadlines, tokens = excluded.tokens"""
