"""The SQL that finds the bodies which are objects in the store."""

# Reads the items of all days: for once, after a restore.
BATCHES = """
select b.batch_id, b.request_id from batch b
where b.batch_id in (select batch_id from item_payload where stored union select batch_id from item_result where stored)
order by b.batch_id"""

KEYS = """
select convert_from(body, 'UTF8') from item_payload where batch_id = %(batch_id)s and stored
union all select convert_from(body, 'UTF8') from item_result where batch_id = %(batch_id)s and stored"""
