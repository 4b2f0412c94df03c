"""The SQL of a caller's verbs on a whole batch.

Which transitions exist is in `app.states.BATCH`. `chunk_sweeps_sql` applies a batch's state to its chunks.
"""

from app.queue.types import Kind
from app.states import BATCH, CHUNK, BatchState


def transition(verb: str) -> str:
    """The UPDATE that moves one batch of a tenant by `verb`: pause, resume or cancel. It returns the state before, too.

    A stage of a pipeline moves with its pipeline only.
    """
    return f"""
with old as materialized (select batch_id, state from batch
  where tenant_id = %(tenant_id)s and request_id = %(request_id)s and {BATCH.guard(verb)}
    and pipeline_id is null for no key update)
update batch b set state = '{BATCH.target(verb)}' from old where b.batch_id = old.batch_id
returning b.batch_id, old.state"""


# The columns of batch_state.Reopened, of batch b.
REOPENED = """b.batch_id, b.run, b.model, b.deadline, b.traceparent, b.line_id, b.open_ended, b.policy->'rules', b.model_lines"""

# The new run gets as much time as the one before. Its items count anew, so their failures are kept apart.
REOPEN = f"""
with old as materialized (select batch_id, tenant_id, failed from batch
           where tenant_id = %(tenant_id)s and request_id = %(request_id)s and kind = '{Kind.BATCH}'
             and pipeline_id is null and ok < total and shredded_at is null
             and {BATCH.guard("retry")} and (%(of_run)s::int is null or run = %(of_run)s)
           for update),
 noted as (insert into removed_counts as r (tenant_id, failed) select tenant_id, failed from old where failed > 0
       on conflict (tenant_id) do update set failed = r.failed + excluded.failed)
update batch b set state = '{BatchState.OPEN}', run = run + 1, failed = 0, finalized_at = null,
       opened_at = now(), deadline = now() + (deadline - opened_at), expires_at = now() + (expires_at - opened_at)
from old where b.batch_id = old.batch_id
returning {REOPENED}"""

# An item that has an answer, from whatever run, is not run again.
UNANSWERED = """
select p.seq, p.est_tokens, p.model, p.line_id from item_payload p
where p.batch_id = %(batch_id)s
  and not exists (select from item_result r where r.batch_id = %(batch_id)s and r.seq = p.seq and r.ok = 1)
order by p.seq"""

STATE = """
select state, run, ok, failed, total, shredded_at is not null, pipeline_id
from batch where tenant_id = %(tenant_id)s and request_id = %(request_id)s"""

# Counted up to a number above which it makes no difference.
_READY_CHUNKS = f"""
select p.model, count(*)::int from (
  select pool_id from chunk where {{of}} and {CHUNK.guard("claim")} limit %(most)s) c
join pool p using (pool_id) group by 1"""
READY_CHUNKS = _READY_CHUNKS.format(of="batch_id = %(batch_id)s")
READY_CHUNKS_OF_PIPELINE = _READY_CHUNKS.format(
    of="batch_id in (select batch_id from stage where pipeline_id = %(pipeline_id)s)"
)
