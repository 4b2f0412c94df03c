"""The SQL of a held item that gets another body."""

IS_SEALED = """
select exists (select from batch_key k where k.batch_id = %(batch_id)s and not k.only_vaults)"""

REWRITE = """
update item_payload set body = %(body)s, stored = %(stored)s, vault = %(vault)s,
  est_tokens = greatest(est_tokens, %(tokens)s)
where batch_id = %(batch_id)s and seq = 0"""

ESTIMATE = """
update chunk set est_tokens = greatest(est_tokens, %(tokens)s) where batch_id = %(batch_id)s"""
