"""The SQL of a held item that gets another body."""

IS_STORED = "select stored from item_payload where batch_id = %(batch_id)s and seq = 0"

REWRITE = """
update item_payload set body = %(body)s, stored = %(stored)s, vault = %(vault)s,
  est_tokens = greatest(est_tokens, %(tokens)s)
where batch_id = %(batch_id)s and seq = 0"""

# What budgets may reserve grows by the whole body, since what was known of its prompt is in the sums already, up to the context
# window of its model.
ESTIMATE = """
update chunk c set est_tokens = greatest(c.est_tokens, %(tokens)s), maximum_tokens = c.maximum_tokens + x.bytes,
  maximum_cost = c.maximum_cost + x.bytes * coalesce(l.price_in, 0) / 1000, expected_tokens = c.expected_tokens + x.tokens,
  expected_cost = c.expected_cost + x.tokens * coalesce(l.price_in, 0) / 1000
from chunk o
  cross join lateral (select least(%(bytes)s, greatest(0, %(window)s::int8 - o.maximum_tokens)) as bytes,
                             least(%(tokens)s, greatest(0, %(window)s::int8 - o.expected_tokens)) as tokens) x
  join batch b using (batch_id) left join line l on l.line_id = b.line_id
where o.batch_id = %(batch_id)s and c.chunk_id = o.chunk_id"""
