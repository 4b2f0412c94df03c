"""The SQL that copies the items of a final batch, and their results, into the input of a pipeline."""

from app.states import BatchState

# Pipelines whose source is final, except those that are tried later. A source that was deleted meanwhile has nothing to copy.
READY = f"""
select p.pipeline_id, p.source_id, p.copied, s.tenant_id, s.shredded_at is null
from pipeline p left join batch s on s.batch_id = p.source_id
where p.finalized_at is null and p.source_id is not null and p.state = '{BatchState.OPEN}'
  and (s.batch_id is null or s.finalized_at is not null) and p.pipeline_id <> all(%(later)s::int8[])
order by p.pipeline_id limit 1"""

COUNT = "select coalesce(max(seq) + 1, 0) from item_payload where batch_id = %(batch_id)s"
HIGHEST = "select max(seq) from item_payload where batch_id = %(batch_id)s"

# The first numbers of a source that have an answer.
ANSWERED = """
select distinct seq from item_result where batch_id = %(batch_id)s and ok = 1 order by seq limit %(most)s"""

# The last part makes the input final.
COPIED = """
update pipeline set copied = %(high)s, source_id = case when %(last)s then null else source_id end,
       inputs = case when %(last)s then %(count)s else inputs end
where pipeline_id = %(pipeline_id)s and copied = %(low)s and source_id is not null returning pipeline_id"""
STORED = "update batch set bytes = bytes + %(bytes)s where batch_id = %(pipeline_id)s"
POLICY = "select policy from batch where batch_id = %(batch_id)s"
COMPLETE = f"""
update batch set state = '{BatchState.COMPLETED}', finalized_at = now(), fed = false, total = %(count)s
where batch_id = %(pipeline_id)s and state = '{BatchState.OPEN}'"""
