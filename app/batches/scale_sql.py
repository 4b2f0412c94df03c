"""The SQL of the demand for engines: what is due in a pool, and how fast one of its engines works."""

from app.queue.forecast_sql import REMAINING_TOKENS
from app.states import CHUNK, EngineState
from app.worker_lease import WORKER_LEASE_HOLDS

_MAY_RUN = " or ".join(CHUNK.guard(verb) for verb in ("claim", "finish", "promote"))
_SAMPLES = 60  # the latest ones with batch work, from which the speed of an engine is computed

# The newest pace of the pool, by the engines that worked at that time. It is in estimated tokens, as the work is.
_PACE = """
select t.tokens_per_second / greatest(1, (
    select count(*) from engine e where e.pool_id = t.pool_id and exists (
      select from engine_sample s where s.engine_id = e.engine_id and s.batch > 0
        and s.at between t.at - interval '30 seconds' and t.at)))
from pace t where t.pool_id = p.pool_id and t.tokens_per_second > 0 order by t.at desc limit 1"""

# Notes of the pace are kept for an hour, samples of engines for weeks.
_HARVEST = f"""
select sum(s.batch_tokens) / nullif(sum(s.seconds), 0) from (
  select x.batch_tokens, x.seconds from engine e cross join lateral (
    (select at, batch_tokens, seconds from engine_sample
     where engine_id = e.engine_id and batch > 0 order by at desc limit {_SAMPLES})
    union all
    (select at, batch_tokens, seconds from engine_minute
     where engine_id = e.engine_id and batch > 0 order by at desc limit {_SAMPLES})) x
  where e.pool_id = p.pool_id order by x.at desc limit {_SAMPLES}) s"""

# Deadlines within 15 seconds are one row, so that many batches are few rows.
DEMAND = f"""
with p as materialized (select pool_id from pool where model = %(model)s),
 due as (select date_bin('15 seconds', deadline, 'epoch') as deadline, sum({REMAINING_TOKENS}) as tokens
         from chunk where pool_id = (select pool_id from p) and ({_MAY_RUN}) group by 1)
select coalesce(({_PACE}), nullif(({_HARVEST}), 0))::float8,
       (select max(start_seconds) from engine where pool_id = p.pool_id),
       (select count(*)::int from engine e join worker w using (worker_id)
        where e.pool_id = p.pool_id and e.state = '{EngineState.READY}' and w.{WORKER_LEASE_HOLDS}),
       coalesce((select array_agg(extract(epoch from deadline - now())::float8 order by deadline) from due), '{{}}'),
       coalesce((select array_agg(tokens::float8 order by deadline) from due), '{{}}')
from p"""
