"""Takes back the charge for the loss of a worker that turns out to be alive, because then no item killed it.

Only the same process knows its old id. A worker that was killed and started again under the same name does not, and stays
charged.
"""

from app.db.pool import Connection

MOST = 3  # charges taken back per chunk: an item that stalls its worker again and again must end, too

KNOWN = "select exists (select from worker where worker_id = %(worker_id)s)"
TAKE_BACK = """
with charged as materialized (select chunk_id from chunk where charged_for = %(worker_id)s order by chunk_id for update)
update chunk c set attempt = greatest(attempt - 1, 0), charged_for = null, excused = coalesce(excused, 0) + 1
from charged where c.chunk_id = charged.chunk_id and coalesce(c.excused, 0) < %(most)s"""


async def take_back(conn: Connection, worker_id: int) -> int | None:
    """Clear the chunks of the charge for the loss of this worker, which lives and has joined anew under another id.

    Returns how many; None: the steward has not counted it as lost yet, ask again. Call in autocommit: the second statement has
    to see what the steward did before the first one found the worker gone.
    """
    row = await (await conn.execute(KNOWN, {"worker_id": worker_id})).fetchone()
    if row is None or row[0]:
        return None
    return (await conn.execute(TAKE_BACK, {"worker_id": worker_id, "most": MOST})).rowcount
