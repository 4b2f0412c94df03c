"""The SQL of the phases of batches: what each waited for, from when until when."""

from app.queue.types import Kind

# Batches that are not final, in the order of their submit, from a position on.
OPEN = f"""
select b.created_at, b.batch_id, b.tenant_id, b.request_id from batch b
where b.finalized_at is null and b.kind = '{Kind.BATCH}'
  and (%(after_at)s::timestamptz is null
    or b.created_at >= %(after_at)s and (b.created_at, b.batch_id) > (%(after_at)s, %(after)s::int8))
order by b.created_at, b.batch_id limit %(limit)s"""

_SEEN = "unnest(%(batch_ids)s::int8[], %(codes)s::text[]) s (batch_id, code)"

# A phase that is locked is that of a batch that just ends.
CLOSE = f"""
with over as materialized (select p.batch_id, p.at from batch_phase p join {_SEEN} using (batch_id)
  where p.until is null and p.code <> s.code for update of p skip locked)
update batch_phase p set until = now() from over where p.batch_id = over.batch_id and p.at = over.at"""

# The lock keeps the batch from ending before its phase is stored, which its end closes. One that just ends is skipped.
BEGIN = f"""
insert into batch_phase (batch_id, tenant_id, code)
select b.batch_id, b.tenant_id, s.code from batch b join {_SEEN} using (batch_id)
where b.finalized_at is null
  and not exists (select from batch_phase p where p.batch_id = b.batch_id and p.until is null)
for share of b skip locked on conflict do nothing returning batch_id"""

TRIM = """
delete from batch_phase p using unnest(%(batch_ids)s::int8[]) s (batch_id)
where p.batch_id = s.batch_id and p.at <= (
  select at from batch_phase x where x.batch_id = s.batch_id order by at desc offset %(rows)s limit 1)"""

END = "update batch_phase set until = now() where batch_id = any(%(batch_ids)s) and until is null"

PRESENT = "select at, until, code from batch_phase where batch_id = %(batch_id)s and until is null"

OF_BATCH = """
select at, until, code from batch_phase where batch_id = %(batch_id)s order by at desc limit %(limit)s"""
