"""The sessions of queued requests, whose growth the ledger keeps as it does for synchronous ones."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from psycopg.errors import ForeignKeyViolation

from app.crypto import secret_key
from app.db.pool import Database
from app.metering import lines, sessions
from app.metering.sessions import Turns
from app.queue import reads
from app.queue.settling import Settled
from app.settings import Settings


async def note(database: Database, ended: Sequence[Settled], settings: Settings) -> None:
    """Note the prompts of the runs that have just ended. Call after their commit; what a crash in between loses is not noted."""
    runs = [(batch.batch_id, batch.run) for batch in ended if batch.has_sessions]
    if not runs:
        return
    secret, found = secret_key(settings), dict[tuple[int, bytes], Turns]()
    async with database.relaxed() as conn:
        prompts = await reads.session_prompts(conn, runs)
        stored = await lines.parts(conn, sorted({each.line_id for each in prompts}))
    of = {line.line_id: line.parts for line in stored}
    for each in prompts:
        key = each.tenant_id, sessions.hashed(secret, each.tenant_id, each.session)
        turns = found.setdefault(key, Turns())
        turns.add(replace(of[each.line_id], model=each.model), each.prompt, each.prompt - each.cached)
    with suppress(ForeignKeyViolation):  # an account that is deleted at this moment
        async with database.transaction() as conn:
            await sessions.note(conn, found)
