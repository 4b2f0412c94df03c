"""The SQL that groups the errors of a batch's failed items."""

# Failed items by identical error, the most frequent first. At most 10,000 failed items are read.
GROUPED = """
select body, count(*) from (
  select body from item_result where batch_id = %(batch_id)s and run = %(run)s and ok = 0 and not stored limit 10000) r
group by body order by count(*) desc, body limit %(limit)s"""
# The same of a sealed batch, whose errors differ in their stored form: grouped once they are opened.
ERRORS = """
select seq, run, body from item_result where batch_id = %(batch_id)s and run = %(run)s and ok = 0 and not stored limit 10000"""
# The batches of which every failed item has this error code, which an error begins with. It is not read as JSON, because the
# message may contain characters that `text` rejects. Of a sealed error the class tells.
REFUSED_ALL = """
select x.batch_id from unnest(%(ids)s::bigint[], %(runs)s::smallint[]) x (batch_id, run)
where not exists (select from item_result r where r.batch_id = x.batch_id and r.run = x.run and ok = 0
  and (stored or case when get_byte(body, 0) = 1 then coalesce(error not in ('invalid', 'too_long'), true)
                      else convert_from(body, 'UTF8') !~ ('^[{]"code": ?' || %(code)s || '[,}]') end))"""
