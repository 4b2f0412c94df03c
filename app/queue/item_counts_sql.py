"""The SQL that counts items: of one batch, and of all open batches.

A finished chunk is deleted, and its counts are in `batch_delta` until the steward folds them into the batch. A chunk that is
leased has counts of its own, and so has one that was taken back from a lost worker (`chunk_returned`).
"""

from app.queue.types import TOKENS
from app.states import CHUNK
from app.worker_lease import WORKER_LEASE_HOLDS, worker_overdue

MAX_BATCHES = 100_000  # more are not counted

# Of a batch b: what its finished chunks have that is not folded yet, and the tokens with it.
DELTAS = f"""
left join lateral (select sum(ok)::int as ok, sum(failed)::int as failed,
                     {", ".join(f"sum({name})::int8 as {name}" for name in TOKENS)},
                     sum_details(details) as details
                   from batch_delta x where x.batch_id = b.batch_id) d on b.finalized_at is null"""
FOLDED_TOKENS = ", ".join(f"b.{name} + coalesce(d.{name}, 0)" for name in TOKENS)
LIVE_TOKENS = ", ".join(f"b.{name} + coalesce(d.{name}, 0) + coalesce(c.{name}, 0)" for name in TOKENS)
LIVE_DETAILS = (
    "coalesce(add_details(b.details, d.details), b.details, d.details)"  # those of leased chunks come at their ends
)
# The columns succeeded, failed, claimed, in the engine; and the joins for them, which have `c.started`.
SUCCEEDED = "b.ok + coalesce(d.ok, 0) + coalesce(c.done, 0)"
FAILED = "b.failed + coalesce(d.failed, 0) + coalesce(c.failed, 0)"
IN_ENGINE = "least(coalesce(c.leased, 0), coalesce(i.items, 0))"
RETURNS_AT = f"case when {IN_ENGINE} > 0 then i.returns_at end"  # null, unless every worker that has them is silent
CLAIMED = f"coalesce(c.leased, 0) - {IN_ENGINE}"
JOINS = f"""{DELTAS}
left join lateral (
  select sum(done)::int as done, sum(failed)::int as failed, bool_or(token > 0) as started,
         {", ".join(f"sum({name})::int8 as {name}" for name in TOKENS)},
         (sum(n - done - failed) filter (where {CHUNK.guard("finish")}))::int as leased
  from chunk x where x.batch_id = b.batch_id) c on b.finalized_at is null
left join lateral (
  select sum((e.in_engine ->> b.batch_id::text)::int)::int as items,
         case when bool_and({worker_overdue("w.")}) then max(w.lease_until) end as returns_at
  from engine e join worker w using (worker_id)
  where w.{WORKER_LEASE_HOLDS} and e.in_engine ? b.batch_id::text) i on c.leased > 0"""

# Of an engine e: the items that are in it.
OF_ENGINE = "(select coalesce(sum(j.value::int), 0)::int from jsonb_each_text(e.in_engine) j)"

# Leased and returned chunks are few, whatever the backlog.
OPEN = f"""
with open as materialized (
  select batch_id, total, ok, failed from batch
  where finalized_at is null and not (pipeline_id is not distinct from batch_id and endpoint = '') limit {MAX_BATCHES}),
 delta as (
  select coalesce(sum(d.ok), 0) as ok, coalesce(sum(d.failed), 0) as failed from batch_delta d join open using (batch_id)),
 leased as materialized (
  select c.batch_id, sum(c.n - c.done - c.failed) as items, sum(c.done) as done, sum(c.failed) as failed
  from chunk c join open using (batch_id) where {CHUNK.guard("finish", "c.")} group by 1),
 returned as (
  select coalesce(sum(c.done), 0) as done, coalesce(sum(c.failed), 0) as failed
  from chunk c join open using (batch_id) where c.state <> 'leased' and c.token > 1),
 inside as materialized (
  select j.key::bigint as batch_id, sum(j.value::int) as items
  from engine e join worker w using (worker_id) cross join lateral jsonb_each_text(e.in_engine) j
  where w.{WORKER_LEASE_HOLDS} group by 1),
 held as (
  select coalesce(sum(l.items), 0) as leased, coalesce(sum(l.done), 0) as done, coalesce(sum(l.failed), 0) as failed,
         coalesce(sum(least(l.items, coalesce(i.items, 0))), 0) as in_engine
  from leased l left join inside i using (batch_id))
select coalesce((select sum(total) from open), 0)::int8,
       (coalesce((select sum(ok) from open), 0) + delta.ok + returned.done + held.done)::int8,
       (coalesce((select sum(failed) from open), 0) + delta.failed + returned.failed + held.failed)::int8,
       (held.leased - held.in_engine)::int8, held.in_engine::int8
from delta, returned, held"""
