"""Write and read the audit log. A record is written in the transaction of what it tells of."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.audit import sql
from app.audit.record import Record, body
from app.db.pool import Connection


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored record. `seq`: its place in the chain; None: it is not sealed yet. `signed`: whether a checkpoint covers it."""

    audit_id: int
    at: datetime
    who: str
    role: str
    account: str | None
    act: str
    target: str
    outcome: str
    reason: str | None
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    correlation: list[str]
    seq: int | None
    signed: bool


async def record(conn: Connection, entry: Record) -> None:
    """Add a record. Call it in the transaction that causes it."""
    await record_all(conn, [entry])


async def record_all(conn: Connection, entries: Sequence[Record], at: datetime | None = None) -> None:
    """Add records. `at`: when it happened; None: now, by the database's clock."""
    if not entries:
        return
    if at is None:
        [(at,)] = await (await conn.execute(sql.NOW)).fetchall()
    columns = {name: [getattr(each, name) for each in entries] for name in ("account", "act", "target")}
    bodies = [body(each, at) for each in entries]
    await conn.execute(sql.RECORD, columns | {"at": [at] * len(entries), "body": bodies})


async def latest(
    conn: Connection,
    *,
    account: str | None = None,
    target: str | None = None,
    before: int | None = None,
    limit: int = 50,
) -> list[Entry]:
    """The newest records, those before `before`. `account` None: of all accounts and of the installation. `target`: the one
    object that was acted on, such as the id of a batch; None: any.
    """
    wanted = {name: value for name, value in (("account", account), ("target", target)) if value is not None}
    rows = await conn.execute(sql.latest(wanted).encode(), {**wanted, "before": before, "limit": limit})
    return [_entry(row) for row in await rows.fetchall()]


async def gauges(conn: Connection) -> list[tuple[str, str, float]]:
    """How long the oldest row waits for its seal."""
    return [tuple(row) for row in await (await conn.execute(sql.GAUGES)).fetchall()]


def _entry(row: Sequence[Any]) -> Entry:
    audit_id, text, seq, signed = row
    values = json.loads(text)
    names = ("who", "role", "account", "act", "target", "outcome", "reason", "before", "after", "correlation")
    at = datetime.fromisoformat(values["at"])
    return Entry(audit_id, at, **{name: values.get(name) for name in names}, seq=seq, signed=signed)
