"""The SQL by which the steward funds chunks: an unfunded chunk becomes ready once its budgets hold money for it.

`app.metering.budgets` has the budgets; their rows are locked before these statements run.
Lock order: batch, usage, budget, chunk, sched.
"""

from app.queue.fair_order_sql import MARK_LOWERED, WOKEN, free_accounts, is_free, waking
from app.queue.holds_sql import HELD_COST, HELD_TOKENS, hold
from app.queue.types import Kind
from app.states import CHUNK, ChunkState

# One row for each lane and pool in which chunks wait for money: its first chunk. The index is entered once for each.
WAITING = f"""
with recursive waiting as (
  (select lane, pool_id, tenant_id, deadline from chunk where {CHUNK.guard("fund")}
   order by lane, pool_id, deadline, chunk_id limit 1)
  union all
  select f.* from waiting w cross join lateral (
    select lane, pool_id, tenant_id, deadline from chunk where {CHUNK.guard("fund")} and (lane, pool_id) > (w.lane, w.pool_id)
    order by lane, pool_id, deadline, chunk_id limit 1) f)
select lane, pool_id, tenant_id from waiting order by deadline, lane, pool_id"""

READY = f"""
select count(*) from chunk where held is not null and lane = %(lane)s and pool_id = %(pool_id)s and {CHUNK.guard("claim")}"""

# The per mille of the worst that a hold takes. A single item cannot be cut, so its hold is at most the largest one.
_SHARE = """case when %(strict)s then 1000 else greatest(1, least(%(per_mille)s::int, likely,
    case when n = 1 then floor(%(largest_cost)s::numeric * 1000 / nullif(worst, 0)) end,
    case when n = 1 then floor(%(largest_tokens)s::numeric * 1000 / nullif(worst_tokens, 0)) end)) end::int8"""

FUND = f"""
with waiting as materialized (
       select chunk_id, deadline, worst, worst_tokens, {_SHARE} as share from chunk
       where {CHUNK.guard("fund")} and lane = %(lane)s and pool_id = %(pool_id)s
       order by deadline, chunk_id limit %(places)s for update skip locked),
 sums as (select chunk_id, share, sum({hold("worst", "share")}) over w as cost,
              sum({hold("worst_tokens", "share")}) over w as tokens
       from waiting window w as (order by deadline, chunk_id)),
 funded as (update chunk c set state = '{CHUNK.target("fund")}', held = s.share from sums s
       where c.chunk_id = s.chunk_id and s.cost <= %(free_cost)s and s.tokens <= %(free_tokens)s
       returning c.worst, c.worst_tokens, c.held, c.deadline, c.chunk_id)
select count(*), coalesce(sum({HELD_COST}), 0)::int8, coalesce(sum({HELD_TOKENS}), 0)::int8, min(deadline), min(chunk_id)
from funded"""

# The first chunk of a lane that waits, with its hold.
FIRST = f"""
select chunk_id, n, {hold("worst", "share")}, {hold("worst_tokens", "share")} from (
  select chunk_id, n, worst, worst_tokens, {_SHARE} as share from chunk
  where {CHUNK.guard("fund")} and lane = %(lane)s and pool_id = %(pool_id)s order by deadline, chunk_id limit 1) c"""

# Each item becomes a chunk, with its share of the worst by its estimate. What a lost worker stored stays counted.
CUT = f"""
with whole as (delete from chunk where chunk_id = %(chunk_id)s and {CHUNK.guard("cut")} returning *),
 items as (select x.seq, greatest(1, p.est_tokens) as est_tokens, r.ok
       from whole w cross join lateral unnest(coalesce(w.seqs, array(select generate_series(w.lo, w.hi)))) x (seq)
       cross join lateral (select est_tokens from item_payload
         where batch_id = w.batch_id and seq = x.seq limit 1) p
       left join lateral (select ok from item_result
         where batch_id = w.batch_id and seq = x.seq and run = w.run limit 1) r on true)
insert into chunk (batch_id, run, tenant_id, pool_id, lo, hi, n, est_tokens, deadline, state, attempt, deaths, retries,
                   charged_for, excused, token, done, failed, line_id, lane, worst, worst_tokens, likely)
select w.batch_id, w.run, w.tenant_id, w.pool_id, i.seq, i.seq, 1, i.est_tokens, w.deadline, '{ChunkState.UNFUNDED}', w.attempt,
       w.deaths, w.retries, w.charged_for, w.excused, w.token, coalesce(i.ok, 0), coalesce(1 - i.ok, 0), w.line_id, w.lane,
       ceil(w.worst::numeric * i.est_tokens / t.est_tokens), ceil(w.worst_tokens::numeric * i.est_tokens / t.est_tokens), w.likely
from whole w, items i, (select sum(est_tokens) as est_tokens from items) t"""

# ---------------------------------------------------------------- settlement and recount

# Tokens of the taken deltas by line and quarter of an hour, since the windows of all time zones begin at one.
USED = """
select date_bin('15 minutes', d.at, 'epoch'), coalesce(d.line_id, b.line_id), sum(d.prompt_tokens)::int8,
       sum(d.cached_tokens)::int8, sum(d.completion_tokens)::int8
from batch_delta d join batch b using (batch_id)
where d.delta_id = any(%(ids)s) and d.ok + d.failed > 0 and coalesce(d.line_id, b.line_id) is not null group by 1, 2"""

RETURNED = """
select lane, line_id, coalesce(sum(held_cost), 0)::int8, coalesce(sum(held_tokens), 0)::int8,
       coalesce(sum(prompt_tokens) filter (where worst_tokens > 0), 0)::int8,
       coalesce(sum(cached_tokens) filter (where worst_tokens > 0), 0)::int8,
       coalesce(sum(completion_tokens) filter (where worst_tokens > 0), 0)::int8,
       coalesce(sum(worst), 0)::int8, coalesce(sum(worst_tokens), 0)::int8
from batch_delta where delta_id = any(%(ids)s) and lane is not null group by 1, 2"""

HELD = f"""
select lane, sum(cost)::int8, sum(tokens)::int8 from (
  select lane, {HELD_COST} as cost, {HELD_TOKENS} as tokens from chunk where held is not null and lane is not null
  union all
  select lane, coalesce(held_cost, 0), coalesce(held_tokens, 0) from batch_delta where lane is not null) every group by 1"""

# ---------------------------------------------------------------- another lane

_NOT_LEASED = f"c.state <> '{ChunkState.LEASED}'"
_CHANGE = f"""select pool_id, tenant_id, sum((new_state = '{ChunkState.READY}')::int - (state = '{ChunkState.READY}')::int) as n,
         min(deadline) filter (where new_state = '{ChunkState.READY}') as deadline,
         min(chunk_id) filter (where new_state = '{ChunkState.READY}') as chunk_id
         from moved where new_state <> state group by 1, 2"""

LINES = """
select distinct coalesce(c.line_id, b.line_id) from chunk c join batch b using (batch_id)
where c.tenant_id = %(tenant_id)s and coalesce(c.line_id, b.line_id) is not null"""

IN_OTHER_LANES = """
select exists (select from chunk c join batch b using (batch_id)
  join unnest(%(line_id)s::int[], %(lane)s::int[]) x (line_id, lane) on x.line_id = coalesce(c.line_id, b.line_id)
  where c.tenant_id = %(tenant_id)s and c.lane is distinct from x.lane)"""

# Moves chunks to the lanes of their lines. A ready chunk returns its hold and waits for money of its new lane; one whose new
# lane is none becomes ready. A chunk that had no lane or no cost is held at its estimate, all of it at the dearer price.
# In a lane that has become strict, each byte of a body is one more token of the prompt, and nothing exceeds the context window;
# an answer without a limit may fill it, of which an estimate says nothing.
MOVE = f"""
with lanes as (select * from unnest(%(line_id)s::int[], %(lane)s::int[], %(price)s::int8[], %(input_price)s::int8[],
                                    %(context_window)s::int8[], %(strict)s::bool[])
       x (line_id, lane, price, input_price, context_window, strict)),
 found as materialized (
       select c.*, x.lane as new_lane, x.price, x.input_price, x.context_window,
              x.strict and not coalesce(c.lane = any(%(strict_lanes)s::int[]), false) as widened,
              b.open_ended and coalesce(c.worst_tokens, 0) <= c.est_tokens as unknown,
              case when x.lane is null and c.state = '{ChunkState.UNFUNDED}' then '{ChunkState.READY}'
                   when x.lane is not null and c.state = '{ChunkState.READY}' then '{ChunkState.UNFUNDED}'
                   else c.state end as new_state
       from chunk c join batch b using (batch_id) join lanes x on x.line_id = coalesce(c.line_id, b.line_id)
       where c.tenant_id = %(tenant_id)s and {_NOT_LEASED} and c.lane is distinct from x.lane
       order by c.chunk_id limit %(limit)s for update of c skip locked),
{free_accounts("found")},
 moved as materialized (select * from found where {is_free("found")}),
 bytes as (select m.chunk_id, sum(case when p.stored or p.sealed then m.context_window
                                     else least(p.size, m.context_window) end) as bytes
       from moved m cross join lateral unnest(coalesce(m.seqs, array(select generate_series(m.lo, m.hi)))) x (seq)
       cross join lateral (select stored, get_byte(body, 0) = 1 as sealed, octet_length(body) as size from item_payload
         where batch_id = m.batch_id and seq = x.seq limit 1) p
       where m.widened group by 1),
 priced as (select m.chunk_id, coalesce(nullif(m.worst, 0), m.est_tokens * m.price / 1000) as worst,
              coalesce(m.worst_tokens, m.est_tokens) as worst_tokens from moved m),
 widest as (select m.chunk_id, m.n * m.context_window::numeric * m.price / 1000 as window_cost,
              m.n * m.context_window::numeric as window_tokens,
              case when not m.unknown then p.worst + b.bytes * m.input_price / 1000 end as cost,
              case when not m.unknown then p.worst_tokens + b.bytes end as tokens
       from moved m join priced p using (chunk_id) join bytes b using (chunk_id)),
 returned as (insert into batch_delta (batch_id, ok, failed, prompt_tokens, cached_tokens, completion_tokens, lane, held_cost,
                                       held_tokens)
       select batch_id, 0, 0, 0, 0, 0, lane, sum({HELD_COST}), sum({HELD_TOKENS})
       from moved where held is not null and lane is not null group by batch_id, lane),
 changed as (update chunk c set lane = m.new_lane, held = null, state = m.new_state,
              worst = case when m.new_lane is not null then coalesce(ceil(least(w.cost, w.window_cost)), p.worst) end,
              worst_tokens = case when m.new_lane is not null
                then coalesce(least(w.tokens, w.window_tokens), p.worst_tokens) end
       from moved m join priced p using (chunk_id) left join widest w using (chunk_id) where c.chunk_id = m.chunk_id),
{waking(_CHANGE)},
 recounted as (update sched s set ready = s.ready + x.n, vtime = case when x.n > 0 then {WOKEN} else s.vtime end,
              {MARK_LOWERED}
       from changes x where s.pool_id = x.pool_id and s.tenant_id = x.tenant_id)
select count(*) from moved"""

# ---------------------------------------------------------------- another model

LINES_WAITING = f"""
select distinct line_id from (select line_id from chunk where {CHUNK.guard("fund")} and lane = %(lane)s and pool_id = %(pool_id)s
  order by deadline, chunk_id limit %(limit)s) c where line_id is not null"""

LOCK_BATCHES = f"""
select batch_id from batch where batch_id in (
  select batch_id from (select batch_id from chunk where {CHUNK.guard("fund")} and lane = %(lane)s and pool_id = %(pool_id)s
    order by deadline, chunk_id limit %(limit)s) c)
order by batch_id for no key update"""

# Only chunks without any result, so that each chunk has the line of the model that answers it.
DIVERT = f"""
with moved as materialized (
       select c.* from chunk c join batch b using (batch_id)
       where c.state = '{ChunkState.UNFUNDED}' and c.lane = %(lane)s and c.pool_id = %(pool_id)s and c.line_id = %(line_id)s
         and b.kind = '{Kind.BATCH}' and c.done + c.failed = 0 and c.batch_id = any(%(batch_ids)s)
       order by c.deadline, c.chunk_id limit %(limit)s for update of c skip locked),
 items as (select m.chunk_id, m.batch_id, x.seq from moved m
       cross join lateral unnest(coalesce(m.seqs, array(select generate_series(m.lo, m.hi)))) x (seq)),
 fitting as (select chunk_id from moved m where not exists (
       select from items i join item_payload p on p.batch_id = i.batch_id and p.seq = i.seq
       where i.chunk_id = m.chunk_id and p.est_tokens > %(context_window)s)),
 named as (update item_payload p set model = %(model)s, line_id = %(to_line)s from items i join fitting using (chunk_id)
       where p.batch_id = i.batch_id and p.seq = i.seq),
 diverted as (update chunk c set pool_id = %(to_pool)s, line_id = %(to_line)s,
              worst = least(c.worst_tokens::numeric * %(dearest)s / 1000, 9e18::numeric)::int8
       from fitting f where c.chunk_id = f.chunk_id returning c.n, c.batch_id),
 noted as (update batch set diverted_to = array_append(diverted_to, %(model)s)
       where batch_id in (select batch_id from diverted) and not %(model)s = any(coalesce(diverted_to, '{{}}')))
select count(*), coalesce(sum(n), 0)::int8 from diverted"""

# ---------------------------------------------------------------- what a batch waits for

# The money that a batch's unfunded chunks and those before them in their lanes may cost.
BEFORE = f"""
select own.lane, coalesce(c.likely, 1000)::int, coalesce(sum(c.worst), 0)::int8, coalesce(sum(c.worst_tokens), 0)::int8
from (select lane, pool_id, max(deadline) as deadline, max(chunk_id) as chunk_id from chunk
      where batch_id = %(batch_id)s and {CHUNK.guard("fund")} group by 1, 2) own
cross join lateral (select likely, worst, worst_tokens from chunk c
  where {CHUNK.guard("fund", "c.")} and c.lane = own.lane and c.pool_id = own.pool_id
    and (c.deadline, c.chunk_id) <= (own.deadline, own.chunk_id)
  order by c.deadline, c.chunk_id limit 10000) c
group by 1, 2 order by 1, 2"""

# By lane, what funded chunks and uncounted results can cost and use beyond what is held for them.
BEYOND = f"""
select lane, sum(cost)::float8, sum(tokens)::float8 from (
  select lane, greatest(0, worst - {HELD_COST}) as cost, greatest(0, worst_tokens - {HELD_TOKENS}) as tokens
  from chunk where held is not null and lane is not null
  union all
  select lane, greatest(0, coalesce(worst, 0) - coalesce(held_cost, 0)),
         greatest(0, coalesce(worst_tokens, 0) - coalesce(held_tokens, 0), prompt_tokens + completion_tokens - held_tokens)
  from batch_delta where lane is not null) every group by 1"""

GAUGES = f"""
select 'unfunded_chunks', p.model, count(c.chunk_id)::float8 from pool p
left join chunk c on c.pool_id = p.pool_id and {CHUNK.guard("fund", "c.")} group by 2"""
