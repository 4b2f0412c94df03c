"""The SQL of a worker and its leases: register, load, flush, finish. The claim is in `fair_order_sql`, the heartbeat in
`heartbeat_sql`.

Every write by a worker checks the fence (chunk_id, token, worker_id), and that it names the batch of its chunk.
"""

from app.db.durability import RELAXED
from app.queue.errors_sql import ERRORS
from app.queue.poison import SUSPECT_ATTEMPTS
from app.queue.types import AMOUNTS, TOKENS
from app.states import CHUNK, BatchState, ChunkState


def _fence(verb: str) -> str:
    """The condition on a chunk that the worker still holds it, and may do `verb`.

    A CASE matches no index but that of `chunk_id`. The planner may take that of leased chunks by worker otherwise, in which every
    chunk that the worker has had stays until the next vacuum.
    """
    held = "worker_id = %(worker_id)s and token = %(token)s and batch_id = %(batch_id)s"
    return f"chunk_id = %(chunk_id)s and case when {held} then {CHUNK.guard(verb)} end"


FENCE = _fence("finish")

REGISTER_WORKER = """
insert into worker (pool_id, host, pid, lease_until)
values (%(pool_id)s, %(host)s, %(pid)s, now() + make_interval(secs => %(lease_seconds)s)) returning worker_id"""

RETIRE_WORKER = f"""
delete from worker w where worker_id = %(worker_id)s
   and not exists (select from chunk c where c.worker_id = w.worker_id and {CHUNK.guard("finish", "c.")})"""

# Only items without a durable result, so that a chunk that is leased again continues where the lost worker stopped; and no item
# of a halted batch, whose chunk may be claimed just before a sweep reaches it. Item and result are looked up by their keys, one
# by one: a chunk of grouped items spans most of its batch, and a range scan would read all of it. What all items have in
# common is computed once.
LOAD = f"""
with of_batch as materialized (
  select b.model, b.endpoint, b.traceparent, b.tells_items, b.kind, b.open_ended,
         extract(epoch from clock_timestamp() - b.opened_at)::float8 as age, b.request_id::text, k.kek, k.wrapped,
         b.feeds
  from batch b left join batch_key k on k.batch_id = b.batch_id and not k.only_vaults
  where b.batch_id = %(batch_id)s and b.state = '{BatchState.OPEN}')
select x.seq, coalesce(p.model, b.model), coalesce(p.endpoint, b.endpoint), p.body, p.stored, b.traceparent, b.tells_items,
       b.kind, b.open_ended, b.age, b.request_id, b.kek, b.wrapped, b.feeds
from of_batch b cross join lateral unnest(coalesce(%(seqs)s::int[], array(select generate_series(%(lo)s::int, %(hi)s::int))))
  with ordinality x (seq, place)
cross join lateral (select * from item_payload where batch_id = %(batch_id)s and seq = x.seq limit 1) p
left join lateral (select true as there from item_result
  where batch_id = %(batch_id)s and seq = x.seq and run = %(run)s limit 1) r on true
where r.there is null
order by x.place"""

# The columns of a result that the worker supplies, with their types.
RESULT_COLUMNS = {
    "seq": "int",
    "ok": "int2",
    "attempt": "int2",
    "yields": "int2",
    "prompt_tokens": "int",
    "cached_tokens": "int",
    "completion_tokens": "int",
    "body": "bytea",
    "stored": "bool",
    "error": "text",
    "queued_ms": "int",
    "first_token_ms": "int",
    "ran_ms": "int",
    "details": "jsonb",
}
_COLUMNS = ", ".join(RESULT_COLUMNS)
_MARK = """insert into handoff (batch_id, run, seqs, bytes)
       select %(batch_id)s, %(run)s, array_agg(seq), %(bytes)s from inserted having count(*) > 0"""


def _flush(*, feeds: bool) -> str:
    inserted = ", seq" if feeds else ""
    marked = (
        f""",
 marked as ({_MARK})"""
        if feeds
        else ""
    )
    return f"""
with fenced as materialized (select chunk_id from chunk
           where {_fence("flush")} for update),
 inserted as (insert into item_result (batch_id, run, engine_id, {_COLUMNS})
       select %(batch_id)s, %(run)s, %(engine_id)s::bigint, v.*
       from unnest({", ".join(f"%({name})b::{kind}[]" for name, kind in RESULT_COLUMNS.items())}) v
       where exists (select from fenced)
       on conflict do nothing returning ok, {", ".join(TOKENS)}{inserted}),
 counted as (update chunk c set done = c.done + new.ok, failed = c.failed + new.n - new.ok,
         {", ".join(f"{name} = coalesce(c.{name}, 0) + new.{name}" for name in TOKENS)}
       from fenced, (select coalesce(sum(ok), 0)::int as ok, count(*)::int as n,
                       {", ".join(f"coalesce(sum({name}), 0) as {name}" for name in TOKENS)} from inserted) new
       where c.chunk_id = fenced.chunk_id){marked}
select count(*) from fenced"""


# Stores results, one array per column, if the fence holds. The first result of an item wins, and only new results count as
# progress. Binary arrays make one statement for any number of rows and save the client most of its work. Returns the number of
# fenced chunks, 0 or 1. In a batch that feeds, the results leave a marker.
FLUSH = _flush(feeds=False)
FLUSH_FEEDING = _flush(feeds=True)

# Of what the whole chunk may cost. By estimates, since one item may be as long as all others together.
_SHARE = "case when m.n = d.n then d.{0} else ceil(d.{0}::numeric * m.est_tokens / d.est_tokens) end"

# Counts are taken from item_result, so that a chunk that was leased before is counted correctly. Items without a result go back
# as new, delayed chunks, so that finishing early cannot lose an item. Token 1 says that they were leased before. Suspects get a
# chunk each, and with `split` all items do. Items that met a transient error go back together, and so does the rest.
# LIMIT 1 makes the planner look up each result by its key, even in a partition that is still growing.
# A delta is always written, even 0/0: the steward notices a batch by its deltas. `sched`, which claims change, is left to the
# steward as well: it gets what was used from `sched_delta`.
FINISH = f"""
with deleted as (delete from chunk where {FENCE}
           returning batch_id, run, tenant_id, pool_id, lo, hi, seqs, n, est_tokens, deadline, attempt, deaths, retries,
                     charged_for, excused, line_id, budgets, {", ".join(AMOUNTS)}, reserved_cost, reserved_tokens),
 items as (select x.seq, x.place, r.seq is null as missing, r.ok, r.prompt_tokens, r.cached_tokens, r.completion_tokens,
                 r.attempt > 1 as again, r.yields, r.error, r.details,
                 (x.seq = any(%(suspects)s::int[]))::int as suspect, (x.seq = any(%(retried)s::int[]))::int as retried
          from deleted d cross join lateral
            unnest(coalesce(d.seqs, array(select generate_series(d.lo, d.hi)))) with ordinality x (seq, place)
          left join lateral (select * from item_result
            where batch_id = %(batch_id)s and seq = x.seq and run = %(run)s limit 1) r on true),
 counts as (select count(*) filter (where not missing)::int as done, coalesce(sum(ok), 0)::int as ok,
              coalesce(sum(prompt_tokens), 0) as prompt_tokens, coalesce(sum(cached_tokens), 0) as cached_tokens,
              coalesce(sum(completion_tokens), 0) as completion_tokens,
              count(*) filter (where again)::int as retried, count(*) filter (where again and ok = 1)::int as retried_ok,
              coalesce(sum(yields), 0)::int as yields, {ERRORS} as errors, sum_details(details) as details from items),
 returned as (insert into chunk (batch_id, run, tenant_id, pool_id, lo, hi, seqs, n, est_tokens, deadline, state,
                             attempt, deaths, retries, charged_for, excused, line_id, budgets, {", ".join(AMOUNTS)}, token,
                             not_before)
       select d.batch_id, d.run, d.tenant_id, d.pool_id, m.lo, m.hi,
              case when m.n = 1 or (m.hi - m.lo + 1 = m.n and d.seqs is null) then null else m.seqs end, m.n,
              greatest(1, m.est_tokens), d.deadline, '{ChunkState.DELAYED}',
              least(d.attempt, case when %(split)s then {SUSPECT_ATTEMPTS} end), d.deaths + m.suspect, d.retries + m.retried,
              d.charged_for, d.excused, d.line_id, d.budgets, {", ".join(_SHARE.format(name) for name in AMOUNTS)}, 1,
              now() + make_interval(secs => greatest(%(backoff_seconds)s, m.retried * %(retry_seconds)s))
       from deleted d, (select min(seq) as lo, max(seq) as hi, count(*)::int as n, array_agg(seq order by place) as seqs,
                       suspect, retried,
                       sum((select p.est_tokens from item_payload p
                            where p.batch_id = %(batch_id)s and p.seq = items.seq))::int as est_tokens
                from items where missing
                group by suspect, retried, case when %(split)s or suspect = 1 then seq end) m
       order by m.lo returning maximum_cost, maximum_tokens),
 rest as (select coalesce(sum(maximum_cost), 0) as cost, coalesce(sum(maximum_tokens), 0) as tokens from returned),
 left_to_steward as (insert into sched_delta (pool_id, tenant_id, est_tokens, used_tokens, served_tokens)
       select d.pool_id, d.tenant_id, d.est_tokens, c.prompt_tokens + c.completion_tokens,
              d.est_tokens::bigint * c.done / d.n from deleted d, counts c)
insert into batch_delta (batch_id, ok, failed, prompt_tokens, cached_tokens, completion_tokens, line_id, repeats, retried,
                         retried_ok, yields, engine_ms, first_tokens, durations, budgets, reserved_cost,
                         reserved_tokens, maximum_cost, maximum_tokens, errors, unrun, details)
select d.batch_id, c.ok, c.done - c.ok, c.prompt_tokens, c.cached_tokens, c.completion_tokens, d.line_id,
       case when d.run > 1 then c.done else 0 end, c.retried, c.retried_ok, c.yields, %(engine_ms)s, %(first_tokens)s,
       %(durations)s, d.budgets, d.reserved_cost, d.reserved_tokens, d.maximum_cost - least(d.maximum_cost, r.cost),
       d.maximum_tokens - least(d.maximum_tokens, r.tokens), c.errors, %(unrun)s, c.details
from deleted d, counts c, rest r where {RELAXED}
returning ok + failed"""
