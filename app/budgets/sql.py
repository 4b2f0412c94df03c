"""The SQL of budgets: their rows, what is reserved for queued work, and by processes for synchronous requests.

Lock order: batch, usage, budget by id, chunk, sched. Every statement that changes several budgets locks them in the order of
their ids. Calls wait for a budget, so each is locked by a statement that is a transaction by itself, or by the last message of
one (`service.Writes`). What was decided on a budget that was read before holds only for the version that was read.
"""

from app.budgets.rules import COLUMNS, TERMS, Queued, Synchronous
from app.db.durability import RELAXED
from app.metering.lines import DOOR
from app.queue.fair_order_sql import MARK_LOWERED, WOKEN, chunks_by_account, free_accounts, is_free, waking
from app.queue.types import AMOUNTS, TOKENS, Kind
from app.queue.unreserved_sql import OPEN_POOLS, PAYABLE, counted, places
from app.states import CHUNK, ChunkState

_COLUMNS = ", ".join(COLUMNS)
_OF_B = ", ".join(f"b.{name}" for name in COLUMNS)

# Whether budget b counts the usage of line l. One of money counts only lines with a price in its currency.
_COUNTS = """b.tenant_id = l.tenant_id and (b.scope = 'account' or (b.scope = 'key' and b.scope_value = l.key_id)
  or (b.scope = 'workflow' and b.scope_value = l.workflow)) and (b.unit = 'tokens' or b.currency = l.currency)"""


def _cost(prompt: str, cached: str, output: str) -> str:
    """1000 times the cost of so many tokens on line l. Numeric: the sums of many results may exceed a bigint here."""
    return f"""(({prompt} - {cached})::numeric * coalesce(l.price_in, 0) + {cached}::numeric * coalesce(l.price_cached, 0)
       + {output}::numeric * coalesce(l.price_out, 0))"""


_COST = _cost("x.prompt", "x.cached", "x.output")

# What budget b has reserved for chunks that no worker has yet.
_TENTATIVE = f"""(select coalesce(sum(case b.unit when 'cost' then c.reserved_cost else c.reserved_tokens end), 0)::int8
  from chunk c where {CHUNK.guard("claim", "c.")} and c.reserved_tokens is not null and c.tenant_id = b.tenant_id
    and b.budget_id = any(c.budgets))"""

ANY = "select exists (select from budget)"
LIST = f"select {_OF_B}, {_TENTATIVE} from budget b where tenant_id = %(tenant_id)s order by name"
ALL = f"select {_COLUMNS} from budget order by budget_id"
ALL_SHOWN = f"select {_OF_B}, {_TENTATIVE} from budget b order by budget_id"
OF_IDS = f"select {_OF_B}, {_TENTATIVE} from budget b where budget_id = any(%(ids)s::int[]) order by budget_id"
VERSIONS = f"select {_COLUMNS}, xmin::text from budget where budget_id = any(%(ids)s::int[]) order by budget_id"
ONE = f"select {_OF_B}, {_TENTATIVE} from budget b where tenant_id = %(tenant_id)s and name = %(name)s"
ONE_AT_A_TIME = "select pg_advisory_xact_lock(hashtext('slackwater budget'), %(tenant_id)s)"  # of the verbs of owners
COUNT = "select count(*) from budget where tenant_id = %(tenant_id)s"
NOW = "select clock_timestamp()"
DELETE = "delete from budget where tenant_id = %(tenant_id)s and name = %(name)s"
FORGET = "delete from budget where tenant_id = %(tenant_id)s"

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
  spent_in = case when b.max = excluded.max or b.spent >= excluded.max then b.spent_in end"""
FROM_LEDGER = f"""
update budget b set notified = 0, spent_in = null, diverted_to = '{{}}', learned_used = 0, learned_maximum = 0,
  learned_tokens = 0, spent = coalesce((
  select case when b.unit = 'cost' then round(sum({_COST}) filter (where l.currency = b.currency) / 1000)
         else sum(x.prompt + x.output) end
  from (select hour, line_id, prompt, cached, output from usage where hour > b.window_from - interval '1 hour'
        union all
        select hour, line_id, prompt, cached, output from usage_day where hour >= b.window_from) x join line l using (line_id)
  where {_COUNTS} and l.kind <> '{DOOR}'), 0)
where b.tenant_id = %(tenant_id)s and b.name = %(name)s"""

DUE = f"select {_COLUMNS}, clock_timestamp() from budget where window_to <= clock_timestamp() order by budget_id"
TURN = """
update budget set spent = 0, notified = 0, diverted_to = '{}', window_from = %(window_from)s, window_to = %(window_to)s
where budget_id in (
  select budget_id from budget where budget_id = %(budget_id)s and window_from = %(before)s for update skip locked)"""

# Those of which something is to be written: a threshold that was reached, or that the money which had ended is renewed.
TO_NOTE = f"""
select {_COLUMNS} from budget where spent_in <> window_from or (spent >= max and spent_in is distinct from window_from)
  or exists (select from unnest(alerts_at) x (at) where at > notified and spent::numeric * 100 >= max::numeric * at)
order by budget_id"""
NOTED = """
with noted as materialized (select b.budget_id, x.notified, x.spent_in
       from unnest(%(ids)s::int[], %(windows)s::timestamptz[], %(notified)s::int2[], %(spent_in)s::timestamptz[])
         x (budget_id, window_from, notified, spent_in) join budget b using (budget_id, window_from)
       order by b.budget_id for update of b)
update budget b set notified = x.notified, spent_in = x.spent_in from noted x where b.budget_id = x.budget_id"""
DIVERTED = """
update budget set diverted_to = array_append(diverted_to, %(model)s)
where budget_id = %(budget_id)s and not %(model)s = any(diverted_to)"""

BUDGETS_OF_LINES = f"""
select l.line_id, l.tenant_id, l.price_in, l.price_cached, l.price_out, l.currency, a.p95, {_OF_B}
from line l join budget b on {_COUNTS} and b.queued <> '{Queued.ALERT}' left join answer_length a
  on a.tenant_id = l.tenant_id and a.workflow = l.workflow and a.task = l.task and a.model = l.model
where l.line_id = any(%(line_ids)s::int[]) order by l.line_id, b.budget_id"""
SCOPES = """
select tenant_id, array_agg(concat_ws(':', budget_id, scope, scope_value, unit, currency, queued) order by budget_id)
from budget group by 1"""

# Per cent that is spent of the fullest budget that counts and limits the queued work of each of these lines, and its id.
SPENT_SHARES = f"""
select distinct on (l.line_id) l.line_id, b.spent::float8 * 100 / b.max as percent, b.budget_id
from line l join budget b on {_COUNTS} and b.queued <> '{Queued.ALERT}'
where l.line_id = any(%(line_ids)s::int[]) order by l.line_id, percent desc, b.budget_id"""

ACCOUNTS = "select distinct tenant_id from chunk where budgets is not null"

# ---------------------------------------------------------------- what is spent and reserved

_AMOUNT = "case b.unit when 'cost' then x.cost else x.tokens end"
# Turns the budgets whose window was over when the results were read, spends what these have cost, and returns what was reserved
# for them. Learns what share of the most the results use. If the window was turned by somebody else since the statement began,
# the results are of the one before. Results of a turned budget that are older than its new window are, too.
SETTLE = f"""
with turned as (select *
   from unnest(%(turned)s::int[], %(ended)s::timestamptz[], %(begins)s::timestamptz[], %(ends)s::timestamptz[])
     x (id, ended, begins, ends)),
 used as (select x.at, x.prompt, x.output, l.*, ({_COST} / 1000) as cost
   from unnest(%(at)s::timestamptz[], %(used_line)s::int[], %(used_prompt)s::int8[], %(used_cached)s::int8[],
               %(used_output)s::int8[])
     x (at, line_id, prompt, cached, output) join line l using (line_id)),
 spends as (select b.budget_id as id, coalesce(t.begins, b.window_from) as begins,
     round(sum(case b.unit when 'tokens' then l.prompt + l.output else l.cost end))::int8 as amount
   from used l join budget b on {_COUNTS} left join turned t on t.id = b.budget_id
   where l.at >= coalesce(t.begins, b.window_from) group by 1, 2),
 returned as (select x.*, x.prompt + x.output as used, {_COST} / 1000 as used_cost
   from unnest(%(budgets)s::text[], %(line_id)s::int[], %(cost)s::int8[], %(tokens)s::int8[], %(prompt)s::int8[],
               %(cached)s::int8[], %(output)s::int8[], %(maximum_cost)s::int8[], %(maximum_tokens)s::int8[])
     x (budgets, line_id, cost, tokens, prompt, cached, output, maximum_cost, maximum_tokens) left join line l using (line_id)),
 returns as (select b.budget_id as id, sum({_AMOUNT})::int8 as amount,
     coalesce(sum(case b.unit when 'cost' then x.used_cost else x.used end), 0) as used,
     coalesce(sum(case b.unit when 'cost' then x.maximum_cost else x.maximum_tokens end), 0) as maximum,
     coalesce(sum(x.maximum_tokens), 0) as tokens
   from returned x join budget b on b.budget_id = any(x.budgets::int[]) group by 1),
 locked as materialized (select b.budget_id from budget b
   where b.budget_id in (select id from turned union select id from spends union select id from returns)
   order by b.budget_id for update),
 sums as (select k.budget_id, t.ended, t.begins, t.ends, s.begins as spent_from, s.amount as spent, coalesce(r.amount, 0) as back,
     r.used, coalesce(r.maximum, 0) as maximum, r.tokens,
     exp(-extract(epoch from now() - b.learned_at) / 86400)::float8 as left_over
   from locked k join budget b using (budget_id) left join turned t on t.id = k.budget_id left join spends s on s.id = k.budget_id
     left join returns r on r.id = k.budget_id)
update budget b set
  spent = case when b.window_from = k.ended then 0 else b.spent end
          + case when k.spent_from in (b.window_from, k.begins) then k.spent else 0 end,
  notified = case when b.window_from = k.ended then 0 else b.notified end,
  diverted_to = case when b.window_from = k.ended then '{{}}' else b.diverted_to end,
  window_from = case when b.window_from = k.ended then k.begins else b.window_from end,
  window_to = case when b.window_from = k.ended then k.ends else b.window_to end,
  reserved = greatest(0, b.reserved - k.back),
  learned_used = case when k.maximum > 0 then b.learned_used * k.left_over + k.used else b.learned_used end,
  learned_maximum = case when k.maximum > 0 then b.learned_maximum * k.left_over + k.maximum else b.learned_maximum end,
  learned_tokens = case when k.maximum > 0 then b.learned_tokens * k.left_over + k.tokens else b.learned_tokens end,
  learned_at = case when k.maximum > 0 then now() else b.learned_at end
from sums k where b.budget_id = k.budget_id"""

# What queued work has reserved, and what it can cost and use beyond that: ready and leased chunks, and stored results that are
# not counted yet. Those that a lost worker stored are also of chunks for which nothing is reserved now; these were leased twice
# at least, so the index of returned chunks has them.
_STORED = f"""{_cost(*(f"x.{name}" for name in TOKENS))} / 1000"""
_LINE_OF_X = "join batch t using (batch_id) left join line l on l.line_id = coalesce(x.line_id, t.line_id)"
_RESERVED = f"""
  select x.budgets, x.reserved_cost as cost, x.reserved_tokens as tokens,
         greatest(0, greatest(x.maximum_cost, {_STORED}) - x.reserved_cost) as beyond_cost,
         greatest(0, greatest(x.maximum_tokens, x.prompt_tokens + x.completion_tokens) - x.reserved_tokens) as beyond_tokens
  from chunk x {_LINE_OF_X} where {CHUNK.guard("claim", "x.")} and x.reserved_tokens is not null
  union all
  select budgets, reserved_cost, reserved_tokens, greatest(0, maximum_cost - reserved_cost),
         greatest(0, maximum_tokens - reserved_tokens)
  from chunk where {CHUNK.guard("finish")} and reserved_tokens is not null
  union all
  select x.budgets, 0, 0, {_STORED}, x.prompt_tokens + x.completion_tokens from chunk x {_LINE_OF_X}
  where not ({CHUNK.guard("finish", "x.")}) and x.token > 1 and x.prompt_tokens is not null and x.reserved_tokens is null
    and x.budgets is not null
  union all
  select x.budgets, coalesce(x.reserved_cost, 0), coalesce(x.reserved_tokens, 0),
         greatest(0, greatest(x.maximum_cost, {_STORED}) - coalesce(x.reserved_cost, 0)),
         greatest(0, greatest(x.maximum_tokens, x.prompt_tokens + x.completion_tokens) - coalesce(x.reserved_tokens, 0))
  from batch_delta x {_LINE_OF_X} where x.budgets is not null"""

# Sets `reserved` to what chunks, uncounted deltas and processes have. Whatever changes that changes the budget, too, so a budget
# that is still in the version which the sums are of has had no change since. One that changes all the time is left for later.
RECOUNT = f"""
with queued as (select b.budget_id, sum({_AMOUNT})::int8 as amount
   from ({_RESERVED}) x join budget b on b.budget_id = any(x.budgets) group by 1),
 calls as (select budget_id, sum(amount)::int8 as amount from reservation group by 1),
 found as materialized (select b.budget_id, b.reserved as before, b.xmin::text as version,
     coalesce(q.amount, 0) + coalesce(c.amount, 0) as reserved
   from budget b left join queued q using (budget_id) left join calls c using (budget_id)
   where %(only)s::text is null or (b.tenant_id = %(tenant_id)s and b.name = %(only)s)),
 drifting as materialized (select x.* from found x join budget b using (budget_id)
   where x.reserved <> x.before and b.xmin::text = x.version order by budget_id for update of b skip locked)
update budget b set reserved = x.reserved from drifting x where b.budget_id = x.budget_id
returning b.tenant_id, b.name, x.reserved - x.before"""

# Where money is reserved for queued work and for calls, so that there is a bound.
_RESERVES = f"b.queued <> '{Queued.ALERT}' and b.synchronous <> '{Synchronous.ALERT}'"
# `beyond`: what queued work and calls in flight can cost beyond what is reserved for them. Chunks that wait for their turn, or
# whose model has no engine, do not wait for money.
GAUGES = f"""
with recursive{PAYABLE},
 waiting as (select budgets, pool_id, tenant_id from groups except select budgets, pool_id, tenant_id from payable),
 queued as (select b.budget_id, sum(case b.unit when 'cost' then x.beyond_cost else x.beyond_tokens end)::float8 as beyond
   from ({_RESERVED}) x join budget b on b.budget_id = any(x.budgets) group by 1),
 calls as (select budget_id, sum(beyond)::float8 as beyond from reservation
   where seen_at > now() - make_interval(secs => %(dead_seconds)s) group by 1)
select 'budget_overshoot_bound', t.account_id || '/' || b.name, coalesce(q.beyond, 0) + coalesce(c.beyond, 0)
from budget b join tenant t using (tenant_id) left join queued q using (budget_id) left join calls c using (budget_id)
where {_RESERVES}
union all select 'budget_spent_ratio', t.account_id || '/' || b.name, b.spent::float8 / b.max
from budget b join tenant t using (tenant_id)
union all select 'budget_reserved_ratio', t.account_id || '/' || b.name, (b.reserved - {_TENTATIVE})::float8 / b.max
from budget b join tenant t using (tenant_id)
union all select 'budget_overshoot', t.account_id || '/' || b.name, greatest(0, b.spent - b.max)::float8
from budget b join tenant t using (tenant_id) where {_RESERVES}
union all select 'unreserved_chunks', p.model, coalesce(sum(x.n), 0)::float8
from pool p left join {counted("waiting")} x using (pool_id) group by 2"""

# ---------------------------------------------------------------- what processes reserve for synchronous requests

# A report is planned with what was read, and stored if the budget has not changed since: whatever changes what a process has
# reserved changes its budget, too. So nobody waits for a process that stops in between.
READ_RESERVATION = f"""
select {_OF_B}, {_TENTATIVE}, b.window_to <= clock_timestamp(), b.xmin::text, coalesce(own.amount, 0), coalesce(own.number, 0),
  (select coalesce(sum(amount), 0)::int8 from reservation x where x.budget_id = b.budget_id)
from budget b left join reservation own on own.budget_id = b.budget_id and own.writer = %(writer)s
where b.budget_id = %(budget_id)s"""
REPORT = f"""
with stored as (update budget b set spent = spent + %(used)s, reserved = greatest(0, reserved + %(change)s)
       where budget_id = %(budget_id)s and b.xmin::text = %(version)s returning {_OF_B}),
 put as (insert into reservation as s (budget_id, writer, amount, number, beyond)
       select budget_id, %(writer)s, %(amount)s, %(number)s, %(beyond)s from stored
       on conflict (budget_id, writer) do update set amount = excluded.amount, number = excluded.number,
         beyond = excluded.beyond, seen_at = now())
select * from stored"""


def _taking(*, which: str, own: str, told: str, still: str) -> str:
    """CTEs that take back what is reserved for chunks `which` no worker has yet, those with the last deadlines first, while
    `still` holds of what those `before` had. `own`: further budgets to lock; `told`: a condition on what is locked. Each lock
    waits only for those that are taken in the same order: budgets, chunks, accounts.
    """
    tentative = f"""{CHUNK.guard("claim", "c.")} and c.reserved_tokens is not null and c.tenant_id = %(tenant_id)s"""
    return f"""
with candidates as materialized (select c.chunk_id, c.budgets from chunk c where {tentative} and {which}
       order by c.deadline desc, c.chunk_id desc limit {_MOST_TAKEN}),
 locked as materialized (select b.budget_id, b.unit, b.xmin::text as version from budget b
       where {own} or b.budget_id in (select unnest(x.budgets) from candidates x) order by b.budget_id for update),
 found as materialized (select c.* from chunk c join candidates using (chunk_id) where {tentative} and {told}
       order by c.deadline desc, c.chunk_id desc for update of c skip locked),
 amounts as (select f.*, case %(unit)s::text when 'cost' then reserved_cost else reserved_tokens end as amount from found f),
 taken as materialized (select * from (
       select a.*, sum(amount) over (order by deadline desc, chunk_id desc) - amount as before from amounts a) x
       where {still}),
 unreserved as (update chunk c set state = '{CHUNK.target("take back")}', reserved_cost = null, reserved_tokens = null,
              short = true
       from taken t where c.chunk_id = t.chunk_id),
 accounts as materialized (select s.pool_id, s.tenant_id, x.n from sched s
         join (select pool_id, tenant_id, count(*)::int as n from taken group by 1, 2) x using (pool_id, tenant_id)
       order by s.pool_id, s.tenant_id for update of s),
 recounted as (update sched s set ready = s.ready - a.n
       from accounts a where s.pool_id = a.pool_id and s.tenant_id = a.tenant_id),
 freed as (select l.budget_id, sum(case l.unit when 'cost' then t.reserved_cost else t.reserved_tokens end)::int8 as amount
       from taken t join locked l on l.budget_id = any(t.budgets) group by 1)"""


_MOST_TAKEN = 256
_TOLD = "exists (select from locked where budget_id = %(budget_id)s and version = %(version)s)"

# The same as REPORT, with what is missing taken back.
_FOR_REPORT = _taking(
    which="%(budget_id)s = any(c.budgets)",
    own="b.budget_id = %(budget_id)s",
    told=_TOLD,
    still="before < %(missing)s",
)
REPORT_TAKING = f"""{_FOR_REPORT},
 got as (select least(%(missing)s, coalesce((select amount from freed where budget_id = %(budget_id)s), 0)) as amount),
 stored as (update budget b set
       spent = b.spent + case b.budget_id when %(budget_id)s then %(used)s else 0 end,
       reserved = greatest(0, b.reserved - coalesce((select amount from freed f where f.budget_id = b.budget_id), 0)
                              + case b.budget_id when %(budget_id)s then %(change)s + g.amount else 0 end)
       from locked l, got g where b.budget_id = l.budget_id and {_TOLD} returning {_OF_B}),
 put as (insert into reservation as s (budget_id, writer, amount, number, beyond)
       select budget_id, %(writer)s, %(amount)s + g.amount, %(number)s, %(beyond)s from stored, got g
       where budget_id = %(budget_id)s
       on conflict (budget_id, writer) do update set amount = excluded.amount, number = excluded.number,
         beyond = excluded.beyond, seen_at = now())
select stored.*, got.amount from stored, got where budget_id = %(budget_id)s"""

# Takes back from pools without an engine, and what no worker has claimed for a while in another pool than the one that needs it.
_NOT_BEGINNING = """c.budgets && %(budgets)s::int[] and (c.pool_id <> all(%(open)s::int2[])
         or (c.pool_id <> %(pool_id)s and c.reserved_at < now() - make_interval(secs => %(seconds)s)))"""
_ALL_FOUND = _taking(which=_NOT_BEGINNING, own="false", told="(select count(*) from locked) > 0", still="true")
TAKE_BACK = f"""{_ALL_FOUND},
 returned as (update budget b set reserved = greatest(0, b.reserved - f.amount) from freed f where b.budget_id = f.budget_id)
select budgets, pool_id, count(*)::int from taken where {RELAXED} group by 1, 2"""

EMPTY = """
update reservation r set amount = 0, beyond = 0 from budget b
where r.budget_id = b.budget_id and b.tenant_id = %(tenant_id)s and b.name = %(name)s"""
DEAD = """
select distinct budget_id from reservation
where amount > 0 and seen_at < now() - make_interval(secs => %(seconds)s) order by budget_id"""
# The number stays, so that a report which the process repeats is not spent twice if it lives after all.
RETURN_DEAD = """
with locked as materialized (select budget_id from budget where budget_id = %(budget_id)s for update skip locked),
 dead as materialized (select writer, amount from reservation join locked using (budget_id)
   where amount > 0 and seen_at < now() - make_interval(secs => %(seconds)s) for update of reservation),
 emptied as (update reservation s set amount = 0 from dead d where s.budget_id = %(budget_id)s and s.writer = d.writer)
update budget b set reserved = greatest(0, reserved - coalesce((select sum(amount) from dead), 0))
from locked where b.budget_id = locked.budget_id"""
FORGET_DEAD = "delete from reservation where amount = 0 and seen_at < now() - make_interval(days => %(days)s)"

# ---------------------------------------------------------------- reserve for queued work


_HERE = "budgets = %(budgets)s::int[] and pool_id = %(pool_id)s"
_UNRESERVED = f"{CHUNK.guard('reserve')} and {_HERE}"

# Where chunks wait for money.
WAITING = f"""
with recursive{places("tenant_id, short")}
select budgets, pool_id, tenant_id, short is true from places order by deadline, budgets, pool_id"""

# The first chunk of each of these places without an engine, with what `_SUMS` adds up.
ASKING = f"""
with recursive{places(f"est_tokens, n, {', '.join(AMOUNTS)}")}
select budgets, pool_id, deadline, est_tokens, n, maximum_cost, maximum_tokens, coalesce(expected_cost, maximum_cost),
       coalesce(expected_tokens, maximum_tokens)
from places where pool_id not in ({OPEN_POOLS}) order by deadline, budgets, pool_id"""

READY = f"""
select count(*) from chunk
where {CHUNK.guard("claim")} and reserved_tokens is not null and tenant_id = %(tenant_id)s and {_HERE}"""


def _size(unit: str) -> str:
    """What is reserved for a chunk. A single item cannot be cut, so it takes at most the largest. Null: no limit."""
    share = f"(maximum_{unit} * %(per_mille)s + 999) / 1000"
    expected = f"case when not %(whole)s then expected_{unit} end"
    return f"least({share}, {expected}, case when n = 1 and not %(whole)s then %(largest_{unit})s::int8 end)"


_SIZES = f"{_size('cost')} as cost, {_size('tokens')} as tokens"

# `ids`: those of the budgets that still exist. Nothing is reserved, and the first column is false, if one of them has changed
# since it was read, or is locked. The first chunk that gets nothing beside others is short.
RESERVE = f"""
with locked as materialized (select b.budget_id from budget b
       join unnest(%(ids)s::int[], %(versions)s::text[]) x (budget_id, version) using (budget_id)
       where b.xmin::text = x.version order by b.budget_id for update of b skip locked),
 unchanged as (select count(*) = cardinality(%(ids)s::int[]) as held from locked),
 waiting as materialized (select chunk_id, deadline, {_SIZES} from chunk
       where {_UNRESERVED} and (select held from unchanged) order by deadline, chunk_id limit %(places)s for update skip locked),
 sums as (select chunk_id, deadline, cost, tokens, sum(cost) over w as all_cost, sum(tokens) over w as all_tokens
       from waiting window w as (order by deadline, chunk_id)),
 reserved as (update chunk c set state = '{CHUNK.target("reserve")}', reserved_cost = s.cost, reserved_tokens = s.tokens,
              reserved_at = now(), short = null
       from sums s where c.chunk_id = s.chunk_id and s.all_cost <= %(free_cost)s and s.all_tokens <= %(free_tokens)s
       returning c.pool_id, c.tenant_id, c.reserved_cost, c.reserved_tokens, c.deadline, c.chunk_id),
 noted as (update chunk c set short = true
       from (select chunk_id from sums where all_cost > %(free_cost)s or all_tokens > %(free_tokens)s
             order by deadline, chunk_id limit 1) s
       where c.chunk_id = s.chunk_id and exists (select from reserved)),
 together as (select sum(reserved_cost)::int8 as cost, sum(reserved_tokens)::int8 as tokens from reserved having count(*) > 0),
 counted as (update budget b set reserved = b.reserved + case b.unit when 'cost' then x.cost else x.tokens end
       from locked k, together x where b.budget_id = k.budget_id),
{waking(chunks_by_account("reserved"))},
 awoken as (update sched s set ready = s.ready + x.n, vtime = {WOKEN}, {MARK_LOWERED}
       from changes x where s.pool_id = x.pool_id and s.tenant_id = x.tenant_id)
select held, (select count(*) from reserved) from unchanged"""

# The first chunk that waits, with what would be reserved for it, and whether it is known to be short of that.
FIRST = f"""
select chunk_id, n, {_SIZES}, short is true from chunk where {_UNRESERVED} order by deadline, chunk_id limit 1"""
NOTE_SHORT = (
    f"update chunk set short = nullif(%(short)s, false) where chunk_id = %(chunk_id)s and {CHUNK.guard('reserve')}"
)
NOTE_FIRST_SHORT = f"""
update chunk set short = true where {CHUNK.guard("reserve")} and chunk_id = (
  select chunk_id from chunk where {_UNRESERVED} order by deadline, chunk_id limit 1)"""

# Each item becomes a chunk, with its share of the amounts by its estimate. What a lost worker stored stays counted.
_PART = "ceil(w.{0}::numeric * i.est_tokens / t.est_tokens)"
CUT = f"""
with whole as (delete from chunk where chunk_id = %(chunk_id)s and {CHUNK.guard("cut")} returning *),
 items as (select x.seq, greatest(1, p.est_tokens) as est_tokens, r.*
       from whole w cross join lateral unnest(coalesce(w.seqs, array(select generate_series(w.lo, w.hi)))) x (seq)
       cross join lateral (select est_tokens from item_payload
         where batch_id = w.batch_id and seq = x.seq limit 1) p
       left join lateral (select ok, {", ".join(TOKENS)} from item_result
         where batch_id = w.batch_id and seq = x.seq and run = w.run limit 1) r on true)
insert into chunk (batch_id, run, tenant_id, pool_id, lo, hi, n, est_tokens, deadline, state, attempt, deaths, retries,
                   charged_for, excused, token, done, failed, {", ".join(TOKENS)}, line_id, budgets, {", ".join(AMOUNTS)})
select w.batch_id, w.run, w.tenant_id, w.pool_id, i.seq, i.seq, 1, i.est_tokens, w.deadline, '{ChunkState.UNRESERVED}', w.attempt,
       w.deaths, w.retries, w.charged_for, w.excused, w.token, coalesce(i.ok, 0), coalesce(1 - i.ok, 0),
       {", ".join(f"i.{name}" for name in TOKENS)}, w.line_id, w.budgets,
       {", ".join(_PART.format(name) for name in AMOUNTS)}
from whole w, items i, (select sum(est_tokens) as est_tokens from items) t"""

# ---------------------------------------------------------------- settlement

# Tokens of the taken deltas by line and quarter of an hour, since the windows of all time zones begin at one.
USED = """
select date_bin('15 minutes', d.at, 'epoch'), coalesce(d.line_id, b.line_id), sum(d.prompt_tokens)::int8,
       sum(d.cached_tokens)::int8, sum(d.completion_tokens)::int8
from batch_delta d join batch b using (batch_id)
where d.delta_id = any(%(ids)s) and d.ok + d.failed > 0 and coalesce(d.line_id, b.line_id) is not null group by 1, 2"""

RETURNED = """
select budgets::text, line_id, coalesce(sum(reserved_cost), 0)::int8, coalesce(sum(reserved_tokens), 0)::int8,
       coalesce(sum(prompt_tokens) filter (where maximum_tokens > 0), 0)::int8,
       coalesce(sum(cached_tokens) filter (where maximum_tokens > 0), 0)::int8,
       coalesce(sum(completion_tokens) filter (where maximum_tokens > 0), 0)::int8,
       coalesce(sum(maximum_cost), 0)::int8, coalesce(sum(maximum_tokens), 0)::int8
from batch_delta where delta_id = any(%(ids)s) and budgets is not null group by budgets, line_id"""

# ---------------------------------------------------------------- other budgets

LINES = """
select distinct coalesce(c.line_id, b.line_id) from chunk c join batch b using (batch_id)
where c.tenant_id = %(tenant_id)s and coalesce(c.line_id, b.line_id) is not null"""

UNDER_OTHERS = """
select exists (select from chunk c join batch b using (batch_id)
  join unnest(%(line_id)s::int[], %(budgets)s::text[]) x (line_id, budgets) on x.line_id = coalesce(c.line_id, b.line_id)
  where c.tenant_id = %(tenant_id)s and c.budgets is distinct from x.budgets::int[])"""

_CHANGE = f"""select pool_id, tenant_id, sum((new_state = '{ChunkState.READY}')::int - (state = '{ChunkState.READY}')::int) as n,
         min(deadline) filter (where new_state = '{ChunkState.READY}') as deadline,
         min(chunk_id) filter (where new_state = '{ChunkState.READY}') as chunk_id
         from moved where new_state <> state group by 1, 2"""

# Gives chunks the budgets of their lines. A ready chunk returns what was reserved for it, and waits for money of its new budgets;
# one that has none any more becomes ready. Of a chunk that had none before only the estimate is known: it may be all prompt, of
# which a token may be one byte, and its answer may fill the context window if it has no limit.
MOVE = f"""
with lines as (select line_id, budgets::int[] as budgets, price, context_window
       from unnest(%(line_id)s::int[], %(budgets)s::text[], %(price)s::int8[], %(context_window)s::int8[])
         x (line_id, budgets, price, context_window)),
 found as materialized (
       select c.*, x.budgets as new_budgets, x.price, c.n * x.context_window::numeric as widest, b.open_ended,
              case when x.budgets is null and {CHUNK.guard("free", "c.")} then '{CHUNK.target("free")}'
                   when x.budgets is not null and {CHUNK.guard("move", "c.")} then '{CHUNK.target("move")}'
                   else c.state end as new_state
       from chunk c join batch b using (batch_id) join lines x on x.line_id = coalesce(c.line_id, b.line_id)
       where c.tenant_id = %(tenant_id)s and not ({CHUNK.guard("finish", "c.")}) and c.budgets is distinct from x.budgets
       order by c.chunk_id limit %(limit)s for update of c skip locked),
{free_accounts("found")},
 moved as materialized (select * from found where {is_free("found")}),
 sizes as (select chunk_id, coalesce(expected_tokens, est_tokens) as expected,
              coalesce(maximum_tokens, case when open_ended then widest end, least(4 * est_tokens::int8, widest)) as most
       from moved),
 returned as (insert into batch_delta (batch_id, ok, failed, prompt_tokens, cached_tokens, completion_tokens, budgets,
                                       reserved_cost, reserved_tokens)
       select batch_id, 0, 0, 0, 0, 0, budgets, sum(reserved_cost), sum(reserved_tokens)
       from moved where reserved_tokens is not null group by batch_id, budgets),
 changed as (update chunk c set budgets = m.new_budgets, reserved_cost = null, reserved_tokens = null, reserved_at = null,
              state = m.new_state,
              maximum_tokens = s.most, maximum_cost = coalesce(nullif(m.maximum_cost, 0), s.most * m.price / 1000),
              expected_tokens = s.expected, expected_cost = coalesce(nullif(m.expected_cost, 0), s.expected * m.price / 1000)
       from moved m join sizes s using (chunk_id) where c.chunk_id = m.chunk_id),
{waking(_CHANGE)},
 recounted as (update sched s set ready = s.ready + x.n, vtime = case when x.n > 0 then {WOKEN} else s.vtime end,
              {MARK_LOWERED}
       from changes x where s.pool_id = x.pool_id and s.tenant_id = x.tenant_id)
select count(*) from moved"""

# ---------------------------------------------------------------- another model

LINES_WAITING = f"""
select distinct c.line_id, b.expires_at is not null from (select line_id, batch_id from chunk where {_UNRESERVED}
  order by deadline, chunk_id limit %(limit)s) c join batch b using (batch_id) where c.line_id is not null"""

LOCK_BATCHES = f"""
select batch_id from batch where batch_id in (
  select batch_id from (select batch_id from chunk where {_UNRESERVED} order by deadline, chunk_id limit %(limit)s) c)
order by batch_id for no key update"""

# Only chunks without any result, so that each chunk has the line of the model that answers it. An answer without a limit may fill
# the context window, which may be `wider` than before. The cost is at most that of all tokens at the dearer price, and at most
# `ratio` times what it was.
_WIDER = "case when b.open_ended then c.n * %(wider)s else 0 end"
DIVERT = f"""
with moved as materialized (
       select c.* from chunk c join batch b using (batch_id)
       where {CHUNK.guard("divert", "c.")} and c.budgets = %(budgets)s::int[] and c.pool_id = %(pool_id)s
         and c.line_id = %(line_id)s and (b.expires_at is not null) = %(expires)s
         and b.kind = '{Kind.BATCH}' and c.done + c.failed = 0 and c.batch_id = any(%(batch_ids)s)
       order by c.deadline, c.chunk_id limit %(limit)s for update of c skip locked),
 items as (select m.chunk_id, m.batch_id, x.seq from moved m
       cross join lateral unnest(coalesce(m.seqs, array(select generate_series(m.lo, m.hi)))) x (seq)),
 fitting as (select chunk_id from moved m where not exists (
       select from items i join item_payload p on p.batch_id = i.batch_id and p.seq = i.seq
       where i.chunk_id = m.chunk_id and p.est_tokens > %(context_window)s)),
 named as (update item_payload p set model = %(model)s, line_id = %(to_line)s from items i join fitting using (chunk_id)
       where p.batch_id = i.batch_id and p.seq = i.seq),
 diverted as (update chunk c set pool_id = %(to_pool)s, line_id = %(to_line)s, budgets = %(to_budgets)s::int[],
              maximum_tokens = c.maximum_tokens + {_WIDER},
              maximum_cost = least(ceil((c.maximum_tokens + {_WIDER})::numeric * %(dearest)s / 1000),
                ceil(c.maximum_cost * %(ratio)s::numeric + ({_WIDER})::numeric * %(dearest)s / 1000), 9e18::numeric)::int8,
              expected_cost = least(ceil(c.expected_tokens::numeric * %(dearest)s / 1000),
                ceil(c.expected_cost * %(ratio)s::numeric), 9e18::numeric)::int8
       from fitting f, batch b where c.chunk_id = f.chunk_id and b.batch_id = c.batch_id returning c.n, c.batch_id),
 noted as (update batch set diverted_to = array_append(diverted_to, %(model)s)
       where batch_id in (select batch_id from diverted) and not %(model)s = any(coalesce(diverted_to, '{{}}')))
select count(*), coalesce(sum(n), 0)::int8 from diverted"""

# ---------------------------------------------------------------- what a batch waits for

# By the budgets of a batch's unreserved chunks: what these may use, and are expected to; the same of them and those before them;
# and what is reserved for chunks before them that no worker has yet.
_SUMS = """coalesce(sum(maximum_cost), 0) as maximum_cost, coalesce(sum(maximum_tokens), 0) as maximum_tokens,
       coalesce(sum(coalesce(expected_cost, maximum_cost)), 0) as expected_cost,
       coalesce(sum(coalesce(expected_tokens, maximum_tokens)), 0) as expected_tokens, coalesce(sum(n), 0) as items"""
BEFORE = f"""
select own.budgets, {", ".join(f"sum({of}.{name})::int8" for of in ("own", "before") for name in AMOUNTS)},
       sum(tentative.cost)::int8, sum(tentative.tokens)::int8, sum(own.items)::int8, sum(before.items)::int8
from (select budgets, pool_id, tenant_id, max(deadline) as deadline, max(chunk_id) as chunk_id, {_SUMS} from chunk
      where batch_id = %(batch_id)s and {CHUNK.guard("reserve")} group by 1, 2, 3) own
cross join lateral (select {_SUMS} from (select n, {", ".join(AMOUNTS)} from chunk c
  where {CHUNK.guard("reserve", "c.")} and c.budgets = own.budgets and c.pool_id = own.pool_id
    and (c.deadline, c.chunk_id) <= (own.deadline, own.chunk_id)
  order by c.deadline, c.chunk_id limit 10000) c) before
cross join lateral (select coalesce(sum(reserved_cost), 0) as cost, coalesce(sum(reserved_tokens), 0) as tokens from chunk c
  where {CHUNK.guard("claim", "c.")} and c.reserved_tokens is not null and c.tenant_id = own.tenant_id
    and c.budgets = own.budgets and c.pool_id = own.pool_id
    and (c.deadline, c.chunk_id) < (own.deadline, own.chunk_id)) tentative
group by 1"""
