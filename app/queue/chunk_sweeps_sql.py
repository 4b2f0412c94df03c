"""The SQL of the sweeps over chunks: promote, hold, release, remove.

Lock order: batch, chunk, sched by pool and tenant.
"""

from app.queue.errors_sql import ERRORS
from app.queue.fair_order_sql import MARK_LOWERED, WOKEN, chunks_by_account, free_accounts, is_free, waking
from app.states import CHUNK, BatchState, ChunkState

HALTED = f"state in ('{BatchState.PAUSED}', '{BatchState.CANCELLING}', '{BatchState.EXPIRING}')"

# A delayed or held chunk has no money reserved, so under budgets it waits for some instead. See `app.budgets.queued`.
_NEXT_STATE = (
    f"""case when c.budgets is null then '{CHUNK.target("promote")}' else '{CHUNK.target("wait for money")}' end"""
)

# A sweep over one batch is followed by other statements, so it leaves the change of `sched` to `ready_counts`.
_MOVED = """
select pool_id, tenant_id, (count(*) filter (where state = '{ready}'))::int, count(*)::int,
       min(deadline) filter (where state = '{ready}'), min(chunk_id) filter (where state = '{ready}')
from {of} group by 1, 2"""

_MORE_READY = f""",
{waking(chunks_by_account(f"released where state = '{ChunkState.READY}'"))},
 recounted as (update sched s set ready = s.ready + x.n, vtime = {WOKEN}, {MARK_LOWERED}
       from changes x where s.pool_id = x.pool_id and s.tenant_id = x.tenant_id)
select count(*) from released"""

# A chunk that the worker of a cancelled batch has just returned must not be leased again before the sweep removes it.
PROMOTE = f"""
with found as materialized (
       select c.chunk_id, c.pool_id, c.tenant_id from chunk c
       where {CHUNK.guard("promote", "c.")} and c.not_before <= now()
         and not exists (select from batch b where b.batch_id = c.batch_id and b.{HALTED})
       for update of c skip locked),
{free_accounts("found")},
 due as materialized (select chunk_id from found where {is_free("found")}),
 released as (update chunk c set state = {_NEXT_STATE}, not_before = null
       from due where c.chunk_id = due.chunk_id returning c.pool_id, c.tenant_id, c.state, c.deadline, c.chunk_id){_MORE_READY}"""

# ---------------------------------------------------------------- sweep: apply a batch's state to its chunks

# A worker or the steward may return a chunk while its batch is being paused or cancelled, if it read the batch's state before.
# Therefore only these sweeps act on that state, and they are repeated.


def _to_move(states: str, verb: str, *, one: bool) -> str:
    """The chunks that `verb` moves: those of one batch, or of all batches in `states`."""
    only, wait = ("and c.batch_id = %(batch_id)s", "") if one else ("", "skip locked")
    found = f"""materialized (
       select c.* from chunk c join batch b on b.batch_id = c.batch_id
       where b.state in ({states}) and {CHUNK.guard(verb, "c.")} {only}
       order by c.chunk_id for update of c {wait})"""
    if one:
        return f"""
with to_move as {found},"""
    return f"""
with found as {found},
{free_accounts("found")},
 to_move as materialized (select * from found where {is_free("found")}),"""


_LESS_READY = f""",
 changes as materialized ({chunks_by_account(f"to_move where state = '{ChunkState.READY}'")}),
 recounted as (update sched s set ready = s.ready - x.n
       from changes x where s.pool_id = x.pool_id and s.tenant_id = x.tenant_id)
select count(*) from to_move"""


# Results that a lost worker stored before its chunk came back are counted here, because no worker will finish that chunk.
_COUNT_DONE = f"""
 counted as (insert into batch_delta (batch_id, ok, failed, prompt_tokens, cached_tokens, completion_tokens, line_id, repeats,
                                         retried, retried_ok, yields, budgets, errors, unrun, details)
       select k.batch_id, sum(r.ok), count(*) - sum(r.ok), sum(r.prompt_tokens), sum(r.cached_tokens), sum(r.completion_tokens),
              k.line_id, count(*) filter (where k.run > 1), count(*) filter (where r.attempt > 1),
              count(*) filter (where r.attempt > 1 and r.ok = 1), sum(r.yields), k.budgets, {ERRORS},
              count(*) filter (where r.attempt = 0), sum_details(r.details)
       from to_move k cross join lateral unnest(coalesce(k.seqs, array(select generate_series(k.lo, k.hi)))) x (seq)
         cross join lateral (select * from item_result i
           where i.batch_id = k.batch_id and i.seq = x.seq and i.run = k.run limit 1) r
       where k.done + k.failed > 0 group by k.batch_id, k.line_id, k.budgets),"""

# A chunk that is held or removed needs no money for now. The delta returns what was reserved for it.
_RETURN_RESERVED = """
 returned as (insert into batch_delta (batch_id, ok, failed, prompt_tokens, cached_tokens, completion_tokens, budgets,
                                       reserved_cost, reserved_tokens)
       select k.batch_id, 0, 0, 0, 0, 0, k.budgets, sum(k.reserved_cost), sum(k.reserved_tokens)
       from to_move k where k.reserved_tokens is not null group by k.batch_id, k.budgets)"""


def sweeps(*, one: bool) -> tuple[str, str, str]:
    """Hold, release, remove: for the chunks of paused, resumed, and ending batches. `one`: only those of %(batch_id)s, and what
    they return is how many of them were ready before, or are now, by pool and tenant.
    """
    less = _MOVED.format(ready=ChunkState.READY, of="to_move") if one else _LESS_READY
    more = _MOVED.format(ready=ChunkState.READY, of="released") if one else _MORE_READY
    hold = f"""{_to_move(f"'{BatchState.PAUSED}'", "hold", one=one)}
 held as (update chunk c set state = '{ChunkState.HELD}', not_before = null, reserved_cost = null,
              reserved_tokens = null, reserved_at = null
       from to_move k where c.chunk_id = k.chunk_id),
{_RETURN_RESERVED}{less}"""
    release = f"""{_to_move(f"'{BatchState.OPEN}'", "release", one=one)}
 released as (update chunk c set state = {_NEXT_STATE} from to_move k where c.chunk_id = k.chunk_id
       returning c.pool_id, c.tenant_id, c.state, c.deadline, c.chunk_id){more}"""
    remove = f"""{_to_move(f"'{BatchState.CANCELLING}', '{BatchState.EXPIRING}'", "remove", one=one)}
 removed as (delete from chunk c using to_move k where c.chunk_id = k.chunk_id),
{_COUNT_DONE}
{_RETURN_RESERVED}{less}"""
    return hold, release, remove
