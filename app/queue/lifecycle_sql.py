"""The SQL that changes the state of a batch: a caller's verbs, expiry, and the end.

Which transitions exist is in `app.states.BATCH`. `maintenance_sql` applies a batch's state to its chunks.
"""

from app.queue.types import Kind
from app.states import BATCH, BatchState

# ---------------------------------------------------------------- a caller's verbs


def change_state(verb: str) -> str:
    """The UPDATE that moves one batch of a tenant by `verb`: pause, resume or cancel."""
    return f"""
update batch set state = '{BATCH.target(verb)}'
where tenant_id = %(tenant_id)s and request_id = %(request_id)s and {BATCH.guard(verb)} returning batch_id"""


# The new run gets as much time as the one before.
REOPEN = f"""
update batch set state = '{BatchState.OPEN}', run = run + 1, failed = 0, finalized_at = null,
       opened_at = now(), deadline = now() + (deadline - opened_at), expires_at = now() + (expires_at - opened_at)
where tenant_id = %(tenant_id)s and request_id = %(request_id)s and kind = '{Kind.BATCH}'
  and ok < total and {BATCH.guard("retry")}
  and (%(of_run)s::int is null or run = %(of_run)s)
returning batch_id, run, model, deadline, traceparent"""

# An item that has an answer, from whatever run, is not run again.
UNANSWERED = """
select p.seq, p.est_tokens, p.model from item_payload p
where p.batch_id = %(batch_id)s
  and not exists (select from item_result r where r.batch_id = %(batch_id)s and r.seq = p.seq and r.ok = 1)
order by p.seq"""

STATE = (
    "select state, run, ok, failed, total from batch where tenant_id = %(tenant_id)s and request_id = %(request_id)s"
)

# ---------------------------------------------------------------- expiry

EXPIRE = f"""
update batch set state = '{BatchState.EXPIRING}'
where {BATCH.guard("expire")} and expires_at <= now() returning batch_id"""

# ---------------------------------------------------------------- the end

# Runs in the same transaction as `maintenance_sql.FOLD`. A batch whose items all have a result has failed if none succeeded, and
# is complete otherwise, even if it was expiring. A cancelling or expiring batch ends when no chunk and no uncounted result is
# left. State and run are checked again after the wait for the row's lock: meanwhile the batch may have ended and run again.
FINALISE = f"""
with ending as (
  select batch_id, state, run, case
    when ok + failed = total and ok > 0 and {BATCH.guard("complete")} then '{BatchState.COMPLETED}'
    when ok + failed = total and {BATCH.guard("fail")} then '{BatchState.FAILED}'
    when {BATCH.guard("end cancelled")} then '{BatchState.CANCELLED}'
    when {BATCH.guard("end expired")} then '{BatchState.EXPIRED}' end as target
  from batch b
  where (b.batch_id = any(%(ids)s) or (%(all)s and b.state in ('{BatchState.CANCELLING}', '{BatchState.EXPIRING}')))
    and not exists (select from chunk c where c.batch_id = b.batch_id)
    and not exists (select from batch_delta d where d.batch_id = b.batch_id))
update batch b set finalized_at = now(), state = e.target
from ending e, tenant t
where b.batch_id = e.batch_id and e.target is not null and b.state = e.state and b.run = e.run and t.tenant_id = b.tenant_id
returning b.batch_id, b.request_id, b.tenant_id, t.account_id, b.model, b.run, b.state, b.total, b.ok, b.failed,
          b.prompt_tokens, b.completion_tokens, b.traceparent, b.kind, extract(epoch from now() - b.opened_at)::float8"""
