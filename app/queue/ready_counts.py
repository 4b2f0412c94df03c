"""How many ready chunks an account has in a pool, as claims read it (`sched.ready`), after a transaction has changed its chunks.

Every claim of a pool that comes to the account waits for whoever changes this count, so all changes of a transaction are sent
together with its commit. A process that stops at any moment before has locked nobody, and one that stops after it neither.
"""

from collections import Counter
from typing import cast

from psycopg.abc import Params

from app.db.pool import Connection
from app.db.pooled_connection import PooledConnection
from app.queue import submit_sql


class ReadyCounts:
    """The changes of one transaction, by pool and tenant."""

    def __init__(self) -> None:
        self._changes: Counter[tuple[int, int]] = Counter()

    def add(self, pool_id: int, tenant_id: int, chunks: int) -> None:
        """So many chunks more are ready, or fewer. 0: the account gets a place in the pool's order."""
        self._changes[pool_id, tenant_id] += chunks

    def statement(self) -> tuple[str, Params]:
        """The change, in the one order in which all transactions lock accounts."""
        rows = sorted((*place, chunks) for place, chunks in self._changes.items())
        pools, tenants, ready = zip(*rows, strict=True) if rows else ((), (), ())
        return submit_sql.COUNT_READY, {"pools": list(pools), "tenants": list(tenants), "ready": list(ready)}


def of(conn: Connection) -> ReadyCounts:
    """Those of the open transaction. Raises RuntimeError outside of one."""
    return cast(PooledConnection, conn).at_commit(ReadyCounts)
