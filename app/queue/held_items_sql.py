"""The SQL of a held item that gets another body."""

IS_STORED = "select stored from item_payload where batch_id = %(batch_id)s and seq = 0"

REWRITE = """
update item_payload set body = %(body)s, stored = %(stored)s, vault = %(vault)s,
  est_tokens = greatest(est_tokens, %(tokens)s)
where batch_id = %(batch_id)s and seq = 0"""

ESTIMATE = """
update chunk set est_tokens = greatest(est_tokens, %(tokens)s) where batch_id = %(batch_id)s"""
