"""All SQL of tenants and API keys."""

from app.states import TENANT, TenantState

CREATE_TENANT = """
insert into tenant (account_id, name) select %(account_id)s, %(account_id)s
where not exists (select from tenant where account_id = %(account_id)s) on conflict (account_id) do nothing
returning tenant_id"""
FIND_TENANT = "select tenant_id, state from tenant where account_id = %(account_id)s"
HAS_KEY = """
select exists (select from api_key where tenant_id = %(tenant_id)s and key_id = %(key_id)s and revoked_at is null)"""
ACCOUNT_OF_KEY = """
select t.account_id from api_key k join tenant t using (tenant_id) where k.key_id = %(key_id)s"""
ACCOUNT_ID = "select account_id from tenant where tenant_id = %(tenant_id)s"
CLOSE_TENANT = f"""
update tenant set state = '{TenantState.CLOSING}' where tenant_id = %(tenant_id)s and {TENANT.guard("close")}"""
CLOSING_TENANTS = f"select tenant_id, account_id from tenant where {TENANT.guard('remove')} order by tenant_id"
EVERY = "select tenant_id, account_id from tenant order by tenant_id"
REVOKE_KEYS = "update api_key set revoked_at = now() where tenant_id = %(tenant_id)s and revoked_at is null"
REMOVE_TENANT = (
    "delete from key_usage using api_key k where key_usage.key_id = k.key_id and k.tenant_id = %(tenant_id)s",
    "delete from api_key where tenant_id = %(tenant_id)s",
    f"delete from tenant where tenant_id = %(tenant_id)s and {TENANT.guard('remove')}",
)

TERMS = """
select weight, max_inflight_tokens, retention_days, webhook_hosts from tenant where tenant_id = %(tenant_id)s
for no key update"""

SET_RETENTION = "update tenant set retention_days = %(days)s where tenant_id = %(tenant_id)s"

SET_WEBHOOK_HOSTS = "update tenant set webhook_hosts = %(hosts)s where tenant_id = %(tenant_id)s"

NOTE_QUOTA = "update tenant set has_quota = %(has_quota)s where tenant_id = %(tenant_id)s"

# Locked, so that an account that is being closed at the same time gets no valid key.
INSERT_KEY = f"""
insert into api_key (key_id, tenant_id, secret_hash, master_key, name, expires_at, requests_per_minute, tokens_per_minute, pins,
                     role, models, endpoints, networks, restore, created_by)
select %(key_id)s, tenant_id, %(secret_hash)s, %(master_key)s, %(name)s, now() + %(lifetime)s, %(requests)s, %(tokens)s,
       %(pins)s, %(role)s, %(models)s, %(endpoints)s, %(networks)s, %(restore)s, %(created_by)s
from tenant where tenant_id = %(tenant_id)s and {TENANT.guard("close")} for share"""

_SCOPE = "k.role, k.models, k.endpoints, k.networks, k.restore"
_LIVE = "k.revoked_at is null and (k.expires_at is null or k.expires_at > now())"

# The old secret of a rotated key is among them while it works.
FIND_KEY = f"""
select k.secret_hash, case when k.old_until > now() then k.old_secret_hash end,
       k.last_used_at is null or k.last_used_at < now() - interval '1 minute',
       t.tenant_id, t.account_id, k.requests_per_minute, k.tokens_per_minute, k.pins, t.has_quota, k.rotation, {_SCOPE}
from api_key k join tenant t using (tenant_id)
where k.key_id = %(key_id)s and {_LIVE}"""

# For doors of engines, which have authenticated these keys before.
FIND_KEYS = f"""
select k.key_id, k.rotation, coalesce(k.old_until > now(), false), t.tenant_id, t.account_id, k.requests_per_minute,
       k.tokens_per_minute, {_SCOPE}
from api_key k join tenant t using (tenant_id)
where k.key_id = any(%(key_ids)s) and {_LIVE}"""

# The hash of the secret that was shown follows the master key in use, so that an earlier master key can be given up.
TOUCH_KEY = """
update api_key set last_used_at = now(),
       secret_hash = case when secret_hash = %(found)s then %(secret_hash)s else secret_hash end,
       master_key = case when secret_hash = %(found)s then %(master_key)s else master_key end
where key_id = %(key_id)s"""

ROTATE_KEY = f"""
with before as materialized (select k.key_id, k.rotation, k.old_until from api_key k
  where k.key_id = %(key_id)s and {_LIVE} for no key update)
update api_key k set secret_hash = %(secret_hash)s, master_key = %(master_key)s, old_secret_hash = secret_hash,
       old_until = now() + %(overlap)s, rotation = k.rotation + 1
from before b where k.key_id = b.key_id returning b.rotation, b.old_until, k.rotation, k.old_until"""

# Keys that would stop working without the other master keys.
COUNT_KEYS_OF_OTHERS = f"""
select count(*) from api_key k where {_LIVE} and k.master_key is distinct from %(master_key)s"""

# One row per key: the counts of the latest minute. A statement that began in the minute before and had to wait counts there, too.
# A request that would exceed a limit is not counted.
TAKE = """
with counted as (
  insert into key_usage as u (key_id, minute, requests, tokens)
  select %(key_id)s, date_trunc('minute', now()), 1, %(tokens)s
  where %(tokens)s <= coalesce(%(most_tokens)s::bigint, %(tokens)s)
  on conflict (key_id) do update set
    minute = greatest(u.minute, excluded.minute),
    requests = case when u.minute >= excluded.minute then u.requests else 0 end + 1,
    tokens = case when u.minute >= excluded.minute then u.tokens else 0 end + excluded.tokens
  where u.minute < excluded.minute
     or (u.requests < coalesce(%(most_requests)s::int, u.requests + 1)
         and u.tokens + excluded.tokens <= coalesce(%(most_tokens)s::bigint, u.tokens + excluded.tokens))
  returning requests, tokens)
select c.requests is not null, coalesce(c.requests, u.requests, 0), coalesce(c.tokens, u.tokens, 0),
       ceil(60 - extract(second from now()))::int
from (select) one left join counted c on true
left join key_usage u on u.key_id = %(key_id)s and u.minute >= date_trunc('minute', now())"""

# What doors have let in, which is counted whatever the limit is; and the counts of the minute.
ADD_USAGE = """
insert into key_usage as u (key_id, minute, requests, tokens)
select key_id, date_trunc('minute', now()), requests, tokens
from unnest(%(key_ids)s::text[], %(requests)s::int[], %(tokens)s::bigint[]) as said(key_id, requests, tokens) order by key_id
on conflict (key_id) do update set
  minute = greatest(u.minute, excluded.minute),
  requests = case when u.minute >= excluded.minute then u.requests else 0 end + excluded.requests,
  tokens = case when u.minute >= excluded.minute then u.tokens else 0 end + excluded.tokens
returning key_id, requests, tokens, ceil(60 - extract(second from now()))::int"""

LIST_KEYS = f"""
select k.key_id, t.account_id, k.name, k.created_at, k.last_used_at, k.expires_at, k.revoked_at,
       k.requests_per_minute, k.tokens_per_minute, k.pins, {_SCOPE}, k.created_by,
       case when k.old_until > now() then k.old_until end
from api_key k join tenant t using (tenant_id)
where %(account)s::text is null or t.account_id = %(account)s order by k.created_at"""

REVOKE_KEY = """
update api_key k set revoked_at = now() from tenant t
where k.key_id = %(key_id)s and k.revoked_at is null and t.tenant_id = k.tenant_id returning t.account_id, k.name"""

SET_SHARE = """
update tenant set weight = coalesce(%(weight)s, weight),
       max_inflight_tokens = coalesce(%(max_inflight_tokens)s, max_inflight_tokens)
where tenant_id = %(tenant_id)s returning weight, max_inflight_tokens"""
