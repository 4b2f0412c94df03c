"""What a database needs that was restored to an earlier moment, before a part runs on it again (docs/operate.md)."""

from dataclasses import asdict, dataclass
from datetime import datetime

from app.audit import log
from app.audit.acts import Act
from app.audit.record import Record
from app.batches import after_restore_sql as queries
from app.changes import service as changes
from app.changes.kinds import ChangeKind
from app.clock import now
from app.db import sequences
from app.db.pool import Connection
from app.errors import Conflict
from app.queue import reaping
from app.webhooks import due_sweep

DATABASE = "database"


@dataclass(frozen=True, slots=True)
class Tidied:
    """What was done. `newest_batch`: when the newest batch was submitted; None: there is none.

    `workers`, `chunks`: the workers that were removed, and the chunks taken back from them. `webhooks`: those that are hinted at
    again.
    """

    newest_batch: datetime | None
    workers: int
    chunks: int
    webhooks: int


async def tidy(conn: Connection) -> Tidied:
    """Separate the database from whatever has seen a later state of it. It is safe to repeat. Call in a transaction.

    Raises Conflict while parts of Slackwater are connected.
    """
    await _require_alone(conn)
    newest = await (await conn.execute(queries.NEWEST)).fetchone()
    await sequences.advance(conn, now())
    workers, chunks = await reaping.reap_all(conn)
    tidied = Tidied(newest[0] if newest else None, workers, chunks, await due_sweep.unhint_all(conn))
    facts = {**asdict(tidied), "newest_batch": tidied.newest_batch and tidied.newest_batch.isoformat()}
    await changes.record(conn, ChangeKind.DATABASE_RESTORED, DATABASE, facts)
    await log.record(conn, Record(Act.DATABASE_RESTORED, DATABASE, after=facts))
    return tidied


async def _require_alone(conn: Connection) -> None:
    parts = [str(name) for (name,) in await (await conn.execute(queries.PARTS)).fetchall()]
    if parts:
        raise Conflict(f"Parts of Slackwater use the database: {', '.join(parts)}. Stop them, and run this again.")
