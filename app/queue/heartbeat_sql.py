"""The SQL of a heartbeat: one statement for all workers of a process."""

from app.engines import sql as engines
from app.queue import pool_status_sql as pools
from app.states import CHUNK
from app.worker_lease import WORKER_LEASE_HOLDS


# In an order, so that an index answers it also where nothing is ready: EXISTS would read the table.
def _some_ready(pool: str) -> str:
    return f"""(
        select chunk_id from chunk where {CHUNK.guard("claim")} and pool_id = {pool}.pool_id order by deadline limit 1)"""


# Workers that wait for work although some is ready in their pool, by the address at which they hear of it.
WAITING = f"""
with pools as materialized (select pool_id from pool p where {_some_ready("p")} is not null)
select e.arrival_url from pools join worker w using (pool_id) join engine e using (worker_id)
where w.hungry and w.{WORKER_LEASE_HOLDS} and e.arrival_url is not null order by random() limit %(most)s"""


def _heartbeat(reported: str) -> str:
    return f"""
with beat as materialized (select * from unnest(%(worker_ids)s::bigint[], %(hungry)s::bool[]) b (worker_id, hungry)),
 renewed as (update worker w
       set lease_until = now() + make_interval(secs => %(lease_seconds)s), renewed_at = now(), hungry = b.hungry
       from beat b where w.worker_id = b.worker_id and w.{WORKER_LEASE_HOLDS}
       returning w.worker_id, w.pool_id, w.hungry),{reported}
select r.worker_id, e.intake, s.slack, coalesce(s.scarce, false),
       coalesce((select sum(workers) from pool_status where {pools.FRESH}),
                (select count(*) from worker where {WORKER_LEASE_HOLDS}))::int,
       r.hungry and {_some_ready("r")} is not null,
       (select coalesce(jsonb_agg(jsonb_build_array(c.chunk_id, c.token, c.batch_id, c.run, c.n, b.state)), '[]')
        from chunk c join batch b using (batch_id) where c.worker_id = r.worker_id and {CHUNK.guard("finish", "c.")})
from renewed r left join reported e using (worker_id)
  left join pool_status s on s.pool_id = r.pool_id and s.{pools.FRESH}"""


# A lapsed lease cannot be renewed: its chunks may already belong to another worker. A row for each worker whose lease holds:
# whether its engine may take new work (null: no report, or another worker controls it), what the steward last saw of its pool,
# whether work waits that it could claim, and the chunks that it holds. From these the worker learns of cancelled and paused
# batches, and of leases it does not know.
HEARTBEAT = _heartbeat(engines.REPORTED)
HEARTBEAT_WITHOUT_NEWS = _heartbeat(engines.UNCHANGED)
