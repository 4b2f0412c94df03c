"""The SQL of a held item that gets another body."""

IS_STORED = "select stored from item_payload where batch_id = %(batch_id)s and seq = 0"

REWRITE = """
update item_payload set body = %(body)s, stored = %(stored)s, vault = %(vault)s,
  est_tokens = greatest(est_tokens, %(tokens)s)
where batch_id = %(batch_id)s and seq = 0"""

# What budgets may reserve grows by the whole body, since what was known of its prompt is in the sums already.
ESTIMATE = """
update chunk c set est_tokens = greatest(c.est_tokens, %(tokens)s), maximum_tokens = c.maximum_tokens + %(bytes)s,
  maximum_cost = c.maximum_cost + %(bytes)s * coalesce(l.price_in, 0) / 1000, expected_tokens = c.expected_tokens + %(tokens)s,
  expected_cost = c.expected_cost + %(tokens)s * coalesce(l.price_in, 0) / 1000
from batch b left join line l using (line_id) where b.batch_id = %(batch_id)s and c.batch_id = b.batch_id"""
