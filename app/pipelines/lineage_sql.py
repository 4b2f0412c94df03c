"""The SQL that finds the line of an input by its name, and what became of many items."""

FIND = """
select seq from item_payload where batch_id = %(batch_id)s and reference = %(reference)s order by seq limit 1"""

# The outcomes that occur: null, 0 and 1. Which result of an item counts is as in `items_sql.LISTED`.
STATES = """
select distinct r.ok from unnest(%(lows)s::int8[], %(highs)s::int8[]) x (low, high)
join item_payload p on p.batch_id = %(batch_id)s and p.seq >= x.low and p.seq < x.high
left join lateral (
  select ok from item_result r where r.batch_id = %(batch_id)s and r.seq = p.seq and (r.ok = 1 or r.run = %(run)s)
  order by r.ok desc limit 1) r on true"""
