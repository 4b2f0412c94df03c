"""An engine of each model in the rows of a benchmark that runs none: nothing is reserved for a model without one."""

import psycopg

_ENGINES = """
with w as (insert into worker (pool_id, host, pid, lease_until)
    select pool_id, 'benchmark', 1, now() + interval '1 hour' from pool returning worker_id, pool_id)
insert into engine (name, pool_id, url, mode, worker_id, state)
select 'benchmark-' || pool_id, pool_id, 'http://127.0.0.1:1', 'attached', worker_id, 'ready' from w"""


def served(database_url: str) -> None:
    """Let each pool have an engine that takes work."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute(_ENGINES)
