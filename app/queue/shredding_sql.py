"""The SQL that deletes the contents of a final batch. Its row with its counts stays."""

from app.queue.retention_sql import IS_OVER

# Locked, so that a concurrent retry either keeps the batch from it or no longer finds it final.
FIND = f"""
select b.batch_id, b.request_id, b.state, b.model, b.run, b.total, b.ok, b.failed, b.finalized_at, b.shredded_at,
       b.traceparent, ({IS_OVER}), b.pipeline_id
from batch b where b.tenant_id = %(tenant_id)s and b.request_id = %(request_id)s for update of b"""

# From this commit on nothing of the batch can be read. `shredding` remembers what remains to be removed.
MARK = """
with marked as (update batch set shredded_at = now() where batch_id = %(batch_id)s returning batch_id, shredded_at),
 added as (insert into shredding (batch_id) select batch_id from marked on conflict do nothing)
select shredded_at from marked"""

PENDING = "select s.batch_id, b.total from shredding s join batch b using (batch_id) order by s.batch_id limit 100"
FORGET_EVENTS = "delete from response_events where batch_id = %(batch_id)s"
DONE = "delete from shredding where batch_id = %(batch_id)s"
