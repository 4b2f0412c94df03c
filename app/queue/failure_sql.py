"""The SQL that tells why items of a batch failed."""

# Items that failed in the same words, the most frequent first, among the first of those that failed.
GROUPED = """
select body, count(*) from (
  select body from item_result where batch_id = %(batch_id)s and run = %(run)s and ok = 0 and not stored limit 10000) r
group by body order by count(*) desc, min(body) limit %(limit)s"""
# Whether no item failed for another reason than itself. What the error says is not looked into: it may be no text for SQL.
REFUSED_ALL = """
select not exists (select from item_result where batch_id = %(batch_id)s and run = %(run)s and ok = 0
  and (stored or convert_from(body, 'UTF8')::json ->> 'code' <> %(code)s))"""
