"""The SQL of batches that start when others have ended."""

from app.states import BATCH

# In this order, so that a message names the first unknown one.
FIND = """
select b.batch_id, b.finalized_at is not null
from unnest(%(request_ids)s::uuid[]) with ordinality x (request_id, n)
left join batch b on b.tenant_id = %(tenant_id)s and b.request_id = x.request_id
order by x.n"""

ADD = "insert into dependency (batch_id, needs_id) select %(batch_id)s, needs_id from unnest(%(needs)s::int8[]) x (needs_id)"

# Returns for each batch that is needed whether the owner had paused the one that waits.
HOLD = """
with mine as materialized (select d.batch_id, d.needs_id, d.held from dependency d join batch b using (batch_id)
       where b.tenant_id = %(tenant_id)s and b.request_id = %(request_id)s order by d.needs_id for update of d)
update dependency d set held = %(held)s from mine m
where d.batch_id = m.batch_id and d.needs_id = m.needs_id
returning m.held"""

# Of a batch that was removed nothing is to be waited for any more.
START = f"""
with over as (delete from dependency d
       where not exists (select from dependency o join batch n on n.batch_id = o.needs_id
                         where o.batch_id = d.batch_id and n.finalized_at is null)
          or exists (select from batch b where b.batch_id = d.batch_id and b.finalized_at is not null)
       returning d.batch_id, d.held),
 free as (select batch_id from over group by batch_id having not bool_or(held))
update batch b set state = '{BATCH.target("resume")}' from free f
where b.batch_id = f.batch_id and {BATCH.guard("resume", "b.")}
returning b.batch_id"""

NEEDED = """
select n.request_id from dependency d join batch n on n.batch_id = d.needs_id
where d.batch_id = %(batch_id)s and not d.held and n.finalized_at is null
order by n.batch_id"""

WAITING = "select distinct batch_id from dependency where batch_id = any(%(batch_ids)s) and not held"
