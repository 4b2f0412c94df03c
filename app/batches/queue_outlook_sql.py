"""The SQL of the queue by model. Its rows are the open batches, up to MOST_BATCHES of them, added up; no item is looked at."""

from app.queue.forecast_sql import latest_pace
from app.queue.types import Kind
from app.states import BatchState, EngineIntake, EngineState
from app.worker_lease import WORKER_LEASE_HOLDS

MOST_BATCHES = 10_000
_HELD = ("budget", "sealed")  # codes of `why`: what waits for money or for its key
_LEFT = "greatest(0, b.est_tokens * (1 - (b.ok + b.failed)::float8 / b.total))"

# By account, model and urgency: `held` batches run only once somebody acts; hours: the deadline is within so many, null: later.
WAITING = f"""
select b.tenant_id, t.weight::float8, b.model,
       b.state = '{BatchState.PAUSED}' or coalesce(p.code in ({", ".join(f"'{code}'" for code in _HELD)}), false) as held,
       case when b.expires_at < now() + interval '1 hour' then 1
            when b.expires_at < now() + interval '1 day' then 24 end as hours,
       count(*)::int, coalesce(sum({_LEFT}), 0)::float8
from (select * from batch where finalized_at is null and kind = '{Kind.BATCH}' limit {MOST_BATCHES}) b
join tenant t on t.tenant_id = b.tenant_id
left join batch_phase p on p.batch_id = b.batch_id and p.until is null
group by 1, 2, 3, 4, 5"""

POOLS = f"""
select p.model, x.pace, x.spread, x.still,
       (select count(*) from engine e join worker w using (worker_id)
        where e.pool_id = p.pool_id and e.state = '{EngineState.READY}' and e.intake = '{EngineIntake.OPEN}'
          and w.{WORKER_LEASE_HOLDS})::int
from pool p left join lateral {latest_pace("p.pool_id")} x on true"""
