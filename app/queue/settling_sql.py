"""The SQL that adds up the counts of finished chunks and ends batches. That of their errors is in `errors_sql`.

Exception: the statement that ends batches writes `file_batch` (`app.files`), since when their files can be read.
"""

from app.queue.chunk_sweeps_sql import HALTED
from app.states import BATCH, BatchState, ChunkState, ParkedState

HAS_WORK = f"""
select exists (select from batch_delta)
    or exists (select from batch where {HALTED})
    or exists (select from chunk where state = '{ChunkState.HELD}')
    or exists (select from batch where feeds and finalized_at is not null)"""

# Two stewards at once, one of which has lost the lead without noticing yet, would lock the same batches in different orders.
ONE_AT_A_TIME = "select pg_advisory_xact_lock(hashtext('slackwater settle'))"

TAKE = """
select delta_id, errors is not null, unrun > 0 from batch_delta order by delta_id limit 5000 for update skip locked"""

# Usage of the results that an engine was asked for, by hour and line, with the counts in the order of `UsageCounts`. Without a
# line: the parts of the batch that a line needs.
USAGE = """
select date_trunc('hour', d.at, 'UTC'), coalesce(d.line_id, b.line_id),
       case when coalesce(d.line_id, b.line_id) is null then b.tenant_id end as tenant_id,
       case when coalesce(d.line_id, b.line_id) is null then b.model end as model,
       case when coalesce(d.line_id, b.line_id) is null then b.kind end as kind,
       sum(d.ok + d.failed - d.unrun)::int8, sum(d.ok - d.unrun_ok)::int8, sum(d.prompt_tokens)::int8, sum(d.cached_tokens)::int8,
       sum(d.completion_tokens)::int8, sum(d.repeats)::int8, sum(d.retried)::int8, sum(d.retried_ok)::int8, sum(d.yields)::int8,
       sum(d.engine_ms)::int8, string_agg(d.first_tokens, ''), string_agg(d.durations, '')
from batch_delta d join batch b using (batch_id)
where d.delta_id = any(%(ids)s) and (d.ok + d.failed > d.unrun or d.engine_ms > 0) group by 1, 2, 3, 4, 5"""

# The ledger is compared with what batches have counted, so what it does not have is taken from that. Whoever removes or reopens
# a batch changes the same rows, but no batch that has deltas.
UNRUN = """
insert into removed_counts as r (tenant_id, ok, failed)
select b.tenant_id, -sum(d.unrun_ok), -sum(d.unrun - d.unrun_ok) from batch_delta d join batch b using (batch_id)
where d.delta_id = any(%(ids)s) and d.unrun > 0 group by 1 order by 1
on conflict (tenant_id) do update set ok = r.ok + excluded.ok, failed = r.failed + excluded.failed"""

FOLD = """
with deltas as (delete from batch_delta where delta_id = any(%(ids)s)
           returning batch_id, ok, failed, prompt_tokens, cached_tokens, completion_tokens, added, bytes, line_id, details),
 sums as (select d.batch_id, sum(d.ok) as ok, sum(d.failed) as failed, sum(d.prompt_tokens) as prompt_tokens,
              sum(d.cached_tokens) as cached_tokens, sum(d.completion_tokens) as completion_tokens, sum(d.added) as added,
              sum(d.bytes) as bytes, sum_details(d.details) as details,
              coalesce(sum((d.prompt_tokens - d.cached_tokens) * l.price_in::numeric + d.cached_tokens * l.price_cached::numeric
                           + d.completion_tokens * l.price_out::numeric) filter (where l.currency = o.currency), 0) as cost
       from deltas d join batch b using (batch_id) left join line o on o.line_id = b.line_id
       left join line l on l.line_id = coalesce(d.line_id, b.line_id) group by 1)
update batch b set total = b.total + a.added, ok = b.ok + a.ok, failed = b.failed + a.failed,
       prompt_tokens = b.prompt_tokens + a.prompt_tokens, cached_tokens = b.cached_tokens + a.cached_tokens,
       completion_tokens = b.completion_tokens + a.completion_tokens, bytes = b.bytes + a.bytes,
       cost = b.cost + a.cost, details = coalesce(add_details(b.details, a.details), b.details, a.details)
from sums a where a.batch_id = b.batch_id
returning b.batch_id, b.run, b.request_id, b.model, b.total, b.ok, b.failed, b.kind"""

# Runs in the same transaction as `FOLD`. A batch whose items all have a result, and that gets no more, has failed if none
# succeeded, and is complete otherwise, even if it was expiring. A cancelling or expiring batch ends when no chunk, no uncounted
# result and no item that waits for an answer from outside is left. State and run are checked again after the wait for the row's
# lock: meanwhile the batch may have ended and run again.
FINALISE = f"""
with ending as (
  select batch_id, state, run, case
    when not fed and ok + failed = total and (ok > 0 or total = 0) and {BATCH.guard("complete")} then '{BatchState.COMPLETED}'
    when not fed and ok + failed = total and {BATCH.guard("fail")} then '{BatchState.FAILED}'
    when {BATCH.guard("end cancelled")} then '{BatchState.CANCELLED}'
    when {BATCH.guard("end expired")} then '{BatchState.EXPIRED}' end as target
  from batch b
  where (b.batch_id = any(%(ids)s) or (%(all)s and b.state in ('{BatchState.CANCELLING}', '{BatchState.EXPIRING}')))
    and not exists (select from chunk c where c.batch_id = b.batch_id)
    and not exists (select from batch_delta d where d.batch_id = b.batch_id)
    and not exists (select from parked k where k.batch_id = b.batch_id and k.state = '{ParkedState.WAITING}')),
 ended as (
  update batch b set finalized_at = now(), state = e.target
  from ending e, tenant t
  where b.batch_id = e.batch_id and e.target is not null and b.state = e.state and b.run = e.run and t.tenant_id = b.tenant_id
  returning b.batch_id, b.request_id, b.tenant_id, t.account_id, b.model, b.run, b.state, b.total, b.ok, b.failed,
            b.prompt_tokens, b.completion_tokens, b.traceparent, b.kind, extract(epoch from now() - b.opened_at)::float8,
            b.policy->'rules', b.diverted_to, b.has_sessions, b.expires_at is not null),
 listed as (update file_batch f set listed_at = now() from ended e where f.batch_id = e.batch_id)
select * from ended"""
