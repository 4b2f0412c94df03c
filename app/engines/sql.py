"""The SQL of pools and engines."""

from app.changes import sql as changes
from app.changes.kinds import ChangeKind
from app.engines.adoption import DOWN, MISSING, TOO_SMALL
from app.engines.engine_report import REPORT_COLUMNS
from app.states import CHUNK, ENGINE, INTAKE, EngineIntake, EngineState
from app.worker_lease import WORKER_LEASE_HOLDS, WORKER_LEASE_LAPSED, worker_overdue

FIND_POOL = "select pool_id from pool where model = %(model)s"
ADD_POOL = "insert into pool (model) values (%(model)s) on conflict (model) do nothing"

# The first engine of a model that no catalogue describes promises its context window. While another live engine keeps that
# promise, it does not change. Else an engine may promise more, or less if no unfinished chunk was accepted under the old
# promise. LOCK_POOL serialises this for each pool.
LOCK_POOL = "select from pool where pool_id = %(pool_id)s for no key update"
_IN_FORCE = f"""case
    when p.context_window is null then %(window)s
    when exists (select from engine o join worker w using (worker_id)
                 where o.pool_id = p.pool_id and o.name <> %(name)s and w.{WORKER_LEASE_HOLDS}
                   and o.reason is distinct from '{MISSING}' and o.reason is distinct from '{TOO_SMALL}') then p.context_window
    when %(window)s < p.context_window and exists (select from chunk c where c.pool_id = p.pool_id) then p.context_window
    else %(window)s end"""
PROMISE = f"""
update pool p set context_window = {_IN_FORCE}, task = %(task)s
where p.pool_id = %(pool_id)s returning context_window"""
PROMISED = f"select {_IN_FORCE} from pool p where p.model = %(model)s"
ADOPTED = "select model, context_window, coalesce(task, 'text-generation') from pool where context_window is not null"

SERVED = "select model from pool where exists (select from engine where engine.pool_id = pool.pool_id)"

# Serialises TAKE for each URL, so that two workers cannot both take it.
ONE_URL = "select pg_advisory_xact_lock(hashtext('engine'), hashtext(%(url)s))"

# The controller lease: an engine row names the worker that controls it. It holds as long as that worker's lease.
_FREE = f"""(e.worker_id is null or e.worker_id = excluded.worker_id or not exists
    (select from worker w where w.worker_id = e.worker_id and w.{WORKER_LEASE_HOLDS}))"""

# Without a lock, and without an id of the sequence, which TAKE uses up: a worker that stands by asks this twice a second.
IS_TAKEN = f"""
select from engine e join worker w using (worker_id)
where (e.name = %(name)s or e.url = %(url)s) and w.worker_id <> %(worker_id)s and w.{WORKER_LEASE_HOLDS}"""

# Who takes the engine of a worker whose lease has lapsed notes its loss: after it nobody knows which engine that worker had.
# It waits for a steward that takes the worker's chunks back at this moment, and that has noted the loss then.
_LOST = f"""select now(), '{ChangeKind.WORKER_LOST}', l.name,
  jsonb_strip_nulls(jsonb_build_object('engine', l.name, 'worker', l.worker_id, 'host', l.host, 'pid', l.pid,
    'silent_seconds', round(extract(epoch from now() - l.renewed_at)::numeric, 1),
    'batches', work.batches, 'chunks', work.chunks))
  from lost l join taken on true
  cross join lateral (select count(*) as chunks, jsonb_agg(distinct b.request_id) as batches
    from chunk c join batch b using (batch_id) where c.worker_id = l.worker_id and {CHUNK.guard("reap", "c.")}) work"""

# Another model, or an engine that we start in place of one that somebody else does, or the reverse.
_REPLACED = f"""select now(), '{ChangeKind.ENGINE_REPLACED}', f.name, jsonb_build_object('engine', f.name, 'from', f.model,
    'to', (select model from pool where pool_id = %(pool_id)s), 'mode', %(mode)s::text)
  from former f join taken on true where (f.pool_id, f.mode) is distinct from (%(pool_id)s, %(mode)s::text)"""
TAKE = f"""
with former as materialized (select e.name, e.pool_id, e.mode, p.model from engine e join pool p using (pool_id)
       where e.name = %(name)s),
lost as materialized (select e.name, w.worker_id, w.host, w.pid, w.renewed_at from engine e join worker w using (worker_id)
       where e.name = %(name)s and w.worker_id <> %(worker_id)s and w.{WORKER_LEASE_LAPSED} for update of w),
taken as (
insert into engine as e (name, pool_id, url, arrival_url, mode, slots, worker_id, state)
select %(name)s, %(pool_id)s, %(url)s, %(arrival_url)s, %(mode)s, %(slots)s, %(worker_id)s, '{EngineState.STARTING}'
where not exists (select from engine o join worker w on w.worker_id = o.worker_id
                  where o.url = %(url)s and o.name <> %(name)s and o.worker_id <> %(worker_id)s and w.{WORKER_LEASE_HOLDS})
on conflict (name) do update set pool_id = excluded.pool_id, url = excluded.url,
    arrival_url = excluded.arrival_url, mode = excluded.mode, slots = excluded.slots,
    worker_id = excluded.worker_id, state = excluded.state, reason = null, allowance = 0, heartbeat_at = now(),
    reason_since = case when e.reason = '{DOWN}' then e.reason_since
      when excluded.mode = 'attached' and e.state = '{EngineState.READY}'
        then greatest(e.heartbeat_at, (select w.renewed_at from worker w where w.worker_id = e.worker_id)) else now() end,
    signal = null, value = null, threshold = null, detail = null, problems = '[]', batch_in_flight = 0,
    in_engine = '{{}}', sync_in_flight = 0, expected_at = null,
    start_seconds = case when (e.pool_id, e.mode) = (excluded.pool_id, excluded.mode) then e.start_seconds end
where {_FREE} and {ENGINE.guard("restart", "e.")}
returning engine_id),
marked as (update worker w set noted = true from lost join taken on true where w.worker_id = lost.worker_id),
noted as ({changes.also(f"{_LOST} union all {_REPLACED}")})
select engine_id from taken"""


# By the workers that hold their engines: state, reason and allowance. `reason_since` is PostgreSQL's time; an engine that its new
# worker finds down has been so since an earlier worker found it down, else since one was heard of last, if that had it ready; an
# engine that the worker starts itself, since it was taken. What the reports
# change for the installation is noted: that an engine serves, does not, or has another version. For a statement with a CTE
# `renewed` of workers; `reported` has the engines whose workers control them.
_READY = f"case when r.ready then '{ENGINE.target('report_ready')}' else '{ENGINE.target('report_down')}' end"
_MAY_REPORT = (
    f"case when r.ready then {ENGINE.guard('report_ready', 'e.')} else {ENGINE.guard('report_down', 'e.')} end"
)
_MOVED = f"""select now(), case when r.ready then '{ChangeKind.ENGINE_READY}' else '{ChangeKind.ENGINE_DOWN}' end, b.name,
  jsonb_strip_nulls(jsonb_build_object('engine', b.name, 'reason', r.reason, 'was', b.reason, 'detail', r.detail,
    'version', r.version, 'seconds', round(extract(epoch from now() - b.reason_since)::numeric, 1)))
  from before b join reported using (engine_id) join report r using (engine_id)
  where r.ready <> (b.state = '{EngineState.READY}')
union all select now(), '{ChangeKind.ENGINE_VERSION}', b.name,
  jsonb_build_object('engine', b.name, 'from', b.version, 'to', r.version)
  from before b join reported using (engine_id) join report r using (engine_id) where b.version <> r.version"""
REPORTED = f"""
 report as materialized (
  select r.* from unnest({", ".join(f"%({name})s::{kind}[]" for name, kind in REPORT_COLUMNS.items())})
    r ({", ".join(REPORT_COLUMNS)}) join renewed using (worker_id)),
 before as materialized (
  select e.engine_id, e.name, e.state, e.version, e.reason, e.reason_since from engine e join report using (engine_id)),
 reported as (update engine e set state = {_READY}, reason = r.reason, allowance = r.allowance, heartbeat_at = now(),
    signal = r.signal, value = r.value, threshold = r.threshold, detail = r.detail,
    served_name = r.served_name, serves = array(select jsonb_array_elements_text(r.serves::jsonb)),
    max_model_len = r.max_model_len, version = r.version, scheduling_policy = r.scheduling_policy, protection = r.protection,
    problems = r.problems::jsonb, dialect = r.dialect, slots = coalesce(r.slots, e.slots),
    batch_in_flight = r.batch_in_flight, in_engine = r.in_engine::jsonb, sync_in_flight = r.sync_in_flight,
    start_seconds = coalesce(r.start_seconds, e.start_seconds),
    expected_at = now() + make_interval(secs => r.expected_seconds),
    reason_since = case when (e.state, e.reason) is distinct from ({_READY}, r.reason)
      and not (e.state = '{EngineState.STARTING}' and r.reason = '{DOWN}') then now() else e.reason_since end
  from report r where e.engine_id = r.engine_id and e.worker_id = r.worker_id and {_MAY_REPORT}
  returning e.engine_id, e.worker_id, e.intake),
 noted as ({changes.also(_MOVED)})"""

# The same where no report has news: the rows of the engines stay as they are.
UNCHANGED = """
 reported as (select e.engine_id, e.worker_id, e.intake from renewed join engine e using (worker_id)
       where e.engine_id = any(%(engine_ids)s::bigint[]))"""

# `lapsed`: its worker goes on, but has lost its lease.
_RELEASED = f"""select now(), '{ChangeKind.ENGINE_RELEASED}', name,
  jsonb_strip_nulls(jsonb_build_object('engine', name, 'lapsed', nullif(%(lapsed)s, false), 'silent_seconds',
    case when %(lapsed)s and lapsed then round(extract(epoch from now() - renewed_at)::numeric, 1) end))
  from before, released where before.state = '{EngineState.READY}'"""
# An engine that did not answer still does not: whoever takes it goes on counting.
_WAS_DOWN = f"reason is not distinct from '{DOWN}'"
RELEASE = f"""
with before as materialized (select e.name, e.state, w.renewed_at, w.{WORKER_LEASE_LAPSED} as lapsed
  from engine e left join worker w on w.worker_id = %(worker_id)s where engine_id = %(engine_id)s),
released as (update engine set state = '{EngineState.DOWN}', worker_id = null, allowance = 0,
    reason = case when {_WAS_DOWN} then reason else 'released' end,
    reason_since = case when {_WAS_DOWN} then reason_since else now() end,
    heartbeat_at = now(), signal = null, value = null, threshold = null, detail = null,
    expected_at = null, problems = '[]', batch_in_flight = 0, in_engine = '{{}}', sync_in_flight = 0
where engine_id = %(engine_id)s and worker_id = %(worker_id)s and {ENGINE.guard("report_down")} returning engine_id)
{changes.also(_RELEASED)}"""

HOLDER = f"""
select e.worker_id, w.host, w.pid, e.name, e.url, e.mode, coalesce(p.model, ''), w.lease_until
from engine e join worker w using (worker_id) left join pool p on p.pool_id = e.pool_id
where (e.name = %(name)s or e.url = %(url)s) and w.{WORKER_LEASE_HOLDS} order by e.name <> %(name)s limit 1"""

START_SECONDS = "select start_seconds from engine where engine_id = %(engine_id)s"

# An engine whose model is unknown, or that contradicts the settings. A worker reports it without controlling it.
NOTE = f"""
insert into engine as e (name, url, mode, state, reason, problems)
values (%(name)s, %(url)s, %(mode)s, '{EngineState.DOWN}', %(reason)s, %(problems)s)
on conflict (name) do update set url = excluded.url, mode = excluded.mode, state = excluded.state, worker_id = null,
    reason = excluded.reason, allowance = 0, heartbeat_at = now(), signal = null, value = null, threshold = null,
    detail = null, expected_at = null, problems = excluded.problems,
    reason_since = case when (e.state, e.reason) is distinct from (excluded.state, excluded.reason) then now()
                   else e.reason_since end
where {_FREE} and {ENGINE.guard("report_down", "e.")}"""

# Of engine e with its worker w: how long ago it was reported, and whether its worker is late with that.
SILENT_SECONDS = "extract(epoch from now() - greatest(e.heartbeat_at, w.renewed_at))::float8"
OVERDUE = f"coalesce({worker_overdue('w.')}, false)"

# Of engine e: how the process of one that does not serve ended, and whether no worker has it.
_ENDED = f"case when e.state <> '{EngineState.READY}' then e.detail end, e.worker_id is null"

# Of engine e: these, who starts it, and how long its last start took.
AWAY = f"e.mode, {_ENDED}, e.start_seconds"

# Engine e with its worker w: others were last heard of so long ago that only the overview and the status of all still show them.
KNOWN_OF = f"(w.{WORKER_LEASE_HOLDS} or e.heartbeat_at > now() - interval '1 day')"

LIST = f"""
select e.engine_id, e.name, p.model, e.url, e.arrival_url, e.mode, e.slots, e.state, e.reason, e.allowance, e.heartbeat_at,
       coalesce(w.{WORKER_LEASE_HOLDS}, false), e.intake, e.served_name,
       extract(epoch from e.expected_at - least(now(), e.expected_at))::float8, e.dialect, e.batch_in_flight,
       coalesce(w.hungry, false)
from engine e join pool p using (pool_id) left join worker w on w.worker_id = e.worker_id
where {KNOWN_OF} order by e.name"""


def change_intake(verb: str) -> str:
    """UPDATE of one engine's intake by `verb`: drain, drain now or undrain."""
    kind = ChangeKind.ENGINE_UNDRAINED if verb == "undrain" else ChangeKind.ENGINE_DRAINED
    rows = f"select now(), '{kind}', %(name)s, jsonb_build_object('engine', %(name)s::text) from changed"
    return f"""
with old as materialized (select engine_id, intake from engine where name = %(name)s and {INTAKE.guard(verb)} for no key update),
changed as (update engine e set intake = '{INTAKE.target(verb)}', intake_since = now()
  from old where e.engine_id = old.engine_id returning old.intake as before, e.intake as after),
noted as ({changes.also(rows)})
select before, after from changed"""


# The rows of engines that a list names, and of those that were given a name of this beginning.
KNOWN = f"""
select e.name, e.url, coalesce(w.{WORKER_LEASE_HOLDS}, false), e.intake <> '{EngineIntake.OPEN}'
from engine e left join worker w on w.worker_id = e.worker_id
where e.url = any(%(urls)s::text[]) or e.name = any(%(names)s::text[]) or starts_with(e.name, %(prefix)s::text)"""

EXISTS = "select from engine where name = %(name)s"
ID_OF = "select engine_id from engine where name = %(name)s"

# Leased chunks are counted now; the other values are as old as the last heartbeat.
OVERVIEW = f"""
select e.name, coalesce(p.model, ''), e.mode, e.state, e.reason, e.reason_since, e.intake, e.intake_since, e.allowance,
       e.slots, e.batch_in_flight, e.sync_in_flight, e.url, e.heartbeat_at, w.host, w.pid,
       coalesce(w.{WORKER_LEASE_HOLDS}, false),
       (select count(*)::int from chunk c where {CHUNK.guard("finish", "c.")} and c.worker_id = e.worker_id),
       extract(epoch from now() - e.intake_since)::float8, e.problems, e.start_seconds, {SILENT_SECONDS}, {OVERDUE},
       e.worker_id is null
from engine e left join pool p using (pool_id) left join worker w on w.worker_id = e.worker_id order by e.name"""

# What is told of the state of every engine.
STATES = f"""
select e.state, e.mode, e.reason, coalesce(w.{WORKER_LEASE_HOLDS}, false)
from engine e left join worker w on w.worker_id = e.worker_id"""

# The engines for status documents: also those without a worker, if a worker reported them within the last day.
RECENT = f"""
select e.name, p.model, e.mode, e.state, e.reason, e.signal, e.value, e.threshold, e.reason_since, e.slots, e.allowance,
       e.serves, e.max_model_len, e.version, e.scheduling_policy, e.protection, e.problems,
       coalesce(w.{WORKER_LEASE_HOLDS}, false), {SILENT_SECONDS},
       extract(epoch from now() - e.reason_since)::float8, e.intake, e.dialect, {OVERDUE},
       {_ENDED}
from engine e left join pool p using (pool_id) left join worker w on w.worker_id = e.worker_id
where {KNOWN_OF} order by e.name"""

# Not what an operator has drained: that outlives the engine's worker. Results keep its id, without a name.
_GONE = f"""select e.engine_id from engine e
       where e.heartbeat_at < now() - make_interval(days => %(days)s) and e.intake = '{EngineIntake.OPEN}'
         and not exists (select from worker w where w.worker_id = e.worker_id and w.{WORKER_LEASE_HOLDS})"""
FORGET = f"""
delete from engine where engine_id in (
       {_GONE} order by e.engine_id limit %(limit)s for update skip locked)
returning engine_id"""
COUNT_GONE = f"select count(*) from ({_GONE}) gone"
