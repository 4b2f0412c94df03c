"""All SQL of tenants and API keys."""

ENSURE_TENANT = """
with existing as (select tenant_id from tenant where account_id = %(account_id)s),
 made as (insert into tenant (tenant_id, account_id, name)
          select coalesce((select max(tenant_id) from tenant), 0) + 1, %(account_id)s, %(account_id)s
          where not exists (select from existing) returning tenant_id)
select tenant_id from existing union all select tenant_id from made"""
FIND_TENANT = "select tenant_id from tenant where account_id = %(account_id)s"

SET_RETENTION = "update tenant set retention_days = %(days)s where tenant_id = %(tenant_id)s"

LOCK_TENANTS = "lock table tenant in share row exclusive mode"

INSERT_KEY = """
insert into api_key (key_id, tenant_id, secret_hash, name, expires_at)
values (%(key_id)s, %(tenant_id)s, %(secret_hash)s, %(name)s, now() + %(lifetime)s)"""

FIND_KEY = """
select k.secret_hash, t.tenant_id, t.account_id, k.last_used_at is null or k.last_used_at < now() - interval '1 minute'
from api_key k join tenant t using (tenant_id)
where k.key_id = %(key_id)s and k.revoked_at is null and (k.expires_at is null or k.expires_at > now())"""

TOUCH_KEY = "update api_key set last_used_at = now() where key_id = %(key_id)s"

LIST_KEYS = """
select k.key_id, t.account_id, k.name, k.created_at, k.last_used_at, k.expires_at, k.revoked_at
from api_key k join tenant t using (tenant_id) order by k.created_at"""

REVOKE_KEY = "update api_key set revoked_at = now() where key_id = %(key_id)s and revoked_at is null returning key_id"

SET_SHARE = """
update tenant set weight = coalesce(%(weight)s, weight),
       max_inflight_tokens = coalesce(%(max_inflight_tokens)s, max_inflight_tokens)
where tenant_id = %(tenant_id)s returning weight, max_inflight_tokens"""
