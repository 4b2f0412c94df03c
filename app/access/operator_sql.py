"""The SQL of operators' tokens."""

_LIVE = "revoked_at is null and expires_at > now()"

ADD = """
insert into operator_token (token_id, name, role, secret_hash, master_key, created_by, expires_at)
values (%(token_id)s, %(name)s, %(role)s, %(secret_hash)s, %(master_key)s, %(created_by)s, now() + %(lifetime)s)
returning expires_at"""

USE = "select used_name, used_role from use_operator_token(%(token_id)s, %(shown)s, %(master_key)s)"

LISTING = """
select token_id, name, role, created_by, created_at, expires_at, last_used_at, revoked_at
from operator_token order by created_at desc, token_id"""

REVOKE = f"""
update operator_token set revoked_at = now() where token_id = %(token_id)s and {_LIVE} returning name, role, expires_at"""

ANY_LIVE = f"select from operator_token where {_LIVE} limit 1"

COUNT_OF_OTHERS = f"select count(*) from operator_token where {_LIVE} and master_key <> %(master_key)s"
