"""The SQL of the console's own reads. What another module reads already is read through it.

Every statement is bounded: it walks an index from a position, looks keys up, or stops counting. Nothing is counted over items.
"""

from collections.abc import Collection

from app.db.name_prefix import begins
from app.engines.sql import AWAY, OVERDUE, SILENT_SECONDS
from app.queue.item_counts_sql import DELTAS, FOLDED_TOKENS, OF_ENGINE
from app.states import EngineState
from app.worker_lease import WORKER_LEASE_HOLDS

MOST_COUNTED = 1000

RAIL = f"""
select (select count(*) from (select from batch where finalized_at is null and kind = 'batch'
          and (%(tenant_id)s::int is null or tenant_id = %(tenant_id)s) limit {MOST_COUNTED}) o)::int,
       e.ready, e.known
from (select count(*) filter (where e.state = '{EngineState.READY}' and w.{WORKER_LEASE_HOLDS})::int as ready,
             count(*)::int as known
      from engine e left join worker w on w.worker_id = e.worker_id
      where w.{WORKER_LEASE_HOLDS} or e.heartbeat_at > now() - interval '1 day') e"""

_FOLDED = f"""
select b.batch_id, b.request_id, t.tenant_id, t.account_id, b.model, b.state, b.run, b.total,
       b.ok + coalesce(d.ok, 0), b.failed + coalesce(d.failed, 0), {FOLDED_TOKENS},
       b.created_at, b.opened_at, b.finalized_at, b.expires_at, b.tags, b.meta, b.policy, b.endpoint, b.line_id, b.traceparent,
       b.name, b.est_tokens, b.pipeline_id
from {{source}} join tenant t on t.tenant_id = b.tenant_id{DELTAS}"""

ONE = (
    _FOLDED.format(source="batch b")
    + """
where b.request_id = %(request_id)s and b.kind in ('batch', 'stage')
  and (%(tenant_id)s::int is null or b.tenant_id = %(tenant_id)s)"""
)

SELECTED = (
    _FOLDED.format(source="batch b")
    + """
where b.request_id = any(%(ids)s) and b.kind = 'batch' and (%(tenant_id)s::int is null or b.tenant_id = %(tenant_id)s)
order by b.created_at desc, b.request_id desc"""
)

_WHERE = {
    "tenant_id": "b.tenant_id = %(tenant_id)s",
    "account": "b.tenant_id = (select tenant_id from tenant where account_id = %(account)s)",
    "open": "b.finalized_at is null",
    "ended": "b.finalized_at is not null",
    "state": "b.state = %(state)s",
    "failed": "b.failed > 0",
    "model": "b.model = %(model)s",
    "tags": "b.tags <> '{}' and b.tags @> %(tags)s::text[]",
    "meta": "b.meta is not null and b.meta @> %(meta)s::jsonb",
    "waits": """b.finalized_at is null and exists (select from batch_phase p
    where p.batch_id = b.batch_id and p.until is null and p.code = %(waits)s)""",
    "error": """b.failed > 0 and exists (select from batch_error e
    where e.batch_id = b.batch_id and e.run = b.run and e.error = %(error)s)""",
    "name": begins("b.name"),
    "id_from": "b.request_id >= %(id_from)s and b.request_id <= %(id_to)s",
    "after": "(b.created_at, b.request_id) < (%(after_at)s, %(after)s)",
    "before": "(b.created_at, b.request_id) > (%(before_at)s, %(before)s)",
}
CONDITIONS = tuple(_WHERE)


def page(given: Collection[str]) -> str:
    """A page of batches with the conditions of these names, newest first; with `before`, those just before it, oldest first."""
    conditions = ["b.kind = 'batch'", *(_WHERE[name] for name in _WHERE if name in given)]
    way = "asc" if "before" in given else "desc"
    chosen = (
        f"(select * from batch b where {' and '.join(conditions)} "
        f"order by b.created_at {way}, b.request_id {way} limit %(limit)s) b"
    )
    return _FOLDED.format(source=chosen) + f" order by b.created_at {way}, b.request_id {way}"


# The times at which evenly spaced items were done. Sorted, they are the progress of the whole batch, for sixty look-ups.
MOST_SAMPLED = 60
PROGRESS = f"""
select r.finished_at from generate_series(0, least(%(total)s, {MOST_SAMPLED}) - 1) s (i)
cross join lateral (select finished_at from item_result r where r.batch_id = %(batch_id)s
  and r.seq = (s.i::bigint * %(total)s / least(%(total)s, {MOST_SAMPLED}))::int order by run limit 1) r
order by 1"""

SUBMITTED = """
select k.name, l.workflow, l.task, f.input_file_id, f.completion_window, u.filename, u.bytes
from (select) one
left join line l on l.line_id = %(line_id)s left join api_key k on k.key_id = l.key_id
left join file_batch f on f.request_id = %(request_id)s
left join file u on u.file_id = %(file_id)s"""

# The newest events of a batch, each with its deliveries.
EVENTS = """
select v.kind, v.occurred_at, e.name, d.state, d.attempts
from (select * from event where batch_id = %(batch_id)s order by event_id desc limit %(limit)s) v
left join delivery d on d.event_id = v.event_id left join endpoint e on e.endpoint_id = d.endpoint_id
order by v.event_id desc, e.name"""

ENGINES = f"""
select e.engine_id, e.name, coalesce(p.model, ''), e.protection, e.state, e.reason, e.signal, e.value, e.threshold,
       extract(epoch from now() - e.reason_since)::float8, e.slots, e.allowance, {OF_ENGINE}, e.sync_in_flight,
       coalesce(w.{WORKER_LEASE_HOLDS}, false), e.intake, e.problems, {SILENT_SECONDS}, {OVERDUE}, {AWAY}
from engine e left join pool p on p.pool_id = e.pool_id left join worker w on w.worker_id = e.worker_id
where w.{WORKER_LEASE_HOLDS} or e.heartbeat_at > now() - interval '1 day' order by e.name"""

# What open batches wait for now: how many and since when, as the steward has noted it.
WAITS = """
select p.code, count(*)::int, min(p.at), sum(greatest(0, b.est_tokens * (1 - (b.ok + b.failed)::float8 / b.total)))::float8
from (select batch_id, code, at from batch_phase
      where until is null and (%(tenant_id)s::int is null or tenant_id = %(tenant_id)s) limit 10000) p
join batch b on b.batch_id = p.batch_id where b.finalized_at is null group by p.code"""
