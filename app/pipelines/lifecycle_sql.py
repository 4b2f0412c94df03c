"""The SQL by which a pipeline pauses by itself, and goes on all the same."""

from app.states import BatchState

OVERRULE = "update pipeline set overruled = true where pipeline_id = %(pipeline_id)s"

BUDGET = """
with old as materialized (select pipeline_id, budget from pipeline
  where pipeline_id = %(pipeline_id)s and finalized_at is null for no key update)
update pipeline p set budget = %(budget)s from old where p.pipeline_id = old.pipeline_id returning old.budget"""

# The stages of a pipeline that ask a model, with the currency in which they are paid.
PAID = """
select s.name, b.model, l.currency
from stage s join batch b on b.batch_id = s.batch_id left join line l on l.line_id = b.line_id and l.price_in is not null
where s.pipeline_id = %(pipeline_id)s and b.endpoint <> '' order by s.n"""

DEADLINE = "select deadline from pipeline where pipeline_id = %(pipeline_id)s"

TOLD = """
select p.pipeline_id, p.request_id, p.tenant_id, t.account_id, p.run, p.name, b.traceparent,
       extract(epoch from now() - p.created_at)::int
from pipeline p join tenant t using (tenant_id) join batch b on b.batch_id = p.pipeline_id
where p.pipeline_id = any(%(pipeline_ids)s)"""

# Open pipelines that have used their budget, of which a stage has too many failures, or that have too many items, which their
# owner has not accepted. A cost is in 10^-12 of the currency, a budget in 10^-9.
EXCEEDED = f"""
with looked as materialized (
  select p.tenant_id, p.request_id, t.account_id,
         case when c.cost >= p.budget * 1000::numeric then 'budget'
              when p.overruled then null
              when c.failing then 'failing'
              when c.items > p.inputs * %(times)s::int8 then 'items' end as why
  from pipeline p join tenant t using (tenant_id) cross join lateral (
    select coalesce(sum(b.cost), 0) as cost,
           bool_or(b.ok + b.failed >= %(least)s and b.failed >= (b.ok + b.failed) * %(share)s::float8) as failing,
           sum(b.total) filter (where s.n > 0) as items
    from stage s join batch b on b.batch_id = s.batch_id where s.pipeline_id = p.pipeline_id) c
  where p.state = '{BatchState.OPEN}' and p.finalized_at is null)
select tenant_id, request_id, account_id, why from looked where why is not null order by request_id"""

# Stages of these pipelines that are final; an input that never ran is none.
ENDED_STAGES = """
select s.pipeline_id, s.n, s.name, b.request_id, b.total, b.ok, b.failed
from stage s join batch b on b.batch_id = s.batch_id
where b.batch_id = any(%(batch_ids)s) and b.finalized_at is not null and (s.n > 0 or b.endpoint <> '') order by 1, 2"""
