"""The SQL of the ledger.

Lock order: line, usage. Usage of batches is written by the leading steward alone.
"""

from app.metering.tables import COUNTS, PARTS, PRICE

_COLUMNS = (*PARTS, *PRICE)
_SAME = " and ".join(f"l.{name} is not distinct from x.{name}" for name in _COLUMNS)
_TYPES = {"tenant_id": "int", "critical": "bool", "price_in": "int8", "price_cached": "int8", "price_out": "int8"}
_GIVEN = ", ".join(f"%({name})s::{_TYPES.get(name, 'text')}[]" for name in _COLUMNS)
_ROWS = f"unnest({_GIVEN}) with ordinality x ({', '.join(_COLUMNS)}, place)"

FIND = f"select l.line_id from {_ROWS} left join line l on {_SAME} order by x.place"

# Two processes could otherwise each add the last line that an account may have.
ONE_AT_A_TIME = "select pg_advisory_xact_lock(hashtext('slackwater line'), %(tenant_id)s)"

KNOWN = """
select workflow, task, family, count(*) from line where tenant_id = %(tenant_id)s
group by grouping sets ((workflow), (task), (workflow, family), ())"""

ADD = f"""
insert into line ({", ".join(_COLUMNS)})
select {", ".join(f"x.{name}" for name in _COLUMNS)} from {_ROWS} order by x.place
on conflict on constraint line_parts do nothing"""

PARTS_OF = f"select line_id, {', '.join(_COLUMNS)} from line where line_id = any(%(line_ids)s) order by line_id"

OF_MODEL = f"""
select l.line_id from line l join line x using ({", ".join(name for name in PARTS if name != "model")})
where x.line_id = %(line_id)s and l.model = %(model)s order by l.line_id desc limit 1"""

_SUMS = ", ".join(f"%({name})s::int8[]" for name in COUNTS)

# In the order of the key, so that two transactions lock rows in one order.
BOOK = f"""
insert into usage as u (hour, line_id, {", ".join(COUNTS)})
select * from unnest(%(hour)s::timestamptz[], %(line_id)s::int[], {_SUMS}) order by 1, 2
on conflict (hour, line_id) do update set {", ".join(f"{name} = u.{name} + excluded.{name}" for name in COUNTS)}"""

# No row: this group of sums is booked already.
NEXT_GROUP = """
insert into usage_writer as w (writer, number) values (%(writer)s, %(number)s)
on conflict (writer) do update set number = excluded.number, seen_at = now() where w.number = excluded.number - 1
returning number"""

EXISTING = "select tenant_id from tenant where tenant_id = any(%(tenant_ids)s)"

# A process that has not booked for so long does not come back with a group whose commit it does not know.
FORGET_WRITERS = "delete from usage_writer where seen_at < now() - interval '7 days'"

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
    "day": "to_char(u.hour at time zone 'UTC', 'YYYY-MM-DD')",
    "hour": "to_char(u.hour at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:00\"Z\"')",
}


def report(by: tuple[str, ...]) -> str:
    """Usage and cost by these of DIMENSIONS. The cost is exact: each line has the price of its tokens."""
    groups = "".join(f"{DIMENSIONS[name]}, " for name in by)
    places = ", ".join(str(n + 1) for n in range(len(by) + 1))
    return f"""
select {groups}l.currency,
       sum((u.prompt - u.cached) * l.price_in::numeric + u.cached * l.price_cached::numeric
           + u.output * l.price_out::numeric) / 1000000000000 as cost, {", ".join(f"sum(u.{name})::int8" for name in COUNTS)}
from usage u join line l using (line_id) join tenant t using (tenant_id)
where u.hour >= %(since)s and u.hour < %(until)s and (%(tenant_id)s::int is null or l.tenant_id = %(tenant_id)s)
group by {places} order by cost desc nulls last, sum(u.requests) desc, {places}"""


# Usage of queued work against what the queue counted, one row per account and count that differ.
CHECK = """
with booked as (select l.tenant_id, sum(u.ok) as ok, sum(u.requests - u.ok) as failed, sum(u.prompt) as prompt,
                  sum(u.cached) as cached, sum(u.output) as output
           from usage u join line l using (line_id) where l.kind <> 'sync' group by 1),
 counted as (select tenant_id, sum(ok) as ok, sum(failed) as failed, sum(prompt_tokens) as prompt, sum(cached_tokens) as cached,
               sum(completion_tokens) as output
        from (select tenant_id, ok, failed, prompt_tokens, cached_tokens, completion_tokens from batch
              union all select * from removed_counts) every group by 1)
select t.account_id, x.name, coalesce(x.ledger, 0)::int8, coalesce(x.queue, 0)::int8
from tenant t left join booked b using (tenant_id) left join counted c using (tenant_id)
cross join lateral (values ('ok', b.ok, c.ok), ('failed', b.failed, c.failed), ('prompt tokens', b.prompt, c.prompt),
  ('cached tokens', b.cached, c.cached), ('output tokens', b.output, c.output)) x (name, ledger, queue)
where coalesce(x.ledger, 0) <> coalesce(x.queue, 0) order by 1, 2"""

FORGET = (
    "delete from usage where line_id in (select line_id from line where tenant_id = %(tenant_id)s)",
    "delete from line where tenant_id = %(tenant_id)s",
)
