"""The SQL by which results of a batch become items of its children."""

from app.db.byte_pages import bounded

# Pipelines of these batches, a row for each stage.
RUNNING = """
select p.pipeline_id, p.request_id, p.tenant_id, t.account_id, t.has_quota, p.state, p.run, p.overruled, p.inputs, p.deadline,
       p.definition, s.n, s.batch_id, s.packs, s.taken, s.ran, b.total - b.ok - b.failed, b.model, b.line_id, b.feeds,
       b.state, k.only_vaults, b.policy
from pipeline p join tenant t using (tenant_id) join stage s using (pipeline_id) join batch b on b.batch_id = s.batch_id
left join batch_key k on k.batch_id = s.batch_id
where p.pipeline_id in (select f.pipeline_id from batch f where f.batch_id = any(%(batch_ids)s))
order by p.pipeline_id, s.n"""

# A verb on the pipeline waits for the end of the transaction, and the other way round.
LOCK = """
select pipeline_id, state, run from pipeline where pipeline_id = any(%(pipeline_ids)s) order by pipeline_id for share"""

_READ = """p.seq, p.reference, p.affinity, p.est_tokens > 0 as asked, r.run, r.ok, r.body, r.stored, r.error,
       %(run)s > 1 and exists (select from item_result e
         where e.batch_id = %(batch_id)s and e.seq = p.seq and e.run < %(run)s) as again,
       case when %(requests)s then p.body end as request, p.stored as request_stored, p.vault
"""
# The answer of any run counts, else the latest error.
_RESULT = """left join lateral (select run, ok, body, stored, error from item_result
  where batch_id = %(batch_id)s and seq = p.seq order by ok desc, run desc limit 1) r on true"""

READ = f"""
select {_READ}from unnest(%(seqs)s::int[]) x (seq)
cross join lateral (select * from item_payload where batch_id = %(batch_id)s and seq = x.seq limit 1) p
{_RESULT}"""
READ_RANGE = bounded(
    f"""
select {_READ}from item_payload p
{_RESULT}
where p.batch_id = %(batch_id)s and p.seq >= %(low)s and p.seq < %(high)s order by p.seq limit %(limit)s""",
    "coalesce(octet_length(body), 0) + coalesce(octet_length(request), 0) + coalesce(octet_length(vault), 0)",
)

COPY_RESULTS = """copy item_result (batch_id, seq, run, ok, attempt, body, error) from stdin (format binary)"""
COPY_RESULTS_TYPES = ("int8", "int4", "int2", "int2", "int2", "bytea", "text")

ADDED = """
insert into batch_delta (batch_id, ok, failed, prompt_tokens, cached_tokens, completion_tokens, added, bytes,
                         errors, unrun, unrun_ok)
values (%(batch_id)s, %(ok)s, %(failed)s, 0, 0, 0, %(added)s, %(bytes)s, %(errors)s, %(ok)s + %(failed)s, %(ok)s)"""

# What rules decided about items that were added: a batch keeps the rules and the terms of tools of all its items.
GOVERNED = """
update batch set policy = coalesce(policy, '{}') || %(policy)s
  || (select coalesce(jsonb_object_agg(name, list), '{}') from (select name, jsonb_agg(distinct each) as list
      from (select 'rules' as name, jsonb_path_query(policy, '$.rules[*]') as each
            union all select 'rules', jsonb_path_query(%(policy)s, '$.rules[*]')
            union all select 'tools', jsonb_path_query(policy, '$.tools[*]')
            union all select 'tools', jsonb_path_query(%(policy)s, '$.tools[*]')) x group by name) y)
where batch_id = %(batch_id)s"""

COUNTED = """
update stage s set taken = s.taken + x.taken, ran = s.ran + x.ran, passed = s.passed + x.passed,
  dropped = s.dropped + x.dropped, refused = s.refused + x.refused
from unnest(%(batch_ids)s::int8[], %(taken)s::int4[], %(ran)s::int4[], %(passed)s::int4[], %(dropped)s::int4[],
            %(refused)s::int4[]) as x (batch_id, taken, ran, passed, dropped, refused)
where s.batch_id = x.batch_id returning s.batch_id, s.ran - x.ran"""

GROUPED = """
update stage set packs = %(packs)s, taken = taken + %(taken)s, dropped = dropped + %(dropped)s
where batch_id = %(batch_id)s and packs = -1 returning batch_id"""

ANY_OPEN = "select exists (select from pipeline where finalized_at is null)"
