"""The SQL that stores results of items that no worker ran."""

from app.queue.errors_sql import ERRORS

# The first result of an item wins. It leaves a marker as a flush does, and a delta as a finish does, since there is no chunk that
# would bring one. Nothing was used.
STORE = f"""
with stored as (insert into item_result (batch_id, run, seq, ok, attempt, yields, prompt_tokens, cached_tokens,
                                          completion_tokens, body, stored, error)
       select %(batch_id)s, %(run)s, x.seq, %(ok)s, 0, 0, 0, 0, 0, x.body, false, %(error)s
       from unnest(%(seqs)s::int[], %(bodies)s::bytea[]) x (seq, body)
       on conflict do nothing returning seq, ok, error, body),
 marked as (insert into handoff (batch_id, run, seqs, bytes)
       select %(batch_id)s, %(run)s, array_agg(seq), sum(octet_length(body)) from stored
       where exists (select from batch where batch_id = %(batch_id)s and feeds) having count(*) > 0)
insert into batch_delta (batch_id, ok, failed, prompt_tokens, cached_tokens, completion_tokens, errors, unrun,
                         unrun_ok)
select %(batch_id)s, sum(ok), count(*) - sum(ok), 0, 0, 0, {ERRORS}, count(*), sum(ok) from stored having count(*) > 0"""

KEEP_VAULT = """
update item_payload set vault = %(vault)s
where batch_id = %(batch_id)s and seq = %(seq)s and vault is not distinct from %(was)s"""
