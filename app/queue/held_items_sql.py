"""The SQL of a held item that gets another body."""

REWRITE = """
update item_payload set body = %(body)s, stored = %(stored)s, vault = %(vault)s,
  est_tokens = greatest(est_tokens, %(tokens)s)
where batch_id = %(batch_id)s and seq = 0"""

ESTIMATE = """
update chunk set est_tokens = greatest(est_tokens, %(tokens)s) where batch_id = %(batch_id)s"""
