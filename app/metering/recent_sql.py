"""The SQL of what the ledger says about the last hours. It reads the rows of two hours, not those of requests."""

from app.metering.lines import OTHER, UNQUEUED

MOST_WORKFLOWS = 50
MOST_FAMILIES = 20
MOST_SESSIONS = 2000  # the latest ones

_SINCE = "date_trunc('hour', now(), 'UTC') - interval '1 hour'"
_CLASS = f"case when l.kind in ({', '.join(map(repr, UNQUEUED))}) then 'sync' else 'batch' end"

FIRST_TOKENS = f"""
with used as materialized (
  select l.workflow, {_CLASS} as class, u.requests, u.first_token from usage u join line l using (line_id)
  where u.hour >= {_SINCE} and u.first_token is not null),
 top as (select workflow from used group by 1 order by sum(requests) desc, 1 limit {MOST_WORKFLOWS})
select coalesce(t.workflow, '{OTHER}'), class, x.place::int - 1, sum(x.n)::int8
from used u left join top t using (workflow) cross join lateral unnest(u.first_token) with ordinality x (n, place)
where x.n > 0 group by 1, 2, 3 order by 1, 2, 3"""


def _shares(name: str, most: int, whole: str, part: str) -> str:
    """By the values of a column of `line` that have most of `whole`: the sums of `whole` and of `part`."""
    return f"""
with used as materialized (
  select l.{name} as name, u.{whole} as whole, u.{part} as part from usage u join line l using (line_id)
  where u.hour >= {_SINCE} and u.{whole} > 0),
 top as (select name from used group by 1 order by sum(whole) desc, 1 limit {most})
select coalesce(t.name, '{OTHER}'), sum(whole)::int8, sum(part)::int8
from used u left join top t using (name) group by 1 order by 1"""


CACHED = _shares("family", MOST_FAMILIES, "prompt", "cached")
RETRIED = _shares("workflow", MOST_WORKFLOWS, "retried", "retried_ok")

SESSIONS = f"""
select workflow, prompts from session_growth where seen_at >= now() - interval '1 hour'
order by seen_at desc limit {MOST_SESSIONS}"""
