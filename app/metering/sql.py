"""The SQL of the ledger: lines, bookings, days, sessions. That of the reports is in `report_sql`.

Lock order: line, usage. Usage of batches is written by the leading steward alone.
"""

from app.metering.line_columns import PARTS, PRICE, SKETCHES
from app.metering.slope import TURNS
from app.usage_counts import COUNTS

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

NAMED_BY_BUDGETS = "select scope, scope_value from budget where tenant_id = %(tenant_id)s"

ADD = f"""
insert into line ({", ".join(_COLUMNS)})
select {", ".join(f"x.{name}" for name in _COLUMNS)} from {_ROWS} order by x.place
on conflict on constraint line_parts do nothing"""

PARTS_OF = f"select line_id, {', '.join(_COLUMNS)} from line where line_id = any(%(line_ids)s) order by line_id"

_SUMS = ", ".join(f"%({name})s::int8[]" for name in COUNTS)
ALL = f"hour, line_id, {', '.join((*COUNTS, *SKETCHES))}"


def _added(sketch: str) -> str:
    """The sum of the sketches of two rows, in an upsert."""
    return f"""case when u.{sketch} is null then excluded.{sketch} when excluded.{sketch} is null then u.{sketch}
  else (select array_agg(x.mine + x.new order by x.place)
        from unnest(u.{sketch}, excluded.{sketch}) with ordinality x (mine, new, place)) end"""


def _latest(lengths: str) -> str:
    """The last lengths of both rows, in an upsert."""
    both = f"s.{lengths} || excluded.{lengths}"
    return f"({both})[greatest(1, cardinality({both}) - {TURNS - 1}):]"


_ADD_TO_ROW = ",\n  ".join(
    (*(f"{name} = u.{name} + excluded.{name}" for name in COUNTS), *(f"{name} = {_added(name)}" for name in SKETCHES))
)

# In the order of the key, so that two transactions lock rows in one order. An array of sketches cannot be a parameter, since
# PostgreSQL would take it apart; so each is a text.
BOOK = f"""
insert into usage as u ({ALL})
select hour, line_id, {", ".join(COUNTS)}, {", ".join(f"{name}::int[]" for name in SKETCHES)}
from unnest(%(hour)s::timestamptz[], %(line_id)s::int[], {_SUMS}, {", ".join(f"%({name})s::text[]" for name in SKETCHES)})
  x ({ALL}) order by 1, 2
on conflict (hour, line_id) do update set
  {_ADD_TO_ROW}"""

# What a day's hours add up to becomes one row of each line.
ROLL_UP = f"""
with old as (delete from usage where hour >= %(day)s and hour < %(day)s + interval '1 day' returning *),
 sketches as (select o.line_id, s.name, x.place, sum(x.n)::int as n
       from old o cross join lateral (values {", ".join(f"('{name}', o.{name})" for name in SKETCHES)}) s (name, counts)
         cross join lateral unnest(s.counts) with ordinality x (n, place) group by 1, 2, 3),
 arrays as (select line_id, {", ".join(f"array_agg(n order by place) filter (where name = '{n}') as {n}" for n in SKETCHES)}
       from sketches group by 1),
 sums as (select line_id, {", ".join(f"sum({name})::int8 as {name}" for name in COUNTS)} from old group by 1)
insert into usage_day as u ({ALL})
select %(day)s, line_id, {", ".join((*COUNTS, *SKETCHES))} from sums left join arrays using (line_id) order by 2
on conflict (hour, line_id) do update set
  {_ADD_TO_ROW}"""

OLDEST_DAY = "select date_trunc('day', min(hour), 'UTC') from usage where hour < %(before)s"

# What queued work used is added up, since the ledger is compared with all that the queue has counted.
DROP_DAYS = """
with old as (delete from usage_day where hour < %(before)s returning *)
insert into dropped_usage as d (tenant_id, ok, failed, prompt, cached, output)
select l.tenant_id, sum(o.ok), sum(o.requests - o.ok), sum(o.prompt), sum(o.cached), sum(o.output)
from old o join line l using (line_id) where l.kind <> all(%(unqueued)s) group by 1 order by 1
on conflict (tenant_id) do update set ok = d.ok + excluded.ok, failed = d.failed + excluded.failed,
  prompt = d.prompt + excluded.prompt, cached = d.cached + excluded.cached, output = d.output + excluded.output"""

# No row: this group of sums is booked already.
NEXT_GROUP = """
insert into usage_writer as w (writer, number) values (%(writer)s, %(number)s)
on conflict (writer) do update set number = excluded.number, seen_at = now() where w.number = excluded.number - 1
returning number"""

# By one session after another: the arrays differ in length, so they cannot be one parameter.
NOTE_TURNS = f"""
insert into session_growth as s (tenant_id, session, workflow, variant, model, endpoint, turns, prompts, fresh)
values (%s, %s, %s, %s, %s, %s, %s, %s::int[], %s::int[])
on conflict (tenant_id, session) do update set workflow = excluded.workflow, variant = excluded.variant,
  model = excluded.model, endpoint = excluded.endpoint, turns = s.turns + excluded.turns, seen_at = now(),
  prompts = {_latest("prompts")},
  fresh = {_latest("fresh")}"""

FORGET_SESSIONS = "delete from session_growth where seen_at < now() - interval '7 days'"

EXISTING = "select tenant_id from tenant where tenant_id = any(%(tenant_ids)s)"

# A process that has not booked for so long does not come back with a group whose commit it does not know.
FORGET_WRITERS = "delete from usage_writer where seen_at < now() - interval '7 days'"

FORGET = (
    "delete from session_growth where tenant_id = %(tenant_id)s",
    "delete from dropped_usage where tenant_id = %(tenant_id)s",
    "delete from usage_day where line_id in (select line_id from line where tenant_id = %(tenant_id)s)",
    "delete from usage where line_id in (select line_id from line where tenant_id = %(tenant_id)s)",
    "delete from line where tenant_id = %(tenant_id)s",
)

# ---------------------------------------------------------------- the last check of the ledger

NOTE_CHECK = """
insert into ledger_check (one, at, drift) values (true, now(), %(drift)s)
on conflict (one) do update set at = excluded.at, drift = excluded.drift"""
GAUGES = "select 'ledger_drift', '', drift::float8 from ledger_check"
