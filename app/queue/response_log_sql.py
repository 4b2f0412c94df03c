"""The SQL of single requests: batches of one item whose caller waits for it, and the events of a streamed one."""

from app.queue.sql import FENCE

FIND = """
select batch_id from batch where tenant_id = %(tenant_id)s and request_id = %(request_id)s and kind = %(kind)s
  and exists (select from item_payload p where p.batch_id = batch.batch_id)"""

# The same request, sent a little earlier.
FIND_SAME = """
select request_id from batch
where tenant_id = %(tenant_id)s and kind = %(kind)s and kind <> 'batch' and request_hash = %(request_hash)s
  and created_at > now() - make_interval(secs => %(seconds)s)
  and (finalized_at is null or state = 'completed')
  and exists (select from item_payload p where p.batch_id = batch.batch_id)
order by created_at desc limit 1"""

# Whether a request of batch class would be begun at once.
HAS_ROOM = """
select exists (select from engine e join worker w using (worker_id) join pool p on p.pool_id = e.pool_id
               where p.model = %(model)s and e.state = 'ready' and w.lease_until > now()
               having sum(e.allowance) > coalesce((select sum(c.n - c.done - c.failed) from chunk c join pool o using (pool_id)
                                                   where o.model = %(model)s and c.worker_id is not null), 0))
   and not exists (select from sched s join pool p using (pool_id) where p.model = %(model)s and s.ready > 0)"""

# Numbers go on from what is there, whoever wrote it.
_APPEND = """
insert into response_events (batch_id, number, last, body)
select %(batch_id)s, n.next, n.next + %(count)s - 1, %(body)s
from (select coalesce(max(last) + 1, 0) as next from response_events where batch_id = %(batch_id)s) n"""
BEGIN_EVENTS = _APPEND
APPEND_EVENTS = f"""{_APPEND}
where exists (select from chunk where {FENCE} for share)
returning number"""

EVENTS = """
select number, body from response_events where batch_id = %(batch_id)s and last > %(after)s order by number limit 100"""

ANSWER = "select body, stored from item_result where batch_id = %(batch_id)s and seq = 0 and ok = 1"

STORED = """
select convert_from(body, 'UTF8') from item_payload where batch_id = %(batch_id)s and stored
union all select convert_from(body, 'UTF8') from item_result where batch_id = %(batch_id)s and stored"""
# The batch itself stays, for its webhooks and its day.
FORGET = (
    "delete from item_payload where batch_id = %(batch_id)s",
    "delete from item_result where batch_id = %(batch_id)s",
    "delete from response_events where batch_id = %(batch_id)s",
)
