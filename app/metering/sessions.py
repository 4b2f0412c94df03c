"""How the prompts of sessions grow: the last prompts of each session, kept for a week.

Synchronous requests are noted by `sync_usage`, queued ones by `app.batches.queued_sessions`.

A session is known by a keyed hash of the name that its caller gave it.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

from app.db.pool import Connection
from app.metering import sql
from app.metering.lines import LineParts
from app.metering.slope import TURNS

_BYTES = 8


@dataclass(slots=True)
class Turns:
    """The latest requests of a session that are not booked, and the line of the last one. `fresh`: prompt tokens not cached."""

    line: LineParts | None = None
    turns: int = 0
    prompts: list[int] = field(default_factory=list)
    fresh: list[int] = field(default_factory=list)

    def add(self, line: LineParts, prompt: int, fresh: int) -> None:
        """One more request."""
        self.line = line
        self.turns += 1
        self.prompts = [*self.prompts, prompt][-TURNS:]
        self.fresh = [*self.fresh, fresh][-TURNS:]


def hashed(secret: bytes, tenant_id: int, session: str) -> bytes:
    """What stands for a session of the account. It cannot be made without the master key."""
    return hmac.digest(secret, f"slackwater session {tenant_id} {session}".encode(), hashlib.sha256)[:_BYTES]


async def note(conn: Connection, found: Mapping[tuple[int, bytes], Turns]) -> None:
    """Add the requests to their sessions. Call inside a transaction."""
    rows = []
    for (tenant_id, session), turns in sorted(found.items()):  # two processes lock the rows in one order
        assert turns.line is not None
        labels = turns.line.workflow, turns.line.variant, turns.line.model, turns.line.endpoint
        rows.append((tenant_id, session, *labels, turns.turns, turns.prompts, turns.fresh))
    if rows:
        async with conn.cursor() as cursor:
            await cursor.executemany(sql.NOTE_TURNS, rows)


async def forget_old(conn: Connection) -> None:
    """Remove the sessions without a request for a week."""
    await conn.execute(sql.FORGET_SESSIONS)
