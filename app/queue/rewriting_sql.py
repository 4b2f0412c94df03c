"""The SQL that reads all that is stored of a batch, and writes it anew."""

from app.db.byte_pages import bounded

# Texts that name or label a batch, as one, so that one search finds what is in any of them.
BATCHES = """
select batch_id, concat_ws(' ', name, idempotency_key, correlation_id, affinity, array_to_string(tags, ' '), meta::text)
from batch where tenant_id = %(tenant_id)s and batch_id > %(after)s and shredded_at is null order by batch_id limit %(limit)s"""

_LEASED = """exists (select from chunk c where c.batch_id = p.batch_id and c.state = 'leased'
  and case when c.seqs is null then p.seq between c.lo and c.hi else p.seq = any(c.seqs) end)"""
# Its results are read beside it, so a page has room for them.
_SIZE = """octet_length(body) + coalesce(octet_length(vault), 0) + coalesce((select sum(octet_length(r.body)) from item_result r
  where r.batch_id = %(batch_id)s and r.seq = f.seq), 0)"""
ITEMS = bounded(
    f"""
select p.seq, p.body, p.stored, p.vault, concat_ws(' ', p.reference, p.affinity) as names, {_LEASED} as leased from item_payload p
where p.batch_id = %(batch_id)s and p.seq >= %(after)s order by p.seq limit %(limit)s""",
    _SIZE,
)
RESULTS = """
select seq, run, ok = 1, body, stored from item_result
where batch_id = %(batch_id)s and seq between %(low)s and %(high)s order by seq, run"""
EVENTS = "select number, body from response_events where batch_id = %(batch_id)s order by number"

# Each of them writes one row, if it is as it was read.
# Whoever claims a chunk skips one that is locked, so its items are claimed as they were, or as they will be.
LOCK_CHUNK = """
select state = 'leased' from chunk c where c.batch_id = %(batch_id)s
  and case when c.seqs is null then %(seq)s between c.lo and c.hi else %(seq)s = any(c.seqs) end for no key update"""
WRITE_ITEM = f"""
update item_payload p set body = %(body)s, stored = %(stored)s, vault = %(vault)s
where p.batch_id = %(batch_id)s and p.seq = %(seq)s and p.body = %(was)s and p.vault is not distinct from %(vault_was)s
  and not {_LEASED}"""
WRITE_RESULT = """
update item_result set body = %(body)s, stored = false
where batch_id = %(batch_id)s and seq = %(seq)s and run = %(run)s and body = %(was)s"""
WRITE_EVENTS = """
update response_events set body = %(body)s where batch_id = %(batch_id)s and number = %(number)s and body = %(was)s"""
