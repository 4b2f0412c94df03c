"""The audit log: who did or revealed what in the console. Rows are only ever added."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from app.access import sql
from app.access.roles import Viewer
from app.db.pool import Connection

DONE = "done"


@dataclass(frozen=True, slots=True)
class Record:
    """One thing that somebody did. `account`: whose object it was. `outcome`: `done`, or why it was refused."""

    subject: str
    role: str
    session_id: int | None
    account: str | None
    action: str
    target: str
    outcome: str = DONE
    reason: str | None = None
    detail: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored record."""

    audit_id: int
    at: datetime
    subject: str
    role: str
    account: str | None
    action: str
    target: str
    outcome: str
    reason: str | None


def by(viewer: Viewer, action: str, target: str, account: str | None, **more: Any) -> Record:
    """A record of something that this viewer does."""
    return Record(viewer.subject, str(viewer.role), viewer.session_id, account, action, target, **more)


async def record(conn: Connection, entry: Record) -> None:
    """Add a record."""
    detail = None if entry.detail is None else Jsonb(dict(entry.detail))
    values = {name: getattr(entry, name) for name in entry.__slots__} | {"detail": detail}
    await conn.execute(sql.RECORD, values)


async def latest(
    conn: Connection, *, account: str | None = None, before: int | None = None, limit: int = 50
) -> list[Entry]:
    """The newest records, those before `before`. `account` None: of all accounts and of the installation."""
    values = {"account": account, "before": before, "limit": limit}
    rows = await (await conn.execute(sql.LATEST_RECORDS, values)).fetchall()
    return [Entry(*row) for row in rows]


async def of_target(conn: Connection, target: str, limit: int = 50) -> list[Entry]:
    """The newest records about one object."""
    rows = await (await conn.execute(sql.RECORDS_OF, {"target": target, "limit": limit})).fetchall()
    return [Entry(*row) for row in rows]
