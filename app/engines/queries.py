"""All SQL of pools and engines."""

from app.states import ENGINE, EngineState

FIND_POOL = "select pool_id from pool where model = %(model)s"
ADD_POOL = "insert into pool (model) values (%(model)s) on conflict (model) do nothing"

# Of one URL at a time, so that two workers do not both find it free.
ONE_URL = "select pg_advisory_xact_lock(hashtext('engine'), hashtext(%(url)s))"

# The controller lease: an engine row names the worker that controls it, and that worker's own lease says how long.
_FREE = """(e.worker_id is null or e.worker_id = excluded.worker_id or not exists
    (select from worker w where w.worker_id = e.worker_id and w.lease_until > now()))"""

TAKE = f"""
insert into engine as e (name, pool_id, url, arrival_url, mode, slots, worker_id, state)
select %(name)s, %(pool_id)s, %(url)s, %(arrival_url)s, %(mode)s, %(slots)s, %(worker_id)s, '{EngineState.STARTING}'
where not exists (select from engine o join worker w on w.worker_id = o.worker_id
                  where o.url = %(url)s and o.name <> %(name)s and o.worker_id <> %(worker_id)s and w.lease_until > now())
on conflict (name) do update set pool_id = excluded.pool_id, url = excluded.url,
    arrival_url = excluded.arrival_url, mode = excluded.mode, slots = excluded.slots,
    worker_id = excluded.worker_id, state = excluded.state, reason = null, allowance = 0, heartbeat_at = now(),
    signal = null, value = null, threshold = null, reason_since = now()
where {_FREE} and {ENGINE.guard("restart", "e.")}
returning engine_id"""


def report(verb: str) -> str:
    """The holder's word on its engine: state, allowance and reason, and by Postgres's clock since when these two hold."""
    target = next(t.target for t in ENGINE.transitions if t.verb == verb)
    return f"""
update engine set state = '{target}', reason = %(reason)s, allowance = %(allowance)s, heartbeat_at = now(),
    signal = %(signal)s, value = %(value)s, threshold = %(threshold)s,
    reason_since = case when (state, reason) is distinct from ('{target}', %(reason)s) then now() else reason_since end
where engine_id = %(engine_id)s and worker_id = %(worker_id)s and {ENGINE.guard(verb)} returning engine_id"""


RELEASE = f"""
update engine set state = '{EngineState.DOWN}', worker_id = null, reason = 'released', allowance = 0,
    heartbeat_at = now(), signal = null, value = null, threshold = null, reason_since = now()
where engine_id = %(engine_id)s and worker_id = %(worker_id)s and {ENGINE.guard("report_down")}"""

LIST = """
select e.engine_id, e.name, p.model, e.url, e.arrival_url, e.mode, e.slots, e.state, e.reason, e.allowance, e.heartbeat_at,
       coalesce(w.lease_until > now(), false)
from engine e join pool p using (pool_id) left join worker w on w.worker_id = e.worker_id order by e.name"""
