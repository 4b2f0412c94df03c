"""Write and read changes."""

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import psycopg
import structlog
from psycopg.types.json import Jsonb

from app import __version__
from app.causes import cause
from app.changes import sql
from app.changes.kinds import ChangeKind
from app.db.pool import Connection, Database
from app.db.transient_errors import TRANSIENT

KEPT_DAYS = 35
KEPT_ROWS = 100_000

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Change:
    """Something that happened. `account_id`: the account that it concerns; None: the installation."""

    change_id: int
    at: datetime
    kind: str
    subject: str
    account_id: str | None
    data: dict[str, Any]


class ChangePosition(NamedTuple):
    """A change's place in the order of time."""

    at: datetime
    change_id: int


async def record(
    conn: Connection,
    kind: ChangeKind,
    subject: str,
    data: Mapping[str, object],
    *,
    tenant_id: int | None = None,
    at: datetime | None = None,
) -> None:
    """Write a change. Call it in the transaction that causes it. `at`: when it was, if it could not be written then."""
    values = {"kind": kind.value, "subject": subject, "tenant_id": tenant_id, "data": Jsonb(dict(data)), "at": at}
    await conn.execute(sql.RECORD, values)


async def started(database: Database, part: str) -> None:
    """Note that this process begins to run a part, and whether its version differs from the last one. Never raises: a part
    starts without the database, too.
    """
    values = {"part": part, "version": __version__, "host": socket.gethostname(), "pid": os.getpid()}
    try:
        async with database.relaxed() as conn:
            await conn.execute(sql.START, values)
    except (TimeoutError, psycopg.Error, *TRANSIENT) as error:
        _log.warning("change.not_noted", part=part, error=cause(error))


async def died(conn: Connection, part: str, exit_code: int, at: datetime) -> None:
    """Note that a part of this machine ended by itself then. The database may be what it died of, so try until this is done."""
    await record(conn, ChangeKind.PART_DIED, part, {"exit_code": exit_code, "host": socket.gethostname()}, at=at)


async def page(
    conn: Connection,
    *,
    since: datetime | None = None,
    before: tuple[datetime, int] | None = None,
    kinds: Sequence[str] = (),
    subject: str | None = None,
    tenant_id: int | None = None,
    limit: int,
) -> list[Change]:
    """The newest changes since then and before that position, newest first. `tenant_id`: those of the installation and of this
    account; None: those of every account.
    """
    values = {"since": since, "kinds": list(kinds), "subject": subject, "tenant_id": tenant_id, "limit": limit}
    given = {name for name, value in values.items() if value} - {"limit"} | ({"before"} if before else set())
    values |= {"before_at": before and before[0], "before": before and before[1]}
    rows = await (await conn.execute(sql.page(frozenset(given)).encode(), values)).fetchall()
    return [Change(*row) for row in rows]


async def prune(conn: Connection) -> int:
    """Delete what is older than KEPT_DAYS, and all but the newest KEPT_ROWS. Returns how many."""
    return (await conn.execute(sql.PRUNE, {"days": KEPT_DAYS, "rows": KEPT_ROWS})).rowcount
