"""The SQL of quotas: their limits, and what an account uses.

Lock order: quota comes before everything that a submit locks; nothing else locks it.
`quota_reached` is written in a transaction of its own.
"""

NAMES = ("open_batches", "open_items", "queued_tokens", "stored_bytes")
_LIMITS = ", ".join(NAMES)

LOCK = f"select {_LIMITS} from quota where tenant_id = %(tenant_id)s for update"
LOCK_FREE = f"{LOCK} skip locked"
LIMITS = f"select {_LIMITS} from quota where tenant_id = %(tenant_id)s"
SET = f"""
insert into quota (tenant_id, {_LIMITS}) values (%(tenant_id)s, {", ".join(f"%({name})s" for name in NAMES)})
on conflict (tenant_id) do update set {", ".join(f"{name} = excluded.{name}" for name in NAMES)}"""
REMOVE = "delete from quota where tenant_id = %(tenant_id)s"

_OPEN = "from batch b where b.tenant_id = %(tenant_id)s and b.finalized_at is null"
_ADDED = "(select coalesce(sum({}), 0) from batch_delta d join batch b using (batch_id) where b.tenant_id = %(tenant_id)s)::int8"
# By quota, the SQL of what is used. The account's batches are indexed apart from its background responses and flex calls. A
# pipeline is one batch, whatever its stages. What stages got, and which of it never runs, is in deltas until it is counted.
USE = {
    "open_batches": f"""
select (select count(*) {_OPEN} and b.pipeline_id is null)
     + (select count(*) from pipeline p where p.tenant_id = %(tenant_id)s and p.finalized_at is null)""",
    "open_items": f"""
select (select coalesce(sum(b.total - b.ok - b.failed), 0) {_OPEN})::int8 + {_ADDED.format("d.added - d.unrun")}""",
    "queued_tokens": f"""
select coalesce(sum(c.est_tokens), 0)::int8 from chunk c where c.batch_id in (select b.batch_id {_OPEN})""",
    "stored_bytes": f"""
select {_ADDED.format("d.bytes")}
     + (select coalesce(sum(b.bytes), 0) from batch b where b.tenant_id = %(tenant_id)s and b.kind = 'batch')::int8
     + (select coalesce(sum(b.bytes), 0) from batch b where b.tenant_id = %(tenant_id)s and b.kind <> 'batch')::int8
     + (select coalesce(sum(f.bytes), 0) from file f where f.tenant_id = %(tenant_id)s)::int8
     + (select coalesce(sum(p.bytes), 0) from upload u join upload_part p using (upload_id)
        where u.tenant_id = %(tenant_id)s and u.state = 'pending')::int8""",
}

# One row if the event of this quota was not written in this hour yet.
NOTE_REACHED = """
insert into quota_reached as q (tenant_id, quota, hour)
select tenant_id, %(quota)s, date_trunc('hour', now(), 'UTC') from quota where tenant_id = %(tenant_id)s
on conflict (tenant_id, quota) do update set hour = excluded.hour where q.hour < excluded.hour
returning tenant_id"""
