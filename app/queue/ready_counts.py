"""How many ready chunks an account has in a pool, as claims read it (`sched.ready`), after a transaction has changed its chunks.

Every claim of a pool that comes to the account waits for whoever changes this count, so all changes of a transaction are sent
together with its commit. A process that stops at any moment before has locked nobody, and one that stops after it neither.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import cast

from psycopg.abc import Params

from app.db.pool import Connection
from app.db.pooled_connection import PooledConnection
from app.queue import submit_sql

Place = tuple[datetime, int]  # in an account's order: deadline and id of a chunk


@dataclass(slots=True)
class _Change:
    chunks: int = 0
    first: Place | None = None


class ReadyCounts:
    """The changes of one transaction, by pool and tenant."""

    rank = 1

    def __init__(self) -> None:
        self._changes: dict[tuple[int, int], _Change] = {}

    def add(self, pool_id: int, tenant_id: int, chunks: int, first: Place | None = None) -> None:
        """So many chunks more are ready, or fewer. 0: the account gets a place in the pool's order. `first`: before all that
        became ready.
        """
        change = self._changes.setdefault((pool_id, tenant_id), _Change())
        change.chunks += chunks
        change.first = min((place for place in (change.first, first) if place is not None), default=None)

    def statements(self) -> list[tuple[str, Params]]:
        """The change, in the one order in which all transactions lock accounts."""
        changed = sorted(self._changes.items(), key=lambda one: one[0])
        firsts = [change.first or (None, None) for _, change in changed]
        values = {
            "pools": [pool_id for (pool_id, _), _ in changed],
            "tenants": [tenant_id for (_, tenant_id), _ in changed],
            "ready": [change.chunks for _, change in changed],
            "deadlines": [deadline for deadline, _ in firsts],
            "chunks": [chunk_id for _, chunk_id in firsts],
        }
        return [(submit_sql.COUNT_READY, values)]


def of(conn: Connection) -> ReadyCounts:
    """Those of the open transaction. Raises RuntimeError outside of one."""
    return cast(PooledConnection, conn).at_commit(ReadyCounts)
