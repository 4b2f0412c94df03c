"""The SQL that counts the failed items of a batch by the class of their error, and reads them."""

# Of the failed items of a group, one class each; null: none failed. A result may have no class. It is one
# aggregate among others, because a query of its own would make each finish a tenth slower.
ERRORS = "array_agg(coalesce(error, 'failed')) filter (where ok = 0)"

# Runs in the transaction of the fold, before it deletes the deltas. A batch has no delta of an earlier run.
FOLD = """
insert into batch_error as e (batch_id, run, error, tenant_id, n)
select d.batch_id, b.run, x.error, b.tenant_id, count(*)
from batch_delta d join batch b using (batch_id) cross join lateral unnest(d.errors) x (error)
where d.delta_id = any(%(ids)s) and d.errors is not null group by 1, 2, 3, 4 order by 1, 2, 3
on conflict (batch_id, run, error) do update set n = e.n + excluded.n"""

# The message is that of the first item with this class.
OF_BATCH = """
select e.error, e.n, r.seq, r.body
from batch_error e left join lateral (
  select seq, body from item_result r
  where r.batch_id = e.batch_id and r.error = e.error and r.ok = 0 and r.run = e.run and not r.stored
  order by seq limit 1) r on true
where e.batch_id = %(batch_id)s and e.run = %(run)s order by e.n desc, e.error"""
