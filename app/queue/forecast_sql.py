"""The SQL of forecasts: what comes before a batch in its pool, the pool's pace and its engines, and how long answers are."""

from app.engines.sql import KNOWN_OF
from app.queue.poison import SUSPECTED
from app.queue.unreserved_sql import PAYABLE, counted, spent
from app.states import CHUNK, EngineIntake, EngineState
from app.worker_lease import WORKER_LEASE_HOLDS

# The estimated tokens of a chunk's items that have no result yet.
REMAINING_TOKENS = "est_tokens::float8 * (n - done - failed) / n"


def latest_pace(pool: str) -> str:
    """A subquery: `pace` in estimated tokens per second and `spread` of a pool, from its newest note that has them. `still`: for
    how many seconds no item has ended, where the pace is 0.
    """
    return f"""(select tokens_per_second as pace, spread, case when tokens_per_second = 0 then extract(epoch from now() - (
      select min(at) from pace same where same.pool_id = {pool} and same.served_tokens = pace.served_tokens))::float8 end as still
    from pace where pace.pool_id = {pool} and tokens_per_second is not null order by at desc limit 1)"""


_MOST_LOOKED_AT = 256  # unreserved chunks of other accounts in one group of budgets

# The tokens that leased chunks still need, by chunk and by account. Leased chunks are few, whatever the backlog.
_LEASED = f"""
 leased_chunks as materialized (
  select pool_id, tenant_id, batch_id, deadline, est_tokens, {REMAINING_TOKENS} as tokens,
         {SUSPECTED} as suspected
  from chunk where {CHUNK.guard("finish")}),
 leased as materialized (
  select pool_id, tenant_id, sum(tokens) as tokens, avg(est_tokens)::float8 as mean from leased_chunks group by 1, 2),
 turns as materialized (select pool_id, tenant_id, sum(n * tokens) as tokens from {counted("payable", _MOST_LOOKED_AT)} c
  group by 1, 2)"""


def _others(pool: str, tenant: str, size: str) -> str:
    """The other accounts with work in a pool: their weights, and their tokens that wait or run. Ready chunks are counted, not
    read. Each is assumed to be as large as the account's leased chunks, or else as other accounts' leased chunks, or as `size`.
    """
    return f"""(
  select array_agg(other.weight::float8) as weights,
         array_agg((coalesce(l.tokens, 0) + coalesce(u.tokens, 0)
                    + s.ready * coalesce(l.mean, m.mean, {size}, 0))::float8) as tokens
  from sched s join tenant other on other.tenant_id = s.tenant_id
  left join leased l on l.pool_id = s.pool_id and l.tenant_id = s.tenant_id
  left join turns u on u.pool_id = s.pool_id and u.tenant_id = s.tenant_id
  cross join (select avg(mean) as mean from leased where pool_id = {pool}) m
  where s.pool_id = {pool} and s.tenant_id <> {tenant} and (s.ready > 0 or s.inflight_tokens > 0 or u.tokens > 0))"""


_TURN = f"{CHUNK.guard('reserve')} and g.budgets is not null"  # it waits for its turn, not for money
_SHOWN = "select batch_id, chunk_id, deadline, est_tokens from chunk"
_FIRST_ONES = "order by deadline, chunk_id limit 1001"

# The chunks ahead of a batch are counted up to a thousand, so that a poll stays cheap whatever the backlog. Batches of one
# account in one pool share that count. The account's leased chunks with earlier deadlines come first, too.
OUTLOOKS = f"""
with recursive{PAYABLE},{_LEASED},
 requested as materialized (
  select batch_id, max(c.pool_id) as pool_id, max(c.tenant_id) as tenant_id, avg(est_tokens) as mean,
         sum({REMAINING_TOKENS}) as tokens,
         min(deadline) as deadline,
         count(*) filter (where {CHUNK.guard("claim")})::int as ready,
         count(*) filter (where {CHUNK.guard("finish")})::int as leased,
         count(*) filter (where {CHUNK.guard("promote")})::int as delayed,
         count(*) filter (where {CHUNK.guard("release")})::int as held,
         count(*) filter (where {CHUNK.guard("reserve")})::int as unreserved,
         count(*) filter (where {CHUNK.guard("reserve")} and reserved_at is not null)::int as taken_back,
         count(*) filter (where {_TURN})::int as turns,
         coalesce(sum(n - done - failed) filter (where {CHUNK.guard("promote")}), 0)::int as delayed_items,
         coalesce(sum(n - done - failed) filter (where {CHUNK.guard("reserve")} and ({_TURN}) is not true),
                  sum(n - done - failed) filter (where {CHUNK.guard("reserve")}), 0)::int as money_items,
         coalesce(sum(n - done - failed) filter (where {CHUNK.guard("reserve")} and reserved_at is not null), 0)::int
           as taken_back_items,
         max(c.budgets) filter (where {CHUNK.guard("reserve")}) as budgets,
         min(not_before) as not_before,
         (array_agg(chunk_id order by deadline, chunk_id) filter (where {CHUNK.guard("claim")} or {_TURN}))[1] as first
  from chunk c left join payable g on g.budgets = c.budgets and g.pool_id = c.pool_id
  where batch_id = any(%(batch_ids)s) group by batch_id),
 pool_accounts as (select distinct pool_id, tenant_id from requested),
 waiting as materialized (
  select p.pool_id, p.tenant_id, c.batch_id, c.chunk_id, row_number() over w - 1 as chunks,
         sum(c.est_tokens) over w - c.est_tokens as tokens
  from pool_accounts p cross join lateral (
    select * from (
      ({_SHOWN} where {CHUNK.guard("claim")} and pool_id = p.pool_id and tenant_id = p.tenant_id {_FIRST_ONES})
      union all
      select x.* from payable g cross join lateral (
        {_SHOWN} where {CHUNK.guard("reserve")} and budgets = g.budgets and pool_id = g.pool_id {_FIRST_ONES}) x
      where g.pool_id = p.pool_id and g.tenant_id = p.tenant_id) w {_FIRST_ONES}) c
  window w as (partition by p.pool_id, p.tenant_id order by c.deadline, c.chunk_id)),
 all_waiting as (select pool_id, tenant_id, max(chunks) as chunks, max(tokens) as tokens from waiting group by 1, 2),
 in_flight as (
  select p.pool_id, p.tenant_id, sum(s.inflight_tokens)::bigint as inflight,
         max(s.inflight_tokens) filter (where s.tenant_id = p.tenant_id) as own
  from pool_accounts p join sched s using (pool_id) group by 1, 2)
select a.batch_id, a.pool_id, now(), a.ready, a.leased, a.delayed, a.held,
       extract(epoch from a.not_before - now())::float8, a.tokens,
       coalesce(l.chunks, case when a.first is not null then e.chunks end, 0)::int,
       (coalesce(l.tokens, case when a.first is not null then e.tokens end, 0)
         + coalesce(i.tokens, 0))::float8,
       t.weight::float8, coalesce(o.weights, '{{}}'), coalesce(o.tokens, '{{}}'), r.pace, r.spread,
       coalesce(s.inflight, 0), coalesce(s.own, 0), t.max_inflight_tokens, a.unreserved, q.batches, a.taken_back,
       (select count(*)::int from leased_chunks where pool_id = a.pool_id and suspected), {spent("a.budgets")}, a.turns,
       a.delayed_items, a.money_items, a.taken_back_items, r.still
from requested a join tenant t on t.tenant_id = a.tenant_id
left join waiting l on l.chunk_id = a.first
left join all_waiting e on e.pool_id = a.pool_id and e.tenant_id = a.tenant_id
left join in_flight s on s.pool_id = a.pool_id and s.tenant_id = a.tenant_id
left join lateral (select sum(tokens) as tokens from leased_chunks
  where pool_id = a.pool_id and tenant_id = a.tenant_id and deadline < a.deadline) i on true
cross join lateral (select count(distinct x.batch_id)::int as batches from (
    select batch_id from waiting w where w.pool_id = a.pool_id and w.tenant_id = a.tenant_id and a.first is not null
      and (l.chunks is null or w.chunks < l.chunks)
    union all select batch_id from leased_chunks
    where pool_id = a.pool_id and tenant_id = a.tenant_id and deadline < a.deadline) x where x.batch_id <> a.batch_id) q
left join lateral {_others("a.pool_id", "a.tenant_id", "a.mean")} o on true
left join lateral {latest_pace("a.pool_id")} r on true"""

_FIRST = (
    f"""(select est_tokens from chunk where {CHUNK.guard("claim")} and pool_id = p.pool_id order by deadline limit 1)"""
)

# The same facts as OUTLOOKS, for a batch that does not exist yet. What is paused or waits for money is not ahead of it.
PROSPECT = f"""
with recursive{PAYABLE},{_LEASED},
 target_pool as materialized (select pool_id from pool where model = %(model)s)
select coalesce((select sum({REMAINING_TOKENS}) from chunk c
                 where c.pool_id = p.pool_id and c.tenant_id = t.tenant_id and not {CHUNK.guard("release")}
                   and (not {CHUNK.guard("reserve")} or c.budgets in (select budgets from payable where pool_id = p.pool_id))),
                0)::float8,
       t.weight::float8, coalesce(o.weights, '{{}}'), coalesce(o.tokens, '{{}}'), r.pace, r.still,
       (select count(*) from engine e join worker w using (worker_id)
        where e.pool_id = p.pool_id and e.state = '{EngineState.READY}' and e.intake = '{EngineIntake.OPEN}'
          and w.{WORKER_LEASE_HOLDS})::int
from target_pool p join tenant t on t.tenant_id = %(tenant_id)s
left join lateral {_others("p.pool_id", "t.tenant_id", _FIRST)} o on true
left join lateral {latest_pace("p.pool_id")} r on true"""

GATES = f"""
select e.pool_id, e.engine_id, e.name, e.state, e.allowance, e.reason, e.signal, e.value, e.threshold, e.reason_since,
       e.heartbeat_at, coalesce(w.{WORKER_LEASE_HOLDS}, false), e.detail,
       extract(epoch from e.expected_at - least(now(), e.expected_at))::float8, e.intake <> '{EngineIntake.OPEN}',
       e.mode, e.start_seconds
from engine e left join worker w on w.worker_id = e.worker_id
where e.pool_id = any(%(pool_ids)s) and {KNOWN_OF} order by e.name"""

# By batch, a sample of the answers of the latest batches whose answers may use the rest of the context, and whose items have one
# model.
ANSWER_SAMPLES = """
select b.line_id, r.lengths
from unnest(%(models)s::text[]) m (model) cross join lateral (
  select batch_id, tenant_id, line_id, ok from batch
  where batch.model = m.model and open_ended and model_lines is null and diverted_to is null
  order by batch_id desc limit %(recent)s) b
cross join lateral (
  select array_agg(completion_tokens) as lengths from (
    select completion_tokens from item_result i where i.batch_id = b.batch_id and i.ok = 1 limit %(sample)s) i) r
where b.ok > 0 and b.tenant_id = any(%(tenant_ids)s) and b.line_id is not null and r.lengths is not null"""

# By model and account: the answers and their tokens, of the latest batches whose answers may use the rest of the context.
ANSWER_LENGTHS = """
select m.model, b.tenant_id, sum(b.ok)::int, sum(b.completion_tokens)::bigint
from unnest(%(models)s::text[]) m (model) cross join lateral (
  select tenant_id, ok, completion_tokens from batch
  where batch.model = m.model and open_ended order by batch_id desc limit %(recent)s) b
where b.ok > 0 group by 1, 2"""
