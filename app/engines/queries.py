"""All SQL of pools and engines."""

from app.states import ENGINE, EngineState

FIND_POOL = "select pool_id from pool where model = %(model)s"
ADD_POOL = "insert into pool (model) values (%(model)s) on conflict (model) do nothing"

# The controller lease: an engine row names the worker that controls it, and that worker's own lease says how long.
_FREE = """(e.worker_id is null or e.worker_id = excluded.worker_id or not exists
    (select from worker w where w.worker_id = e.worker_id and w.lease_until > now()))"""

TAKE = f"""
insert into engine as e (name, pool_id, url, mode, worker_id, state)
values (%(name)s, %(pool_id)s, %(url)s, %(mode)s, %(worker_id)s, '{EngineState.STARTING}')
on conflict (name) do update set pool_id = excluded.pool_id, url = excluded.url, mode = excluded.mode,
    worker_id = excluded.worker_id, state = excluded.state, reason = null, allowance = 0, heartbeat_at = now()
where {_FREE} and {ENGINE.guard("restart", "e.")}
returning engine_id"""


def report(verb: str) -> str:
    """The holder's word on its engine: state, allowance and reason."""
    target = next(t.target for t in ENGINE.transitions if t.verb == verb)
    return f"""
update engine set state = '{target}', reason = %(reason)s, allowance = %(allowance)s, heartbeat_at = now()
where engine_id = %(engine_id)s and worker_id = %(worker_id)s and {ENGINE.guard(verb)} returning engine_id"""


RELEASE = f"""
update engine set state = '{EngineState.DOWN}', worker_id = null, reason = 'released', allowance = 0,
    heartbeat_at = now()
where engine_id = %(engine_id)s and worker_id = %(worker_id)s and {ENGINE.guard("report_down")}"""

LIST = """
select e.engine_id, e.name, p.model, e.url, e.mode, e.state, e.reason, e.allowance, e.heartbeat_at,
       coalesce(w.lease_until > now(), false)
from engine e join pool p using (pool_id) left join worker w on w.worker_id = e.worker_id order by e.name"""
