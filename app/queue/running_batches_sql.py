"""The SQL that reads the batches in progress: those with a leased chunk. They are few, whatever the backlog."""

from app.queue.forecast_sql import REMAINING_TOKENS, latest_pace
from app.queue.types import Kind
from app.states import CHUNK, BatchState

# `late` compares the batch's own remaining tokens, at the pace of its pool, with the time until it expires.
IN_PROGRESS = f"""
with running as materialized (
  select distinct batch_id, pool_id from chunk where {CHUNK.guard("finish")} and tenant_id = any(%(tenant_ids)s))
select b.tenant_id, t.account_id, b.batch_id, b.run, b.request_id, b.model, b.traceparent, b.total,
       b.ok + coalesce(d.ok, 0) + c.done, b.failed + coalesce(d.failed, 0) + c.failed,
       coalesce(b.expires_at < now() + make_interval(secs => c.tokens / nullif(rate.pace, 0)), false),
       b.policy->'rules', b.diverted_to
from running r join batch b using (batch_id) join tenant t using (tenant_id)
left join lateral {latest_pace("r.pool_id")} rate on true
cross join lateral (
  select sum(done)::int as done, sum(failed)::int as failed, sum({REMAINING_TOKENS}) as tokens
  from chunk where chunk.batch_id = b.batch_id) c
left join lateral (
  select sum(ok)::int as ok, sum(failed)::int as failed from batch_delta x where x.batch_id = b.batch_id) d on true
where b.state = '{BatchState.OPEN}' and b.kind = '{Kind.BATCH}'"""

# The folded counts are enough here, because every fold reports the batches that it changed.
RUNNING = f"""
select b.batch_id, b.run, b.request_id, b.model, b.total, b.ok, b.failed, b.kind
from (select distinct batch_id from chunk where {CHUNK.guard("finish")}) c join batch b using (batch_id)
where b.finalized_at is null"""
