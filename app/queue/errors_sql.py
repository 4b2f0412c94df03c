"""The SQL that counts the failed items of a batch by the class of their error."""


def errors(items: str, condition: str = "") -> str:
    """Of the failed ones of `items` (seq, ok, error): {class: [how many, one of them]}. null: none failed. `condition` ends in
    "and ". A result without a class was stored before there were classes.
    """
    return f"""(select jsonb_object_agg(e.error, jsonb_build_array(e.n, e.seq))
   from (select coalesce(error, 'failed') as error, count(*) as n, min(seq) as seq
         from {items} f where {condition}ok = 0 group by 1) e)"""


# Runs in the transaction of the fold, before it deletes the deltas. A batch has no delta of an earlier run.
FOLD = """
insert into batch_error as e (batch_id, run, error, n, seq)
select d.batch_id, b.run, x.key, sum((x.value->>0)::int), min((x.value->>1)::int)
from batch_delta d join batch b using (batch_id) cross join lateral jsonb_each(d.errors) x
where d.delta_id = any(%(ids)s) and d.errors is not null group by 1, 2, 3 order by 1, 2, 3
on conflict (batch_id, run, error) do update set n = e.n + excluded.n"""

OF_BATCH = """
select error, n, seq from batch_error where batch_id = %(batch_id)s and run = %(run)s order by n desc, error"""
