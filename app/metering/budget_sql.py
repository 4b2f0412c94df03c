"""The SQL of budgets, their lanes and slices.

Lock order: usage, budget by id, chunk. Every statement that changes several budgets locks them in the order of their ids.
"""

from app.metering.budget_rules import COLUMNS, TERMS
from app.metering.lines import DOOR

_COLUMNS = ", ".join(COLUMNS)
_OF_B = ", ".join(f"b.{name}" for name in COLUMNS)

# Whether budget b counts the usage of line l. One of money counts only lines with a price in its currency.
_COUNTS = """b.tenant_id = l.tenant_id and (b.scope = 'account' or (b.scope = 'key' and b.scope_value = l.key_id)
  or (b.scope = 'workflow' and b.scope_value = l.workflow)) and (b.unit = 'tokens' or b.currency = l.currency)"""

# The cost of prompt, cached and output tokens of x on line l. Numeric: the sums of many results may exceed a bigint here.
_COST = """((x.prompt - x.cached)::numeric * coalesce(l.price_in, 0) + x.cached::numeric * coalesce(l.price_cached, 0)
       + x.output::numeric * coalesce(l.price_out, 0))"""

ANY = "select exists (select from budget)"
LIST = f"select {_COLUMNS} from budget where tenant_id = %(tenant_id)s order by name"
ALL = f"select {_COLUMNS} from budget order by budget_id"
OF_IDS = f"select {_COLUMNS} from budget where budget_id = any(%(ids)s::int[]) order by budget_id"
LOCK = f"select {_COLUMNS} from budget where budget_id = any(%(ids)s::int[]) order by budget_id for update"
LOCK_FREE = f"{LOCK} skip locked"
ONE = f"select {_COLUMNS} from budget where tenant_id = %(tenant_id)s and name = %(name)s for update"
COUNT = "select count(*) from budget where tenant_id = %(tenant_id)s"
NOW = "select clock_timestamp()"
DELETE = "delete from budget where tenant_id = %(tenant_id)s and name = %(name)s"

# A new budget, or one that counts something else than before, begins with what the ledger has in its window, also of the days
# whose hours are added up. The hour in which the window begins counts as a whole, so that no money is spent twice. Requests
# through doors never count.
PUT = f"""
insert into budget as b ({", ".join(TERMS)}, owner, tenant_id, window_from, window_to)
values ({", ".join(f"%({name})s" for name in TERMS)}, %(owner)s, %(tenant_id)s, %(window_from)s, %(window_to)s)
on conflict (tenant_id, name) do update set {", ".join(f"{name} = excluded.{name}" for name in TERMS if name != "name")},
  owner = excluded.owner, window_from = excluded.window_from, window_to = excluded.window_to, changed_at = now(),
  notified = case when b.max = excluded.max then b.notified
             else least(b.notified, floor(b.spent::numeric * 100 / excluded.max)) end,
  spent_noted = b.spent_noted and (b.max = excluded.max or b.spent >= excluded.max)
returning budget_id"""
FROM_LEDGER = f"""
update budget b set notified = 0, spent_noted = false, diverted_to = '{{}}', spent = coalesce((
  select case when b.unit = 'cost' then round(sum({_COST}) filter (where l.currency = b.currency) / 1000)
         else sum(x.prompt + x.output) end
  from (select hour, line_id, prompt, cached, output from usage where hour > b.window_from - interval '1 hour'
        union all
        select hour, line_id, prompt, cached, output from usage_day where hour >= b.window_from) x join line l using (line_id)
  where {_COUNTS} and l.kind <> '{DOOR}'), 0)
where b.budget_id = %(budget_id)s"""

DUE = f"""
select {_COLUMNS}, clock_timestamp() from budget where window_to <= clock_timestamp() order by budget_id for update skip locked"""
TURN = """
update budget set spent = 0, notified = 0, spent_noted = false, diverted_to = '{}', window_from = %(window_from)s,
  window_to = %(window_to)s
where budget_id = %(budget_id)s"""

_LOCKED = """
 locked as materialized (select b.budget_id, c.amount from budget b join changes c using (budget_id)
   order by b.budget_id for update of b)"""

SPEND = f"""
with sums as (select x.at, x.prompt, x.output, l.*, ({_COST} / 1000) as cost
   from unnest(%(at)s::timestamptz[], %(line_id)s::int[], %(prompt)s::int8[], %(cached)s::int8[], %(output)s::int8[])
     x (at, line_id, prompt, cached, output) join line l using (line_id)),
 changes as (select b.budget_id, round(sum(case b.unit when 'tokens' then l.prompt + l.output
       else l.cost end))::int8 as amount
   from sums l join budget b on {_COUNTS} and l.at >= b.window_from group by 1),
{_LOCKED}
update budget b set spent = b.spent + k.amount from locked k where b.budget_id = k.budget_id
returning {_OF_B}"""

RETURN = f"""
with changes as (select b.budget_id, sum(case b.unit when 'cost' then x.cost else x.tokens end)::int8 as amount
   from unnest(%(lane)s::int[], %(cost)s::int8[], %(tokens)s::int8[]) x (lane_id, cost, tokens)
     join lane using (lane_id) join budget b on b.budget_id = any(lane.budget_ids) group by 1),
{_LOCKED}
update budget b set held = greatest(0, b.held - k.amount) from locked k where b.budget_id = k.budget_id"""

HOLD = """
update budget set held = held + case unit when 'cost' then %(cost)s::int8 else %(tokens)s::int8 end
where budget_id = any(%(ids)s::int[])"""

SPENT_NOTED = "update budget set spent_noted = true where budget_id = %(budget_id)s"
NOTIFIED = "update budget set notified = greatest(notified, %(percent)s) where budget_id = %(budget_id)s"
DIVERTED = """
update budget set diverted_to = array_append(diverted_to, %(model)s)
where budget_id = %(budget_id)s and not %(model)s = any(diverted_to) returning budget_id"""

# Sets `held` to what chunks, unsettled deltas and slices hold. The locks are taken before, so that no change is in between.
RECOUNT = """
with funded as (select b.budget_id, sum(case b.unit when 'cost' then x.cost else x.tokens end)::int8 as amount
   from unnest(%(lane)s::int[], %(cost)s::int8[], %(tokens)s::int8[]) x (lane_id, cost, tokens)
     join lane using (lane_id) join budget b on b.budget_id = any(lane.budget_ids) group by 1),
 sliced as (select budget_id, sum(amount)::int8 as amount from budget_slice group by 1),
 found as (select b.budget_id, b.held as before, coalesce(f.amount, 0) + coalesce(s.amount, 0) as held
   from budget b left join funded f using (budget_id) left join sliced s using (budget_id))
update budget b set held = x.held from found x
where b.budget_id = x.budget_id and b.held <> x.held and b.budget_id = any(%(only)s::int[])
returning b.tenant_id, b.name, x.held - x.before"""
LOCK_ALL_FREE = "select budget_id from budget order by budget_id for update skip locked"

# ---------------------------------------------------------------- lanes

BUDGETS_OF_LINES = f"""
select l.line_id, l.tenant_id, l.price_in, l.price_cached, l.price_out, l.currency, a.p95, {_OF_B}
from line l join budget b on {_COUNTS} left join answer_length a
  on a.tenant_id = l.tenant_id and a.workflow = l.workflow and a.task = l.task and a.model = l.model
where l.line_id = any(%(line_ids)s::int[]) order by l.line_id, b.budget_id"""
ADD_LANE = """
insert into lane (tenant_id, budget_ids, strict) values (%(tenant_id)s, %(budget_ids)s::int[], %(strict)s)
on conflict (tenant_id, budget_ids, strict) do nothing"""
FIND_LANE = """
select lane_id from lane where tenant_id = %(tenant_id)s and budget_ids = %(budget_ids)s::int[] and strict = %(strict)s"""
STRICT_LANES = "select lane_id from lane where tenant_id = %(tenant_id)s and strict"
LANE = "select budget_ids, cost, worst, tokens, worst_tokens from lane where lane_id = %(lane_id)s"
SCOPES = """
select tenant_id, array_agg(concat_ws(':', budget_id, scope, scope_value, unit, currency, strict) order by budget_id)
from budget group by 1"""
LANE_TENANTS = "select distinct tenant_id from lane"

LEARN = f"""
with used as (select x.lane_id, sum({_COST} / 1000)::float8 as cost, sum(x.prompt + x.output)::float8 as tokens,
       sum(x.worst)::float8 as worst, sum(x.worst_tokens)::float8 as worst_tokens
   from unnest(%(lane)s::int[], %(line_id)s::int[], %(prompt)s::int8[], %(cached)s::int8[], %(output)s::int8[], %(worst)s::int8[],
               %(worst_tokens)s::int8[]) x (lane_id, line_id, prompt, cached, output, worst, worst_tokens)
     left join line l using (line_id) group by 1),
 fading as (select lane_id, exp(-extract(epoch from now() - learned_at) / 86400)::float8 as left_over from lane)
update lane set cost = lane.cost * f.left_over + u.cost, worst = lane.worst * f.left_over + u.worst,
       tokens = lane.tokens * f.left_over + u.tokens, worst_tokens = lane.worst_tokens * f.left_over + u.worst_tokens,
       learned_at = now()
from used u join fading f using (lane_id) where lane.lane_id = u.lane_id"""

# ---------------------------------------------------------------- slices

# A report is planned with what was read, and stored if the budget has not changed since: whatever changes the amount of a slice
# changes its budget, too. So nobody waits for a process that stops in between.
READ_SLICE = f"""
select {_OF_B}, b.xmin::text, coalesce(own.amount, 0), coalesce(own.number, 0),
  (select coalesce(sum(amount), 0)::int8 from budget_slice x where x.budget_id = b.budget_id)
from budget b left join budget_slice own on own.budget_id = b.budget_id and own.writer = %(writer)s
where b.budget_id = %(budget_id)s"""
REPORT = f"""
with stored as (update budget b set spent = spent + %(used)s, held = greatest(0, held + %(change)s)
       where budget_id = %(budget_id)s and b.xmin::text = %(version)s returning {_OF_B}),
 put as (insert into budget_slice as s (budget_id, writer, amount, number, beyond)
       select budget_id, %(writer)s, %(amount)s, %(number)s, %(beyond)s from stored
       on conflict (budget_id, writer) do update set amount = excluded.amount, number = excluded.number,
         beyond = excluded.beyond, seen_at = now())
select * from stored"""
EMPTY_SLICES = "update budget_slice set amount = 0, beyond = 0 where budget_id = %(budget_id)s"
DEAD_SLICES = """
select distinct budget_id from budget_slice
where amount > 0 and seen_at < now() - make_interval(secs => %(seconds)s) and budget_id = any(%(ids)s::int[])"""
# The number stays, so that a report which the process repeats is not spent twice if it lives after all.
RETURN_DEAD = """
with dead as materialized (select writer, amount from budget_slice
   where budget_id = %(budget_id)s and amount > 0 and seen_at < now() - make_interval(secs => %(seconds)s) for update),
 emptied as (update budget_slice s set amount = 0 from dead d where s.budget_id = %(budget_id)s and s.writer = d.writer)
update budget set held = greatest(0, held - coalesce((select sum(amount) from dead), 0)) where budget_id = %(budget_id)s"""
FORGET_SLICES = "delete from budget_slice where amount = 0 and seen_at < now() - make_interval(days => %(days)s)"

# `beyond`: what queued work and calls in flight can cost beyond what is held for them.
GAUGES = """
with queued as (select b.budget_id, sum(case b.unit when 'cost' then x.cost else x.tokens end) as beyond
   from unnest(%(lane)s::int[], %(cost)s::float8[], %(tokens)s::float8[]) x (lane_id, cost, tokens)
     join lane using (lane_id) join budget b on b.budget_id = any(lane.budget_ids) group by 1),
 calls as (select budget_id, sum(beyond)::float8 as beyond from budget_slice
   where seen_at > now() - make_interval(secs => %(dead_seconds)s) group by 1)
select 'budget_overshoot_bound', t.account_id || '/' || b.name, coalesce(q.beyond, 0) + coalesce(c.beyond, 0)
from budget b join tenant t using (tenant_id) left join queued q using (budget_id) left join calls c using (budget_id)
union all select 'budget_used_ratio', t.account_id || '/' || b.name, b.spent::float8 / b.max
from budget b join tenant t using (tenant_id)
union all select 'budget_held_ratio', t.account_id || '/' || b.name, b.held::float8 / b.max
from budget b join tenant t using (tenant_id)
union all select 'budget_overshoot', t.account_id || '/' || b.name, greatest(0, b.spent - b.max)::float8
from budget b join tenant t using (tenant_id)"""

# ---------------------------------------------------------------- lengths of answers

QUEUED_MODELS = """
select array_agg(distinct tenant_id), array_agg(distinct model) from line
where tenant_id in (select tenant_id from budget) and kind <> all(%(unqueued)s)"""
PUT_LENGTHS = """
insert into answer_length as a (tenant_id, workflow, task, model, p95, answers)
select * from unnest(%(tenant_id)s::int[], %(workflow)s::text[], %(task)s::text[], %(model)s::text[], %(p95)s::int[],
                     %(answers)s::int[]) x order by 1, 2, 3, 4
on conflict (tenant_id, workflow, task, model) do update set p95 = excluded.p95, answers = excluded.answers, learned_at = now()"""

FORGET = (
    "delete from answer_length where tenant_id = %(tenant_id)s",
    "delete from budget where tenant_id = %(tenant_id)s",
    "delete from lane where tenant_id = %(tenant_id)s",
)
