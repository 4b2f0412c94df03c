"""The SQL of the fair order: which account's chunk a worker gets next.

An account's virtual time is the tokens it was served, divided by its weight (`sched.vtime`). The account with the lowest
virtual time is served next; within an account, the chunk with the earliest deadline. A claim charges the chunk's estimate, and
`FOLD_DELTAS` corrects it to what was used. `sched.ready` and `sched.inflight_tokens` cache counts of `chunk`.

An index has the accounts by turn, which is the virtual time in steps of 65,536, so that most changes of it leave the index as it
is. A claim sees the 16 accounts of the lowest turns. So the order of up to 16 accounts is exact; that of more may be wrong by one
turn.

While an old snapshot is open, the index of ready chunks keeps an entry of each chunk that was claimed since. A claim therefore
starts at the account's mark, (`sched.first_deadline`, `sched.first_chunk`): no ready chunk comes before it. A claim that took a
chunk far behind the mark raises it. Whatever makes chunks ready lowers it (`MARK_LOWERED`) in the same transaction.
"""

from app.db.durability import RELAXED
from app.states import CHUNK, ChunkState
from app.worker_lease import WORKER_LEASE_HOLDS

SIZES = (1, 2, 4)  # chunks of a claim: a LIMIT that is a parameter has no good plan for all values
_NEXT_ACCOUNTS = 16  # of which the order is exact
_NEAREST_CHUNKS = 64  # that the urgent lane looks at
_FAR_CHUNKS = 64  # behind the mark, and
_FAR_SECONDS = 1  # of deadlines: from there on a claim raises it

# All that change an account do so in one message to the server, so its row is locked for a moment, unless a commit waits for a
# standby that does not answer. A claim then goes on with the accounts that are not locked.
_PATIENCE = "100ms"
_BRIEFLY = f"(select set_config('lock_timeout', '{_PATIENCE}', true)) = '{_PATIENCE}'"
_FREE_ACCOUNTS = 4

# The lowest virtual time of the accounts of a pool that have work; null: none has.
_LOWEST = f"""(select min(l.vtime) from (
    select vtime from sched where pool_id = {{pool}} and turn is not null order by turn limit {_NEXT_ACCOUNTS}) l)"""


def current_virtual_time(pool: str) -> str:
    """The lowest virtual time of the accounts of a pool that have work, or, if none has, the highest of all.

    An idle account saves up no share: when it has work again, its virtual time is raised to this one. Were it the lowest of all,
    an account that was served before a pause of the pool would stand behind the first account to arrive after it.
    """
    return f"coalesce({_LOWEST.format(pool=pool)}, (select max(vtime) from sched m where m.pool_id = {pool}), 0)"


def woken(current: str) -> str:
    """The virtual time of account s of `sched` when it gets work. `current`: the current virtual time of its pool."""
    return f"case when s.ready > 0 then s.vtime else greatest(s.vtime, {current}) end"


# ---------------------------------------------------------------- the mark


def mark_lowered(deadline: str, chunk_id: str) -> str:
    """What sets the mark of account s of `sched` before what became ready. The lowest deadline and the lowest id may be of two
    chunks, which only makes the mark lower than it needs to be. Null: nothing became ready.
    """
    return f"""first_deadline = least(s.first_deadline, {deadline}),
              first_chunk = case when {deadline} < s.first_deadline then {chunk_id}
                                 when {deadline} = s.first_deadline then least(s.first_chunk, {chunk_id})
                                 else s.first_chunk end"""


MARK_LOWERED = mark_lowered("x.deadline", "x.chunk_id")  # beside row x of `changes`


# The first chunk that was ready when the claim began, locked ones included, because whoever locked them may still roll back. What
# became ready since then is not seen, so the mark stays if the row has changed meanwhile: each arrival changes it.
_MARK_RAISED = f"""(first_deadline, first_chunk) = (
         select coalesce(f.deadline, s.first_deadline), coalesce(f.chunk_id, s.first_chunk)
         from (select) one left join lateral (
           select deadline, chunk_id from chunk
           where (l.chunk_id > s.first_chunk + {_FAR_CHUNKS} or l.deadline > s.first_deadline + interval '{_FAR_SECONDS} second')
             and s.xmin::text = l.version
             and {CHUNK.guard("claim")} and pool_id = s.pool_id and tenant_id = s.tenant_id
             and (deadline, chunk_id) >= (s.first_deadline, s.first_chunk)
           order by deadline, chunk_id limit 1) f on true)"""

# ---------------------------------------------------------------- claim

_ACCOUNT = "s.tenant_id, w.weight, s.first_deadline, s.first_chunk, s.xmin::text as version"


def _lease(most: int) -> str:
    """What takes chunks with the earliest deadlines of the first of `accounts` that has any, at most so many, and charges it.
    `accounts` has the columns of `_ACCOUNT`.

    No others are locked: MATERIALIZED, because a re-evaluated LIMIT under FOR UPDATE can lock more rows than it returns. Of one
    chunk, which is the usual claim, nothing is added up.
    """
    chunks = f"""(select chunk_id from chunk where {CHUNK.guard("claim")} and pool_id = %(pool_id)s and tenant_id = a.tenant_id
       and (deadline, chunk_id) >= (a.first_deadline, a.first_chunk)
       order by deadline, chunk_id limit {most} for update skip locked)"""
    chosen = f"select c.chunk_id, a.weight, a.version from accounts a cross join lateral {chunks} c limit 1"
    charge = "select tenant_id, weight, version, est_tokens as tokens, 1 as n, deadline, chunk_id from leased"
    if most > 1:
        chosen = f"""select unnest(chunk_ids) as chunk_id, weight, version from (
     select c.chunk_ids, a.weight, a.version from accounts a
     cross join lateral (select array_agg(chunk_id) as chunk_ids from {chunks} x) c
     where c.chunk_ids is not null limit 1) one"""
        charge = """select tenant_id, weight, version, sum(est_tokens) as tokens, count(*) as n, max(deadline) as deadline,
              max(chunk_id) as chunk_id from leased group by 1, 2, 3"""
    return f"""
 next_chunks as materialized ({chosen}),
 leased as (update chunk c set state = '{ChunkState.LEASED}', token = token + 1, worker_id = %(worker_id)s
       from next_chunks where c.chunk_id = next_chunks.chunk_id
         and exists (select from worker where worker_id = %(worker_id)s and {WORKER_LEASE_HOLDS}) and {RELAXED} and {_BRIEFLY}
       returning c.chunk_id, c.token, c.worker_id, c.batch_id, c.run, c.tenant_id, c.lo, c.hi, c.seqs, c.n, c.est_tokens,
                 c.attempt, c.deaths, c.retries, c.deadline, next_chunks.weight, next_chunks.version),
 charged as (update sched s set vtime = s.vtime + l.tokens / l.weight, ready = s.ready - l.n,
              inflight_tokens = s.inflight_tokens + l.tokens, {_MARK_RAISED}
       from ({charge}) l where s.pool_id = %(pool_id)s and s.tenant_id = l.tenant_id)
select chunk_id, token, worker_id, batch_id, run, tenant_id, lo, hi, seqs, n, est_tokens, attempt, deaths, retries from leased"""


def _claim(most: int) -> str:
    return f"""
with accounts as (select * from (
       select s.vtime, {_ACCOUNT} from sched s join tenant w using (tenant_id)
       where s.pool_id = %(pool_id)s and s.turn is not null and s.inflight_tokens < w.max_inflight_tokens
       order by s.turn limit {_NEXT_ACCOUNTS}) next order by vtime, tenant_id),
{_lease(most)}"""


# By the number of chunks: accounts by virtual time, then the earliest deadlines. All chunks of a claim are of one account.
CLAIM = {chunks: _claim(chunks) for chunks in SIZES}

# The same, past the accounts that others have locked. For a claim that has waited for one.
CLAIM_FREE = f"""
with accounts as materialized (select {_ACCOUNT} from sched s join tenant w using (tenant_id)
       where s.pool_id = %(pool_id)s and s.turn is not null and s.inflight_tokens < w.max_inflight_tokens
       order by s.turn limit {_FREE_ACCOUNTS} for update of s skip locked),
{_lease(1)}"""

# The urgent lane: accounts by their earliest deadline, if it is near. Short deadlines buy no extra share: an account that is
# ahead of the lowest virtual time by more than `lead_tokens` is skipped, and the lane charges as an ordinary claim does.
CLAIM_URGENT = f"""
with lowest as materialized (select {_LOWEST.format(pool="%(pool_id)s")} as vtime),
 nearest as materialized (
   select tenant_id, deadline from chunk
   where {CHUNK.guard("claim")} and pool_id = %(pool_id)s and deadline < now() + make_interval(secs => %(urgent_seconds)s)
   order by deadline limit {_NEAREST_CHUNKS}),
 accounts as materialized (
   select {_ACCOUNT}
   from lowest, (select tenant_id, min(deadline) as deadline from nearest group by 1) c
     join sched s on s.pool_id = %(pool_id)s and s.tenant_id = c.tenant_id join tenant w on w.tenant_id = s.tenant_id
   where s.turn is not null and s.inflight_tokens < w.max_inflight_tokens and s.vtime <= lowest.vtime + %(lead_tokens)s / w.weight
   order by c.deadline limit 4),
{_lease(1)}"""

# ---------------------------------------------------------------- changes to several accounts at once


def free_accounts(rows: str) -> str:
    """The CTE `free`: the accounts of these rows, locked but for those that somebody else has. Were one waited for, all that are
    locked already would wait with it.
    """
    return f""" free as materialized (select s.pool_id, s.tenant_id
       from sched s join (select distinct pool_id, tenant_id from {rows}) x using (pool_id, tenant_id)
       order by s.pool_id, s.tenant_id for update of s skip locked)"""


def is_free(row: str) -> str:
    """Whether the account of a row is among `free`, or was deleted. What is not is left for the next round."""
    return f"""(exists (select from free f where (f.pool_id, f.tenant_id) = ({row}.pool_id, {row}.tenant_id))
         or not exists (select from sched s where (s.pool_id, s.tenant_id) = ({row}.pool_id, {row}.tenant_id)))"""


def waking(changes: str) -> str:
    """The CTE `changes`: rows by pool and tenant of `free` accounts that get work, with the `current_vtime` of the pool, which is
    read once for each.
    """
    return f""" awake as materialized ({changes}),
 now_at as materialized (select p.pool_id, {current_virtual_time("p.pool_id")} as vtime
       from (select distinct pool_id from awake) p),
 changes as materialized (select awake.*, now_at.vtime as current_vtime from awake join now_at using (pool_id))"""


WOKEN = woken("x.current_vtime")  # of account s of `sched` beside its row x of `changes`


def chunks_by_account(chunks: str) -> str:
    """How many of these chunks each account has in each pool, as `n`, and what lowers its mark if they become ready."""
    return f"""select pool_id, tenant_id, count(*) as n, min(deadline) as deadline, min(chunk_id) as chunk_id
       from {chunks} group by 1, 2"""


# ---------------------------------------------------------------- what ended leases have used

_USED = """select e.pool_id, e.tenant_id, min(w.weight) as weight, sum(e.est_tokens)::int8 as est_tokens,
             sum(e.used_tokens)::int8 as used_tokens, sum(e.served_tokens)::int8 as served_tokens
           from ended e join tenant w using (tenant_id) group by 1, 2"""

# Deltas of an account that is locked wait for the next fold; those of one that was deleted go.
FOLD_DELTAS = f"""
with taken as materialized (
       select delta_id, pool_id, tenant_id from sched_delta order by delta_id limit 5000 for update skip locked),
{free_accounts("taken")},
 ended as (delete from sched_delta d using taken t where d.delta_id = t.delta_id and {is_free("t")}
       returning d.pool_id, d.tenant_id, d.est_tokens, d.used_tokens, d.served_tokens),
 changes as materialized ({_USED}),
 corrected as (update sched s set inflight_tokens = s.inflight_tokens - x.est_tokens,
              served_tokens = s.served_tokens + x.served_tokens, vtime = s.vtime + (x.used_tokens - x.est_tokens) / x.weight
       from changes x where s.pool_id = x.pool_id and s.tenant_id = x.tenant_id)
select count(*) from ended"""

# ---------------------------------------------------------------- the cached counts

# Claims wait for these locks, so no lock is waited for while others are held. Which accounts are locked is kept for the
# statements that follow in the same message. RELAXED is in the text of both: a statement ahead would end their transaction.
_LOCK = """select set_config('slackwater.locked', coalesce(string_agg(concat_ws(':', pool_id, tenant_id), ','), ''), true)
from (select pool_id, tenant_id from sched where {where} for update {wait}) locked"""
LOCK_FREE_CACHES = _LOCK.format(where=RELAXED, wait="skip locked")
LOCK_CACHE = _LOCK.format(
    where=f"{RELAXED} and {_BRIEFLY} and pool_id = %(pool_id)s and tenant_id = %(tenant_id)s", wait=""
)

_LOCKED = """locked as materialized (select split_part(x, ':', 1)::int2 as pool_id, split_part(x, ':', 2)::int4 as tenant_id
         from string_to_table(nullif(current_setting('slackwater.locked'), ''), ',') x)"""
NOT_LOCKED = (
    f"with {_LOCKED} select pool_id, tenant_id from sched except select pool_id, tenant_id from locked order by 1, 2"
)

# A separate statement: under READ COMMITTED it sees what earlier holders of the locks have committed. A transaction that
# changes a chunk later, or folds a delta, has not changed `sched` yet, and adds its difference to the values written here.
RECOMPUTE = f"""
with {_LOCKED},
 counted as (select pool_id, tenant_id, sum(ready)::int as ready, sum(tokens)::bigint as inflight_tokens,
                   coalesce(bool_or(before_mark), false) as overlooked from (
         select pool_id, tenant_id, count(*) filter (where {CHUNK.guard("claim")}) as ready,
                coalesce(sum(est_tokens) filter (where {CHUNK.guard("finish")}), 0) as tokens,
                bool_or({CHUNK.guard("claim")} and (deadline, chunk_id) < (first_deadline, first_chunk)) as before_mark
         from chunk left join sched using (pool_id, tenant_id) group by 1, 2
         union all select pool_id, tenant_id, 0, est_tokens, false from sched_delta) every group by 1, 2),
 drift as (select s.pool_id, s.tenant_id, s.ready as old_ready, s.inflight_tokens as old_inflight,
                  coalesce(t.ready, 0) as ready, coalesce(t.inflight_tokens, 0) as inflight_tokens, t.overlooked
           from locked join sched s using (pool_id, tenant_id) left join counted t using (pool_id, tenant_id)
           where (s.ready, s.inflight_tokens) is distinct from (coalesce(t.ready, 0), coalesce(t.inflight_tokens, 0))
              or t.overlooked)
update sched s set ready = d.ready, inflight_tokens = d.inflight_tokens, drifts = drifts + 1,
              first_deadline = case when d.overlooked then '-infinity' else s.first_deadline end
from drift d
where s.pool_id = d.pool_id and s.tenant_id = d.tenant_id and {RELAXED}
returning s.pool_id, s.tenant_id, d.ready - d.old_ready, d.inflight_tokens - d.old_inflight"""
