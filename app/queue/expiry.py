"""Expires batches: a batch that is not done at its `expires_at` becomes `expiring`. A verb of the steward.

Only `expires_at` counts, the end of a window that the caller asked for. A batch without one has only the `deadline` that orders
its chunks, and never expires. A stage expires with its pipeline (`app.pipelines.verbs`).
After the sweep of its chunks (`chunk_sweeps`) an expiring batch becomes `expired` (`settling`).
"""

from app.db.pool import Connection
from app.states import BATCH, BatchState

EXPIRE = f"""
update batch set state = '{BatchState.EXPIRING}'
where {BATCH.guard("expire")} and expires_at <= now() and pipeline_id is null returning batch_id"""  # noqa: S608


async def expire(conn: Connection) -> int:
    """Set batches whose `expires_at` has passed to `expiring`. Returns how many."""
    return len(await (await conn.execute(EXPIRE)).fetchall())
