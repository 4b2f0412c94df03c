"""The SQL of fair shares: a row for each account with work in a pool, from counters."""

from app.metering.lines import UNQUEUED

MOST_ACCOUNTS = 256  # of a pool
_NOT_QUEUED = ", ".join(f"'{kind}'" for kind in sorted(UNQUEUED))

ACCOUNTS = f"""
select p.model, t.tenant_id, t.account_id, t.weight, t.max_inflight_tokens, s.vtime, s.ready, s.inflight_tokens
from pool p cross join lateral (
  select * from sched s where s.pool_id = p.pool_id and (s.ready > 0 or s.inflight_tokens > 0)
  order by s.vtime limit {MOST_ACCOUNTS}) s
join tenant t on t.tenant_id = s.tenant_id
order by p.model, s.vtime"""

# Tokens that queued work of each account has used since the beginning of an hour.
SERVED = f"""
select l.model, l.tenant_id, sum(u.prompt + u.output)::bigint
from usage u join line l using (line_id)
where u.hour >= %(since)s and l.kind not in ({_NOT_QUEUED}) group by 1, 2"""
