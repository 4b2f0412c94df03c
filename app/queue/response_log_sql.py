"""The SQL of single requests, which are batches of one item, and of the event log of a streamed one."""

from app.db.byte_pages import bounded
from app.queue.worker_sql import FENCE
from app.worker_lease import WORKER_LEASE_HOLDS

FIND = """
select batch_id from batch where tenant_id = %(tenant_id)s and request_id = %(request_id)s and kind = %(kind)s"""

# The same requests, sent earlier, the newest first: those that wait or run, and those that have just been answered.
FIND_SAME = """
select batch_id, request_id from batch
where tenant_id = %(tenant_id)s and kind = %(kind)s and kind <> 'batch' and request_hash = %(request_hash)s
  and (finalized_at is null or state = 'completed' and finalized_at > now() - make_interval(secs => %(seconds)s))
order by created_at desc limit 16"""

HAS_CONTENTS = "select from item_payload where batch_id = %(batch_id)s limit 1"

# Whether a batch request would start at once.
HAS_ROOM = f"""
select exists (select from engine e join worker w using (worker_id) join pool p on p.pool_id = e.pool_id
               where p.model = %(model)s and e.state = 'ready' and w.{WORKER_LEASE_HOLDS}
               having sum(e.allowance) > coalesce((select sum(c.n - c.done - c.failed) from chunk c join pool o using (pool_id)
                                                   where o.model = %(model)s and c.worker_id is not null), 0))
   and not exists (select from sched s join pool p using (pool_id) where p.model = %(model)s and s.ready > 0)"""

# Numbers continue from the last row, whichever worker wrote it.
_APPEND = """
insert into response_events (batch_id, number, last, body)
select %(batch_id)s, n.next, n.next + %(count)s - 1, %(body)s
from (select coalesce(max(last) + 1, 0) as next from response_events where batch_id = %(batch_id)s) n"""
BEGIN_EVENTS = _APPEND
APPEND_EVENTS = f"""{_APPEND}
where exists (select from chunk where {FENCE} for share)
returning number"""

EVENTS = bounded(
    """
select number, body from response_events where batch_id = %(batch_id)s and last > %(after)s order by number limit %(limit)s""",
    "octet_length(body)",
    order="number",
)

# Answers that may have been cut short. Of a sealed one, two bytes tell; in the clear, it has the word.
PERHAPS_INCOMPLETE = bounded(
    """
select batch_id, stored, case when not stored and get_byte(body, 0) = 1 then substr(body, 1, 2) else body end as body
from item_result where batch_id = any(%(ids)s) and batch_id > %(after)s and seq = 0 and ok = 1
  and (stored or get_byte(body, 0) = 1 or position('"incomplete"'::bytea in body) > 0)
order by batch_id limit %(limit)s""",
    "octet_length(body)",
    order="batch_id",
)

STORED = """
select convert_from(body, 'UTF8') from item_payload where batch_id = %(batch_id)s and stored
union all select convert_from(body, 'UTF8') from item_result where batch_id = %(batch_id)s and stored"""
# The batch's row stays: its webhooks need it, and retention drops it with its day.
FORGET = (
    "delete from item_payload where batch_id = %(batch_id)s",
    "delete from item_result where batch_id = %(batch_id)s",
    "delete from response_events where batch_id = %(batch_id)s",
)
