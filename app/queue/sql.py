"""The SQL of submits, of a worker's verbs and of reads. What the steward and callers do to batches is in `care_queries`.

State guards come from `app.states`. Lock order everywhere: batch, chunk, sched. Every write by a worker carries the fence
(chunk_id, token, worker_id).
"""

from app.queue.poison import SUSPECT_ATTEMPTS
from app.states import CHUNK, BatchState, ChunkState, EngineIntake, EngineState

FENCE = f"chunk_id = %(chunk_id)s and token = %(token)s and worker_id = %(worker_id)s and {CHUNK.guard('finish')}"

# Idleness is not banked: on waking, a tenant's virtual time is lifted to the least of the active ones, and while none is
# active to the greatest of all, so that who was served before the pause is not behind whoever comes first after it.
NOW = """coalesce(min(m.vtime) filter (where m.ready > 0), max(m.vtime), 0) from sched m"""
WAKE = f"""case when s.ready > 0 then s.vtime else greatest(s.vtime,
    (select {NOW} where m.pool_id = s.pool_id)) end"""

# ---------------------------------------------------------------- ingest

NEXT_BATCH_ID = "select next_batch_id()"

INSERT_BATCH = """
insert into batch (batch_id, request_id, tenant_id, model, endpoint, total, deadline, expires_at, correlation_id, traceparent,
                   affinity, tags, meta, idempotency_key, request_hash, tells_items, kind, open_ended)
values (%(batch_id)s, %(request_id)s, %(tenant_id)s, %(model)s, %(endpoint)s, %(total)s,
        now() + make_interval(secs => %(deadline_seconds)s),
        case when %(expires)s then now() + make_interval(secs => %(deadline_seconds)s) end,
        %(correlation_id)s, %(traceparent)s, %(affinity)s, %(tags)s, %(meta)s, %(idempotency_key)s, %(request_hash)s,
        %(tells_items)s, %(kind)s, %(open_ended)s)
on conflict (tenant_id, idempotency_key) do nothing
returning run, deadline"""

# Taken for the length of a submit's transaction, so that a second one with the same key is told and does not wait.
TRY_KEY = "select pg_try_advisory_xact_lock(%(tenant_id)s, hashtext(%(idempotency_key)s))"

FIND_KEY = """
select request_id, request_hash from batch
where tenant_id = %(tenant_id)s and idempotency_key = %(idempotency_key)s"""

COPY_PAYLOAD = """copy item_payload (batch_id, seq, reference, model, endpoint, affinity, est_tokens, wants_json, stored, body)
from stdin (format binary)"""

COPY_CHUNKS = """copy chunk (batch_id, run, tenant_id, pool_id, lo, hi, seqs, n, est_tokens, deadline)
from stdin (format binary)"""
COPY_CHUNKS_TYPES = ("int8", "int2", "int4", "int2", "int4", "int4", "int4[]", "int4", "int4", "timestamptz")

ADD_READY = f"""
insert into sched as s (pool_id, tenant_id, ready, vtime)
values (%(pool_id)s, %(tenant_id)s, %(ready)s,
        (select {NOW} where m.pool_id = %(pool_id)s))
on conflict (pool_id, tenant_id) do update set vtime = {WAKE}, ready = s.ready + excluded.ready"""

# ---------------------------------------------------------------- the worker's verbs

REGISTER_WORKER = """
insert into worker (pool_id, host, pid, lease_until)
values (%(pool_id)s, %(host)s, %(pid)s, now() + make_interval(secs => %(lease_seconds)s)) returning worker_id"""

# A lapsed lease cannot be revived: its chunks may already be someone else's. The answer lists what the worker holds, by
# which it learns of cancelled and paused batches, and of leases it does not know of. No row: the lease has lapsed.
HEARTBEAT = f"""
with h as (update worker set lease_until = now() + make_interval(secs => %(lease_seconds)s), renewed_at = now()
           where worker_id = %(worker_id)s and lease_until > now() returning worker_id)
select c.chunk_id, c.token, c.batch_id, c.run, c.n, b.state
from h left join (chunk c join batch b on b.batch_id = c.batch_id)
  on c.worker_id = h.worker_id and {CHUNK.guard("finish", "c.")}"""

RETIRE_WORKER = f"""
delete from worker w where worker_id = %(worker_id)s
   and not exists (select from chunk c where c.worker_id = w.worker_id and {CHUNK.guard("finish", "c.")})"""

_LEASE = f"""
 u as (update chunk c set state = '{ChunkState.LEASED}', token = token + 1, worker_id = %(worker_id)s
       from k where c.chunk_id = k.chunk_id
         and exists (select from worker where worker_id = %(worker_id)s and lease_until > now())
       returning c.chunk_id, c.token, c.worker_id, c.batch_id, c.run, c.tenant_id, c.lo, c.hi, c.seqs, c.n, c.est_tokens,
                 c.attempt, c.deaths, c.retries, k.weight),
 s as (update sched s set vtime = s.vtime + u.est_tokens / u.weight, ready = s.ready - 1,
              inflight_tokens = s.inflight_tokens + u.est_tokens
       from u where s.pool_id = %(pool_id)s and s.tenant_id = u.tenant_id)
select chunk_id, token, worker_id, batch_id, run, tenant_id, lo, hi, seqs, n, est_tokens, attempt, deaths, retries from u
"""

_EARLIEST = f"""
   select c.chunk_id, t.weight from t cross join lateral (
     select chunk_id from chunk where {CHUNK.guard("claim")} and pool_id = %(pool_id)s and tenant_id = t.tenant_id
     order by deadline, chunk_id limit 1 for update skip locked) c limit 1"""

# Tenants by virtual time, the earliest deadline inside a tenant, exactly one chunk locked. MATERIALIZED, because a
# re-evaluated LIMIT under FOR UPDATE can lock more rows than it returns.
CLAIM = f"""
with t as (select s.tenant_id, w.weight from sched s join tenant w using (tenant_id)
           where s.pool_id = %(pool_id)s and s.ready > 0 and s.inflight_tokens < w.max_inflight_tokens
           order by s.vtime limit 256),
 k as materialized ({_EARLIEST}),
{_LEASE}"""

# The urgent lane: tenants by their earliest deadline, if that is near. Short deadlines buy no share: who is ahead of the
# tenant furthest behind by more than `lead_tokens` is passed over, and what the lane gives is charged as always.
CLAIM_URGENT = f"""
with floor as materialized (select coalesce(min(vtime) filter (where ready > 0), 0) as vtime from sched
                            where pool_id = %(pool_id)s),
 t as materialized (
   select s.tenant_id, w.weight from floor, sched s join tenant w using (tenant_id) cross join lateral (
     select deadline from chunk where {CHUNK.guard("claim")} and pool_id = %(pool_id)s and tenant_id = s.tenant_id
     order by deadline, chunk_id limit 1) c
   where (select min(deadline) from chunk where {CHUNK.guard("claim")} and pool_id = %(pool_id)s)
           < now() + make_interval(secs => %(urgent_seconds)s)
     and s.pool_id = %(pool_id)s and s.ready > 0 and s.inflight_tokens < w.max_inflight_tokens
     and c.deadline < now() + make_interval(secs => %(urgent_seconds)s)
     and s.vtime <= floor.vtime + %(lead_tokens)s / w.weight
   order by c.deadline limit 4),
 k as materialized ({_EARLIEST}),
{_LEASE}"""

# Only items without a durable result: a re-leased chunk resumes where its dead worker stopped. And none of a halted batch,
# whose chunk may be claimed just before a sweep finds it. Item and result are looked up by their keys, one by one: a chunk of
# grouped items spans most of its batch, and a plan over that range would read all of it.
LOAD = f"""
select x.seq, coalesce(p.model, b.model), coalesce(p.endpoint, b.endpoint), p.body, p.stored, b.traceparent, b.tells_items,
       b.kind, b.open_ended
from batch b
cross join lateral unnest(coalesce(%(seqs)s::int[], array(select generate_series(%(lo)s::int, %(hi)s::int))))
  with ordinality x (seq, place)
cross join lateral (select * from item_payload where batch_id = %(batch_id)s and seq = x.seq limit 1) p
left join lateral (select true as there from item_result
  where batch_id = %(batch_id)s and seq = x.seq and run = %(run)s limit 1) r on true
where b.batch_id = %(batch_id)s and b.state = '{BatchState.OPEN}' and r.there is null
order by x.place"""

# Columns of a result that the worker gives, with their types.
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
}
_COLUMNS = ", ".join(RESULT_COLUMNS)

# Stores results, an array per column, if the fence holds; the first result of an item wins, and only what is new counts as
# progress. Arrays, sent in binary, make one statement for any number of rows and spare the client most of its work.
# Returns the number of fenced chunks, 0 or 1.
FLUSH = f"""
with f as materialized (select chunk_id from chunk
           where chunk_id = %(chunk_id)s and token = %(token)s and worker_id = %(worker_id)s and {CHUNK.guard("flush")}
           for update),
 i as (insert into item_result (batch_id, run, {_COLUMNS})
       select %(batch_id)s, %(run)s, v.*
       from unnest({", ".join(f"%({name})b::{kind}[]" for name, kind in RESULT_COLUMNS.items())}) v
       where exists (select from f)
       on conflict do nothing returning ok),
 u as (update chunk c set done = c.done + new.ok, failed = c.failed + new.n - new.ok
       from f, (select coalesce(sum(ok), 0)::int as ok, count(*)::int as n from i) new where c.chunk_id = f.chunk_id)
select count(*) from f"""


# Counts come from item_result, the truth, so a chunk that was leased before counts correctly. Whatever has no result
# goes back as new, delayed chunks: an item cannot be lost by finishing early. Their token says that they were leased before.
# Suspects and, if split, all items get a chunk each; those that met a transient error go together; so does the rest.
# LIMIT 1 has each result looked up by its key, whatever the planner knows of a partition that is still growing.
# Always writes a delta, even 0/0: it is by deltas that the steward notices a batch.
FINISH = f"""
with d as (delete from chunk where {FENCE}
           returning batch_id, run, tenant_id, pool_id, lo, hi, seqs, n, est_tokens, deadline, attempt, deaths, retries,
                     charged_for, excused),
 item as (select x.seq, x.place, r.seq is null as missing, r.ok, r.prompt_tokens, r.cached_tokens, r.completion_tokens,
                 (x.seq = any(%(suspects)s::int[]))::int as suspect, (x.seq = any(%(retried)s::int[]))::int as retried
          from d cross join lateral
            unnest(coalesce(d.seqs, array(select generate_series(d.lo, d.hi)))) with ordinality x (seq, place)
          left join lateral (select * from item_result
            where batch_id = %(batch_id)s and seq = x.seq and run = %(run)s limit 1) r on true),
 c as (select count(*) filter (where not missing)::int as done, coalesce(sum(ok), 0)::int as ok,
              coalesce(sum(prompt_tokens), 0) as prompt_tokens, coalesce(sum(cached_tokens), 0) as cached_tokens,
              coalesce(sum(completion_tokens), 0) as completion_tokens from item),
 back as (insert into chunk (batch_id, run, tenant_id, pool_id, lo, hi, seqs, n, est_tokens, deadline, state,
                             attempt, deaths, retries, charged_for, excused, token, not_before)
       select d.batch_id, d.run, d.tenant_id, d.pool_id, m.lo, m.hi,
              case when m.n = 1 or (m.hi - m.lo + 1 = m.n and d.seqs is null) then null else m.seqs end, m.n,
              greatest(1, m.est_tokens), d.deadline, '{ChunkState.DELAYED}',
              least(d.attempt, case when %(split)s then {SUSPECT_ATTEMPTS} end), d.deaths + m.suspect, d.retries + m.retried,
              d.charged_for, d.excused, 1,
              now() + make_interval(secs => greatest(%(backoff_seconds)s, m.retried * %(retry_seconds)s))
       from d, (select min(seq) as lo, max(seq) as hi, count(*)::int as n, array_agg(seq order by place) as seqs,
                       suspect, retried,
                       sum((select p.est_tokens from item_payload p
                            where p.batch_id = %(batch_id)s and p.seq = item.seq))::int as est_tokens
                from item where missing
                group by suspect, retried, case when %(split)s or suspect = 1 then seq end) m),
 s as (update sched s set inflight_tokens = s.inflight_tokens - d.est_tokens,
              served_tokens = s.served_tokens + d.est_tokens::bigint * c.done / d.n,
              vtime = s.vtime + (c.prompt_tokens + c.completion_tokens - d.est_tokens) / w.weight
       from d, c, tenant w
       where w.tenant_id = d.tenant_id and s.pool_id = d.pool_id and s.tenant_id = d.tenant_id)
insert into batch_delta (batch_id, ok, failed, prompt_tokens, cached_tokens, completion_tokens)
select d.batch_id, c.ok, c.done - c.ok, c.prompt_tokens, c.cached_tokens, c.completion_tokens from d, c
returning ok + failed"""

# ---------------------------------------------------------------- reading


def _status(source: str = "batch b", more: str = "") -> str:
    return f"""
select {more}b.batch_id, b.request_id, b.model, b.state, b.run, b.total, b.created_at, b.finalized_at,
       b.ok + coalesce(d.ok, 0) + coalesce(c.done, 0), b.failed + coalesce(d.failed, 0) + coalesce(c.failed, 0),
       b.prompt_tokens, b.cached_tokens, b.completion_tokens, coalesce(c.started, false), b.deadline, b.expires_at,
       b.opened_at, b.endpoint, b.tags, b.meta
from {source}
left join lateral (select sum(ok)::int as ok, sum(failed)::int as failed from batch_delta x where x.batch_id = b.batch_id) d
  on b.finalized_at is null
left join lateral (select sum(done)::int as done, sum(failed)::int as failed, bool_or(token > 0) as started
                   from chunk x where x.batch_id = b.batch_id) c on b.finalized_at is null
"""


_ASKED = """unnest(%(tenant_ids)s::bigint[], %(request_ids)s::uuid[]) as asked (tenant_id, request_id)
join batch b on b.request_id = asked.request_id and b.tenant_id = asked.tenant_id"""
STATUS = f"{_status()} where b.tenant_id = %(tenant_id)s and b.request_id = %(request_id)s"
STATUSES = _status(_ASKED, "asked.tenant_id, ")


def _results(more: str = "") -> str:
    return f"""
select p.seq, p.reference, p.wants_json, coalesce(r.ok = 1, false), r.body,
       r.prompt_tokens, r.cached_tokens, r.completion_tokens, r.yields, coalesce(r.stored, false), p.model{more}
from item_payload p left join lateral (
  select ok, body, stored, prompt_tokens, cached_tokens, completion_tokens, yields from item_result r
  where r.batch_id = %(batch_id)s and r.seq = p.seq and (ok = 1 or run = %(run)s) order by ok desc, run desc limit 1) r on true
where p.batch_id = %(batch_id)s and p.seq >= %(after)s order by p.seq limit %(limit)s"""


RESULTS = _results()
RESULTS_AND_ITEMS = _results(", p.body, p.stored")

# What a pool did lately: its newest note that says so.
PACE = """(select tokens_per_second as pace, spread from pace where pace.pool_id = {pool}
    and tokens_per_second is not null order by at desc limit 1)"""

# What is left of the chunks that are with an engine. They are few, whatever the backlog.
_LEASED = f"""
 running as materialized (
  select pool_id, tenant_id, deadline, est_tokens, est_tokens::float8 * (n - done - failed) / n as tokens
  from chunk where {CHUNK.guard("finish")}),
 leased as materialized (
  select pool_id, tenant_id, sum(tokens) as tokens, avg(est_tokens)::float8 as mean from running group by 1, 2)"""


def _others(pool: str, tenant: str, size: str) -> str:
    """The other accounts that have work in a pool: weights, and tokens that wait or run. The chunks that wait are counted, not
    read: those of an account are taken to be as large as what it has with an engine, or else as what others have, or as `size`.
    """
    return f"""(
  select array_agg(other.weight::float8) as weights,
         array_agg((coalesce(l.tokens, 0) + s.ready * coalesce(l.mean, m.mean, {size}, 0))::float8) as tokens
  from sched s join tenant other on other.tenant_id = s.tenant_id
  left join leased l on l.pool_id = s.pool_id and l.tenant_id = s.tenant_id
  cross join (select avg(mean) as mean from leased where pool_id = {pool}) m
  where s.pool_id = {pool} and s.tenant_id <> {tenant} and (s.ready > 0 or s.inflight_tokens > 0))"""


# The line in front of a batch is counted up to a thousand chunks, so that a poll stays cheap whatever the backlog; batches of
# one account in one pool share it. What of the account's earlier ones is with an engine comes first, too.
OUTLOOKS = f"""
with{_LEASED},
 asked as materialized (
  select batch_id, max(pool_id) as pool_id, max(tenant_id) as tenant_id, avg(est_tokens) as mean,
         sum(est_tokens::float8 * (n - done - failed) / n) as tokens,
         min(deadline) as deadline,
         count(*) filter (where {CHUNK.guard("claim")})::int as ready,
         count(*) filter (where {CHUNK.guard("finish")})::int as leased,
         count(*) filter (where {CHUNK.guard("promote")})::int as delayed,
         count(*) filter (where {CHUNK.guard("release")})::int as held, min(not_before) as not_before,
         (array_agg(chunk_id order by deadline, chunk_id) filter (where {CHUNK.guard("claim")}))[1] as first
  from chunk where batch_id = any(%(batch_ids)s) group by batch_id),
 pairs as (select distinct pool_id, tenant_id from asked),
 line as materialized (
  select p.pool_id, p.tenant_id, c.chunk_id, row_number() over w - 1 as chunks, sum(c.est_tokens) over w - c.est_tokens as tokens
  from pairs p cross join lateral (
    select chunk_id, deadline, est_tokens from chunk
    where {CHUNK.guard("claim")} and pool_id = p.pool_id and tenant_id = p.tenant_id order by deadline, chunk_id limit 1001) c
  window w as (partition by p.pool_id, p.tenant_id order by c.deadline, c.chunk_id)),
 ends as (select pool_id, tenant_id, max(chunks) as chunks, max(tokens) as tokens from line group by 1, 2),
 accounts as (
  select p.pool_id, p.tenant_id, sum(s.inflight_tokens)::bigint as inflight,
         max(s.inflight_tokens) filter (where s.tenant_id = p.tenant_id) as own
  from pairs p join sched s using (pool_id) group by 1, 2)
select a.batch_id, a.pool_id, now(), a.ready, a.leased, a.delayed, a.held,
       extract(epoch from a.not_before - now())::float8, a.tokens,
       coalesce(l.chunks, case when a.first is not null then e.chunks end, 0)::int,
       (coalesce(l.tokens, case when a.first is not null then e.tokens end, 0)
         + coalesce(i.tokens, 0))::float8,
       t.weight::float8, coalesce(o.weights, '{{}}'), coalesce(o.tokens, '{{}}'), r.pace, r.spread,
       coalesce(s.inflight, 0), coalesce(s.own, 0), t.max_inflight_tokens
from asked a join tenant t on t.tenant_id = a.tenant_id
left join line l on l.chunk_id = a.first
left join ends e on e.pool_id = a.pool_id and e.tenant_id = a.tenant_id
left join accounts s on s.pool_id = a.pool_id and s.tenant_id = a.tenant_id
left join lateral (select sum(tokens) as tokens from running
  where pool_id = a.pool_id and tenant_id = a.tenant_id and deadline < a.deadline) i on true
left join lateral {_others("a.pool_id", "a.tenant_id", "a.mean")} o on true
left join lateral {PACE.format(pool="a.pool_id")} r on true"""

_FIRST = (
    f"""(select est_tokens from chunk where {CHUNK.guard("claim")} and pool_id = p.pool_id order by deadline limit 1)"""
)

# What OUTLOOKS says of a batch, for one that is not there yet.
PROSPECT = f"""
with{_LEASED},
 p as materialized (select pool_id from pool where model = %(model)s)
select coalesce((select sum(c.est_tokens::float8 * (c.n - c.done - c.failed) / c.n) from chunk c
                 where c.pool_id = p.pool_id and c.tenant_id = t.tenant_id), 0)::float8,
       t.weight::float8, coalesce(o.weights, '{{}}'), coalesce(o.tokens, '{{}}'), r.pace,
       (select count(*) from engine e join worker w using (worker_id)
        where e.pool_id = p.pool_id and e.state = '{EngineState.READY}' and e.intake = '{EngineIntake.OPEN}'
          and w.lease_until > now())::int
from p join tenant t on t.tenant_id = %(tenant_id)s
left join lateral {_others("p.pool_id", "t.tenant_id", _FIRST)} o on true
left join lateral {PACE.format(pool="p.pool_id")} r on true"""

# How pressed the pool is: the least share of its window that a batch near its deadline will have left, at the pace of the last
# minutes, while none is known by the time that is left alone. Only the next few to expire are asked after.
PRESSURE = f"""
with due as materialized (
  select batch_id, opened_at, expires_at from batch
  where state = '{BatchState.OPEN}' and expires_at is not null
    and exists (select from chunk c where c.batch_id = batch.batch_id and c.pool_id = %(pool_id)s)
  order by expires_at limit 20),
 rate as (select case when pace is not null then greatest(pace, 1) end as pace
          from (select) one left join lateral {PACE.format(pool="%(pool_id)s")} r on true)
select min((extract(epoch from due.expires_at - now()) - coalesce(work.tokens / rate.pace, 0))
           / greatest(extract(epoch from due.expires_at - due.opened_at), 1))::float8
from rate, due cross join lateral (
  select sum(est_tokens::float8 * (n - done - failed) / n) as tokens from chunk
  where batch_id = due.batch_id and pool_id = %(pool_id)s) work
where work.tokens > 0"""

GATES = f"""
select e.pool_id, e.engine_id, e.name, e.state, e.allowance, e.reason, e.signal, e.value, e.threshold, e.reason_since,
       e.heartbeat_at, coalesce(w.lease_until > now(), false), e.detail,
       extract(epoch from e.expected_at - least(now(), e.expected_at))::float8, e.intake <> '{EngineIntake.OPEN}'
from engine e left join worker w on w.worker_id = e.worker_id where e.pool_id = any(%(pool_ids)s) order by e.name"""

# What the last batches whose answers may take what is left of the context were answered, by model and account.
ANSWER_LENGTHS = """
select m.model, b.tenant_id, sum(b.ok)::int, sum(b.completion_tokens)::bigint
from unnest(%(models)s::text[]) m (model) cross join lateral (
  select tenant_id, ok, completion_tokens from batch
  where batch.model = m.model and open_ended order by batch_id desc limit %(recent)s) b
where b.ok > 0 group by 1, 2"""
