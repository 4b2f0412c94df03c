"""The SQL of pipelines and their stages."""

from app.states import PIPELINE, BatchState

ADD = """
insert into pipeline (pipeline_id, request_id, tenant_id, name, definition, inputs, source_id, budget, deadline, expires_at,
                      idempotency_key, request_hash)
select %(pipeline_id)s, %(request_id)s, %(tenant_id)s, %(name)s, %(definition)s, %(inputs)s, %(source_id)s, %(budget)s,
       b.deadline, b.expires_at, %(idempotency_key)s, %(request_hash)s
from batch b where b.batch_id = %(pipeline_id)s
on conflict (tenant_id, idempotency_key) do nothing returning pipeline_id"""
ADD_STAGES = """
insert into stage (pipeline_id, n, batch_id, name, packs, waits_for)
select %(pipeline_id)s, x.n, x.batch_id, x.name, x.packs, nullif(string_to_array(x.waits_for, ',')::int2[], '{}')
from unnest(%(ns)s::int2[], %(batch_ids)s::int8[], %(names)s::text[], %(packs)s::int4[], %(waits_for)s::text[])
  as x (n, batch_id, name, packs, waits_for)"""

FIND_KEY = """
select request_id, request_hash from pipeline
where tenant_id = %(tenant_id)s and idempotency_key = %(idempotency_key)s"""

# ---------------------------------------------------------------- verbs


def transition(verb: str) -> str:
    """The UPDATE that moves one pipeline of a tenant by `verb`: pause, resume or cancel. It returns the state before, too."""
    return f"""
with old as materialized (select pipeline_id, state from pipeline
  where tenant_id = %(tenant_id)s and request_id = %(request_id)s and {PIPELINE.guard(verb)} for no key update)
update pipeline p set state = '{PIPELINE.target(verb)}', paused_for = %(paused_for)s
from old where p.pipeline_id = old.pipeline_id returning p.pipeline_id, old.state"""


STANDING = """
select p.pipeline_id, p.state, p.run,
       exists (select from stage s join batch b using (batch_id)
               where s.pipeline_id = p.pipeline_id and b.shredded_at is not null)
from pipeline p where p.tenant_id = %(tenant_id)s and p.request_id = %(request_id)s"""

EXPIRE = f"""
update pipeline set state = '{BatchState.EXPIRING}', paused_for = null
where {PIPELINE.guard("expire")} and expires_at <= now() returning pipeline_id"""

REOPEN = f"""
with old as materialized (select pipeline_id from pipeline p
       where tenant_id = %(tenant_id)s and request_id = %(request_id)s and {PIPELINE.guard("retry")}
         and (%(of_run)s::int is null or run = %(of_run)s)
         and not exists (select from stage s join batch b using (batch_id)
                         where s.pipeline_id = p.pipeline_id and b.shredded_at is not null)
       for no key update)
update pipeline p set state = '{PIPELINE.target("retry")}', run = run + 1, finalized_at = null, opened_at = now(),
       deadline = now() + (deadline - opened_at), expires_at = now() + (expires_at - opened_at)
from old where p.pipeline_id = old.pipeline_id returning p.pipeline_id"""

# Its definition goes with its contents.
EMPTY = """
update pipeline set definition = '' where tenant_id = %(tenant_id)s and request_id = %(request_id)s
  and finalized_at is not null returning pipeline_id, state"""

# ---------------------------------------------------------------- the end

OF_BATCHES = """
select distinct b.pipeline_id from batch b where b.batch_id = any(%(batch_ids)s) and b.pipeline_id is not null order by 1"""
UNFINISHED = "select pipeline_id from pipeline where finalized_at is null order by pipeline_id"

# Pipelines all of whose batches are final. One that has no answer in any of its last stages has failed, if anything has.
END = f"""
with done as materialized (
  select p.pipeline_id, p.state, p.run, p.tenant_id,
    (select bool_or(b.ok > 0) from stage s join batch b using (batch_id)
     where s.pipeline_id = p.pipeline_id
       and not exists (select from stage s2 join batch c using (batch_id)
                       where s2.pipeline_id = p.pipeline_id and c.parent_id = b.batch_id)) as answered,
    (select bool_or(b.failed > 0) from stage s join batch b using (batch_id) where s.pipeline_id = p.pipeline_id) as failed,
    (select bool_or(b.state in ('{BatchState.EXPIRED}', '{BatchState.CANCELLED}'))
     from stage s join batch b using (batch_id) where s.pipeline_id = p.pipeline_id) as cut
  from pipeline p
  where p.pipeline_id = any(%(pipeline_ids)s) and p.finalized_at is null
    and not exists (select from stage s join batch b using (batch_id)
                    where s.pipeline_id = p.pipeline_id and b.finalized_at is null)
  for update of p)
update pipeline p set finalized_at = now(), paused_for = null, state = case
    when d.state = '{BatchState.CANCELLING}' then '{BatchState.CANCELLED}'
    when d.state = '{BatchState.EXPIRING}' and d.cut then '{BatchState.EXPIRED}'
    when d.failed and not coalesce(d.answered, false) then '{BatchState.FAILED}'
    else '{BatchState.COMPLETED}' end
from done d where p.pipeline_id = d.pipeline_id and p.state = d.state and p.run = d.run
returning p.pipeline_id, p.request_id, p.tenant_id, p.state, p.run"""

WAITS = "select from stage where batch_id = %(batch_id)s and waits_for is not null"

BATCHES = "select batch_id from stage where pipeline_id = %(pipeline_id)s order by n"
