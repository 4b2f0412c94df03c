"""The SQL of lists of API keys. Secrets are not read."""

_KEY = """
select k.key_id, t.account_id, k.name, k.created_at, k.last_used_at, k.expires_at, k.revoked_at, k.requests_per_minute,
       k.tokens_per_minute, k.pins, u.requests, u.tokens, k.role, k.models, k.endpoints, k.networks::text[]
from {source} join tenant t on t.tenant_id = k.tenant_id
left join key_usage u on u.key_id = k.key_id and u.minute >= date_trunc('minute', now())"""

_WHOSE = "(%(tenant_id)s::int is null or k.tenant_id = %(tenant_id)s)"
_LIVE = "k.revoked_at is null and (k.expires_at is null or k.expires_at > now())"
VIEWS = {
    "live": _LIVE,
    "unused": f"{_LIVE} and coalesce(k.last_used_at, k.created_at) < now() - interval '30 days'",
    "ended": f"not ({_LIVE})",
    "all": "true",
}
MOST_KEYS = 1000


def page(view: str) -> str:
    """A page of keys, newest first. `view`: a key of VIEWS."""
    chosen = f"""(select * from api_key k where {_WHOSE} and {VIEWS[view]}
      and (%(account)s::text is null or k.tenant_id = (select tenant_id from tenant where account_id = %(account)s))
      and (%(after_at)s::timestamptz is null or (k.created_at, k.key_id) < (%(after_at)s, %(after)s))
      order by k.created_at desc, k.key_id desc limit %(limit)s) k"""
    return _KEY.format(source=chosen) + " order by k.created_at desc, k.key_id desc"


ONE = f"{_KEY.format(source='api_key k')} where k.key_id = %(key_id)s and {_WHOSE}"

SUMMARY = f"""
select (count(*) filter (where {VIEWS["live"]}))::int, (count(*) filter (where {VIEWS["unused"]}))::int,
       (count(*) filter (where {_LIVE} and k.expires_at < now() + interval '14 days'))::int
from (select * from api_key k where {_WHOSE} limit {MOST_KEYS}) k"""
