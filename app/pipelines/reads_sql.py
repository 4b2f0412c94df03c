"""The SQL that reads pipelines and their stages."""

from app.queue.handoff_sql import SET_ASIDE
from app.queue.types import Kind
from app.states import PARKED

COLUMNS = """p.pipeline_id, p.request_id, p.name, p.state, p.run, p.definition, p.inputs, p.budget, p.paused_for, p.created_at,
       p.opened_at, p.expires_at, p.finalized_at, p.source_id,
       (select i.endpoint <> '' from batch i where i.batch_id = p.pipeline_id)"""

ONE = f"select {COLUMNS} from pipeline p where p.tenant_id = %(tenant_id)s and p.request_id = %(request_id)s"

KNOWN = """
select from pipeline where request_id = %(request_id)s and (%(tenant_id)s::int is null or tenant_id = %(tenant_id)s)"""

# The pipeline of a batch, which is one of its stages.
OF_BATCH = f"""
select {COLUMNS} from pipeline p join batch b using (pipeline_id)
where b.tenant_id = %(tenant_id)s and b.request_id = %(request_id)s"""

# Newest first, after a pipeline if one is given.
PAGE = f"""
select {COLUMNS} from pipeline p
where p.tenant_id = %(tenant_id)s and (%(after)s::uuid is null or (p.created_at, p.pipeline_id) <
  (select a.created_at, a.pipeline_id from pipeline a where a.tenant_id = %(tenant_id)s and a.request_id = %(after)s))
order by p.created_at desc, p.pipeline_id desc limit %(limit)s"""

# The stages of several pipelines, with the items that wait for an answer from outside, counted up to a number, and whether
# results that they wait for were set aside.
STAGES = f"""
select s.pipeline_id, s.n, s.name, b.batch_id, b.request_id, b.parent_id, s.taken, s.ran, s.passed, s.dropped, s.refused,
       s.waits_for, b.line_id, (b.cost / 10 ^ 12)::float8, l.currency,
       (select count(*)::int from (select from parked k where k.batch_id = b.batch_id and {PARKED.guard("answer", "k.")}
                                   limit %(most)s) w),
       exists (select from handoff h where h.batch_id in (b.parent_id, b.batch_id) and {SET_ASIDE})
from stage s join batch b on b.batch_id = s.batch_id left join line l on l.line_id = b.line_id
where s.pipeline_id = any(%(pipeline_ids)s) order by s.pipeline_id, s.n"""

# The sums of a page of pipelines, without their inputs that never run.
SUMS = """
select s.pipeline_id, sum(b.total)::int8, sum(b.ok)::int8, sum(b.failed)::int8
from stage s join batch b on b.batch_id = s.batch_id
where s.pipeline_id = any(%(pipeline_ids)s) and (s.n > 0 or b.endpoint <> '') group by 1"""

# What the stages have cost, in 10^-12 of the currency in which most of it was paid.
SPENT = """
select distinct on (s.pipeline_id) s.pipeline_id, sum(b.cost)::float8, l.currency
from stage s join batch b on b.batch_id = s.batch_id join line l on l.line_id = b.line_id and l.currency is not null
where s.pipeline_id = any(%(pipeline_ids)s) group by 1, 3 order by 1, 2 desc, 3"""

# A batch, or the stage of a pipeline, that can be the input of another one.
SOURCE = f"""
select batch_id, total, fed, finalized_at is not null, shredded_at is not null from batch
where tenant_id = %(tenant_id)s and request_id = %(request_id)s and kind in ('{Kind.BATCH}', '{Kind.STAGE}')"""
