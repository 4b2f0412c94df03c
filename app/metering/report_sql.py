"""The SQL of the reports on the ledger, and of its comparison with the queue."""

from app.metering.line_columns import PRICE, SKETCHES
from app.metering.lines import UNQUEUED
from app.metering.sql import ALL
from app.usage_counts import COUNTS

# By name, the SQL of each part of a line by which usage is reported.
DIMENSIONS = {
    "account": "t.account_id",
    "key": "l.key_id",
    "workflow": "l.workflow",
    "task": "l.task",
    "variant": "l.variant",
    "family": "l.family",
    "model": "l.model",
    "kind": "l.kind",
    "endpoint": "l.endpoint",
    "day": "to_char(u.moment at time zone %(tz)s, 'YYYY-MM-DD')",
    "hour": "to_char(u.hour at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:00\"Z\"')",
}
SESSION_DIMENSIONS = {
    "account": "t.account_id",
    **{name: f"s.{name}" for name in ("workflow", "variant", "model", "endpoint")},
}

# Old hours are kept as days of UTC. One is the day of a time zone, and is in a period, that its noon is in.
_NOON = "interval '12 hours'"
_USED = f"""(select {ALL}, hour as moment from usage where hour >= %(since)s and hour < %(until)s
   union all select {ALL}, hour + {_NOON} from usage_day
   where hour >= %(since)s::timestamptz - {_NOON} and hour < %(until)s::timestamptz - {_NOON}) u
  join line l using (line_id) join tenant t using (tenant_id)"""
_WHOSE = "(%(tenant_id)s::int is null or t.tenant_id = %(tenant_id)s)"
_COST = """sum((u.prompt - u.cached) * l.price_in::numeric + u.cached * l.price_cached::numeric
           + u.output * l.price_out::numeric) / 1000000000000 as cost"""
_SUMS = ", ".join(f"sum(u.{name})::int8" for name in COUNTS)


def usage(by: tuple[str, ...]) -> str:
    """Usage and cost by these of DIMENSIONS. The cost is exact: each line has the price of its tokens."""
    groups = "".join(f"{DIMENSIONS[name]}, " for name in by)
    places = ", ".join(str(n + 1) for n in range(len(by) + 1))
    return f"""
select {groups}l.currency, {_COST}, {_SUMS}
from {_USED}
where {_WHOSE}
group by {places} order by cost desc nulls last, sum(u.requests) desc, {places}"""


def latencies(by: tuple[str, ...]) -> str:
    """The filled buckets of the sketches by these of DIMENSIONS: name of the sketch, index, count."""
    groups = "".join(f"{DIMENSIONS[name]}, " for name in by)
    places = ", ".join(str(n + 1) for n in range(len(by) + 2))
    sketches = ", ".join(f"('{name}', u.{name})" for name in SKETCHES)
    return f"""
select {groups}s.name, x.place::int - 1, sum(x.n)::int8
from {_USED}
  cross join lateral (values {sketches}) s (name, counts)
  cross join lateral unnest(s.counts) with ordinality x (n, place)
where {_WHOSE} and x.n > 0
group by {places} order by {places}"""


def by_price(name: str) -> str:
    """What explains a cost: usage by one of DIMENSIONS, model, kind and price."""
    return f"""
select {DIMENSIONS[name]}, l.model, l.kind, {", ".join(f"l.{part}" for part in PRICE)},
       sum(u.requests)::int8, sum(u.repeats)::int8, sum(u.prompt)::int8, sum(u.cached)::int8, sum(u.output)::int8
from {_USED}
where {_WHOSE} group by 1, 2, 3, 4, 5, 6, 7 order by 1, 2, 3, 4, 5, 6, 7"""


# One row for each day of the time zone and line.
CHARGES = f"""
select (u.moment at time zone %(tz)s)::date, t.account_id, l.key_id, l.workflow, l.task, l.critical, l.variant, l.family, l.model,
       l.kind, l.endpoint, {", ".join(f"l.{part}" for part in PRICE)}, {_SUMS}
from {_USED}
where {_WHOSE} group by 1, 2, l.line_id order by 1, 2, l.line_id"""

# One row for each hour of a variant, for intervals.
OF_VARIANT = f"""
select array_remove(array_agg(distinct l.currency), null), {_COST}, {_SUMS}
from {_USED}
where {_WHOSE} and l.variant = %(variant)s and (%(workflow)s::text is null or l.workflow = %(workflow)s)
group by u.hour order by u.hour"""

SKETCHES_OF_VARIANT = f"""
select s.name, x.place::int - 1, sum(x.n)::int8
from {_USED}
  cross join lateral (values {", ".join(f"('{name}', u.{name})" for name in SKETCHES)}) s (name, counts)
  cross join lateral unnest(s.counts) with ordinality x (n, place)
where {_WHOSE} and x.n > 0 and l.variant = %(variant)s and (%(workflow)s::text is null or l.workflow = %(workflow)s)
group by 1, 2"""

SESSIONS_OF_VARIANT = f"""
select s.prompts from session_growth s join tenant t using (tenant_id)
where {_WHOSE} and s.seen_at >= %(since)s and s.variant = %(variant)s
  and (%(workflow)s::text is null or s.workflow = %(workflow)s) order by s.tenant_id, s.session"""


def sessions(by: tuple[str, ...]) -> str:
    """The sessions that were seen since a time, by these of SESSION_DIMENSIONS."""
    groups = "".join(f"{SESSION_DIMENSIONS[name]}, " for name in by)
    return f"""
select {groups}encode(s.session, 'hex'), s.turns, s.prompts, s.fresh
from session_growth s join tenant t using (tenant_id)
where {_WHOSE} and s.seen_at >= %(since)s and s.seen_at < %(until)s order by s.tenant_id, s.session"""


# Usage of queued work against what the queue counted, one row per account and count that differ.
CHECK = f"""
with used as (select line_id, requests, ok, prompt, cached, output from usage
              union all select line_id, requests, ok, prompt, cached, output from usage_day),
 parts as (select l.tenant_id, u.ok, u.requests - u.ok as failed, u.prompt, u.cached, u.output
           from used u join line l using (line_id) where l.kind not in ({", ".join(map(repr, UNQUEUED))})
           union all select tenant_id, ok, failed, prompt, cached, output from dropped_usage),
 booked as (select tenant_id, sum(ok) as ok, sum(failed) as failed, sum(prompt) as prompt, sum(cached) as cached,
              sum(output) as output from parts group by 1),
 counted as (select tenant_id, sum(ok) as ok, sum(failed) as failed, sum(prompt_tokens) as prompt, sum(cached_tokens) as cached,
               sum(completion_tokens) as output
        from (select tenant_id, ok, failed, prompt_tokens, cached_tokens, completion_tokens from batch union all
              select tenant_id, ok, failed, prompt_tokens, cached_tokens, completion_tokens from removed_counts) every group by 1)
select t.account_id, x.name, coalesce(x.ledger, 0)::int8, coalesce(x.queue, 0)::int8
from tenant t left join booked b using (tenant_id) left join counted c using (tenant_id)
cross join lateral (values ('ok', b.ok, c.ok), ('failed', b.failed, c.failed), ('prompt tokens', b.prompt, c.prompt),
  ('cached tokens', b.cached, c.cached), ('output tokens', b.output, c.output)) x (name, ledger, queue)
where coalesce(x.ledger, 0) <> coalesce(x.queue, 0) order by 1, 2"""
