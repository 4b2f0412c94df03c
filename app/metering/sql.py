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

FIND = f"select l.line_id, l.unused_since is not null from {_ROWS} left join line l on {_SAME} order by x.place"

# Two processes could otherwise each add the last line that an account may have.
ONE_AT_A_TIME = "select pg_advisory_xact_lock(hashtext('slackwater line'), %(tenant_id)s)"

# The labels of the account, without a key, and those of each of these keys.
KNOWN = """
select case when grouping(key_id) = 0 then key_id end, workflow, task, variant, family, count(*)
from line where tenant_id = %(tenant_id)s
group by grouping sets ((workflow), (task), (variant), (workflow, family), (), (key_id, workflow), (key_id, task),
  (key_id, variant), (key_id, workflow, family), (key_id))
having grouping(key_id) = 1 or key_id = any(%(key_ids)s)"""

NAMED_BY_BUDGETS = "select scope, scope_value from budget where tenant_id = %(tenant_id)s"

ADD = f"""
insert into line ({", ".join(_COLUMNS)})
select {", ".join(f"x.{name}" for name in _COLUMNS)} from {_ROWS} order by x.place
on conflict on constraint line_parts do nothing"""

# ---------------------------------------------------------------- lines that nothing uses

# A line is marked once nothing has used it, nor refers to it. Who looks it up unmarks it, and whoever knows its id does so at
# least every TRUST_SECONDS. So a day later it can be removed, unless something refers to it now.
KEEP = "update line set unused_since = null where line_id = any(%(line_ids)s)"
_REFERRED = """
  select line_id from usage union select line_id from usage_day
  union select line_id from batch union select unnest(model_lines) from batch
  union select line_id from chunk union select line_id from batch_delta"""
_UNUSED = f"""select l.line_id from line l
  where l.created_at < now() - interval '1 day' and {{}} and not exists (select from ({_REFERRED}) r where r.line_id = l.line_id)
    and not exists (select from batch b join item_payload p using (batch_id)
      where b.tenant_id = l.tenant_id and (b.pipeline_id is not null or b.diverted_to is not null) and p.line_id = l.line_id)
  limit 1000"""
MARK_UNUSED = f"""
update line set unused_since = now() where line_id in ({_UNUSED.format("l.unused_since is null")})"""
REMOVE_UNUSED = f"""
delete from line where line_id in ({_UNUSED.format("l.unused_since < now() - interval '1 day'")})"""

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
    "delete from answer_length where tenant_id = %(tenant_id)s",
    "delete from session_growth where tenant_id = %(tenant_id)s",
    "delete from dropped_usage where tenant_id = %(tenant_id)s",
    "delete from usage_day where line_id in (select line_id from line where tenant_id = %(tenant_id)s)",
    "delete from usage where line_id in (select line_id from line where tenant_id = %(tenant_id)s)",
    "delete from line where tenant_id = %(tenant_id)s",
)

# ---------------------------------------------------------------- the last check of the ledger

# With the share of its labels that each account has used, if that is half or more, by its name and that of the label.
NOTE_CHECK = """
with counts as (
  select tenant_id, key_id, null as workflow, count(*) as lines, count(distinct workflow) as workflows,
         count(distinct task) as tasks, count(distinct variant) as variants, null::int8 as families from line group by 1, 2
  union all select tenant_id, key_id, workflow, null, null, null, null, count(distinct family) from line group by 1, 2, 3
  union all
  select tenant_id, null, null, count(*), count(distinct workflow), count(distinct task), count(distinct variant), null
  from line group by 1
  union all select tenant_id, null, workflow, null, null, null, null, count(distinct family) from line group by 1, 3),
 shares as (
  select t.account_id || '/' || x.name as name, max(x.n / x.most / case when c.key_id is null then %(keys)s else 1 end) as share
  from counts c join tenant t using (tenant_id) cross join lateral (values
    ('lines', c.lines, %(lines)s::float8), ('workflow', c.workflows, %(workflows)s), ('task', c.tasks, %(tasks)s),
    ('variant', c.variants, %(variants)s), ('family', c.families, %(families)s)) x (name, n, most)
  group by 1 having max(x.n / x.most / case when c.key_id is null then %(keys)s else 1 end) >= 0.5 order by 2 desc limit 100)
insert into ledger_check (one, at, drift, labels)
values (true, now(), %(drift)s, (select coalesce(jsonb_object_agg(name, share), '{}') from shares))
on conflict (one) do update set at = excluded.at, drift = excluded.drift, labels = excluded.labels"""
GAUGES = """
select 'ledger_drift', '', drift::float8 from ledger_check
union all select 'labels_used_ratio', x.key, x.value::float8 from ledger_check, jsonb_each_text(labels) x"""

# ---------------------------------------------------------------- lengths of answers

QUEUED_MODELS = """
select array_agg(distinct tenant_id), array_agg(distinct model) from line
where tenant_id in (select tenant_id from budget) and kind <> all(%(unqueued)s)"""
PUT_LENGTHS = """
insert into answer_length as a (tenant_id, workflow, task, model, p95, answers)
select * from unnest(%(tenant_id)s::int[], %(workflow)s::text[], %(task)s::text[], %(model)s::text[], %(p95)s::int[],
                     %(answers)s::int[]) x order by 1, 2, 3, 4
on conflict (tenant_id, workflow, task, model) do update set p95 = excluded.p95, answers = excluded.answers, learned_at = now()"""
