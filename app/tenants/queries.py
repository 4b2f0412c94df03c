"""All SQL of tenants and API keys."""

ENSURE_TENANT = """
with existing as (select tenant_id from tenant where account_id = %(account_id)s),
 made as (insert into tenant (tenant_id, account_id, name)
          select coalesce((select max(tenant_id) from tenant), 0) + 1, %(account_id)s, %(account_id)s
          where not exists (select from existing) returning tenant_id)
select tenant_id from existing union all select tenant_id from made"""
FIND_TENANT = "select tenant_id from tenant where account_id = %(account_id)s"

SET_RETENTION = "update tenant set retention_days = %(days)s where tenant_id = %(tenant_id)s"

SET_WEBHOOK_HOSTS = "update tenant set webhook_hosts = %(hosts)s where tenant_id = %(tenant_id)s"

LOCK_TENANTS = "lock table tenant in share row exclusive mode"

INSERT_KEY = """
insert into api_key (key_id, tenant_id, secret_hash, name, expires_at, requests_per_minute, tokens_per_minute)
values (%(key_id)s, %(tenant_id)s, %(secret_hash)s, %(name)s, now() + %(lifetime)s, %(requests)s, %(tokens)s)"""

FIND_KEY = """
select k.secret_hash, t.tenant_id, t.account_id, k.last_used_at is null or k.last_used_at < now() - interval '1 minute',
       k.requests_per_minute, k.tokens_per_minute
from api_key k join tenant t using (tenant_id)
where k.key_id = %(key_id)s and k.revoked_at is null and (k.expires_at is null or k.expires_at > now())"""

TOUCH_KEY = "update api_key set last_used_at = now() where key_id = %(key_id)s"

# One row a key: the counts of the newest minute, in which a statement counts too that began in the one before and had to wait.
# Nothing is counted of a request that would exceed a limit.
TAKE = """
with t as (
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
select t.requests is not null, coalesce(t.requests, u.requests, 0), coalesce(t.tokens, u.tokens, 0),
       ceil(60 - extract(second from now()))::int
from (select) one left join t on true
left join key_usage u on u.key_id = %(key_id)s and u.minute >= date_trunc('minute', now())"""

LIST_KEYS = """
select k.key_id, t.account_id, k.name, k.created_at, k.last_used_at, k.expires_at, k.revoked_at,
       k.requests_per_minute, k.tokens_per_minute
from api_key k join tenant t using (tenant_id) order by k.created_at"""

REVOKE_KEY = "update api_key set revoked_at = now() where key_id = %(key_id)s and revoked_at is null returning key_id"

SET_SHARE = """
update tenant set weight = coalesce(%(weight)s, weight),
       max_inflight_tokens = coalesce(%(max_inflight_tokens)s, max_inflight_tokens)
where tenant_id = %(tenant_id)s returning weight, max_inflight_tokens"""
