"""Checks the audit log where it lies: rows, seals and checkpoints of the database against each other and the object store."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, NamedTuple

from app.audit import sql
from app.audit.checkpoints import fits
from app.audit.record import moment
from app.audit.verifier import RETENTION_DAYS, Verifier
from app.db.pool import Connection
from app.storage import object_names
from app.storage.store import Store

UNSEALED_SECONDS = 60  # a row that has no seal after so long was taken out of the queue
_AT_ONCE = 16
_PAGE = 1000


class Signed(NamedTuple):
    """A checkpoint where it lies. `stored`: since when it lies in the object store; None: it does not."""

    where: str
    body: str
    signature: bytes
    stored: datetime | None = None


async def verify(
    conn: Connection,
    bucket: Store,
    keys: Sequence[bytes],
    account: str | None = None,
    retention_days: int = RETENTION_DAYS,
) -> Verifier:
    """Check every chain, or that of an account (empty: of the installation). Raises StorageError.

    `retention_days`: how long rows have to be kept at least; 0: for ever.
    """
    checkpoints = await stored(bucket, account)  # before the snapshot, so that none is newer than the rows
    verifier = Verifier(keys, fits, retention_days)
    async with snapshot(conn):
        for each in [*checkpoints, *await _of_database(conn, account, verifier)]:
            verifier.checkpoint(each.body, each.signature, each.where, each.stored)
        async for row in sealed(conn, account):
            verifier.row(row[0], row[1], row[2], row[4])
            _compare(verifier, row)
        verifier.finish()
        values = {"account": account, "seconds": UNSEALED_SECONDS}
        for (audit_id,) in await (await conn.execute(sql.UNSEALED, values)).fetchall():
            verifier.problems.append(f"record {audit_id} has no seal")
    return verifier


async def hides_rows(conn: Connection) -> bool:
    """Whether row-level security is in force for the role of this connection."""
    [(active,)] = await (await conn.execute(sql.HIDES_ROWS)).fetchall()
    return bool(active)


@asynccontextmanager
async def snapshot(conn: Connection) -> AsyncIterator[None]:
    """A transaction that sees one state of the database, and writes nothing."""
    async with conn.transaction():
        await conn.execute("set transaction isolation level repeatable read, read only")
        yield


async def sealed(conn: Connection, account: str | None) -> AsyncIterator[Sequence[Any]]:
    """The sealed rows by chain and number: (chain, seq, hash, audit_id, body, at, account, act, target). The last six are None
    for a row that is gone.
    """
    async with conn.cursor("sealed") as cursor:
        cursor.itersize = _PAGE
        await cursor.execute(sql.SEALED, {"account": account})
        async for row in cursor:
            yield row


async def stored(bucket: Store, account: str | None) -> list[Signed]:
    """The checkpoints in the object store, by their keys. What is no checkpoint, or that of another key, has an empty body."""
    prefix = object_names.CHECKPOINTS if account is None else object_names.checkpoints(account)
    times = {key: at async for key, at in bucket.times(prefix)}
    keys = sorted(times)
    found: list[Signed] = []
    for first in range(0, len(keys), _AT_ONCE):
        part = keys[first : first + _AT_ONCE]
        contents = await asyncio.gather(*map(bucket.get, part))
        found += [_read(key, content, times[key]) for key, content in zip(part, contents, strict=True)]
    return found


def _read(key: str, content: bytes, stored: datetime) -> Signed:
    where = f"object {key}"
    try:
        document = json.loads(content)
        body = str(document["body"])
        values = json.loads(body)
        name = object_names.checkpoint(values["account"], values["seq"], datetime.fromisoformat(values["at"]))
        return Signed(where, body if name == key else "", bytes.fromhex(document["signature"]), stored)
    except (ValueError, KeyError, TypeError, AttributeError):
        return Signed(where, "", b"")


async def of_database(conn: Connection, account: str | None) -> list[Signed]:
    """The checkpoints in the database."""
    rows = await (await conn.execute(sql.CHECKPOINTS, {"account": account})).fetchall()
    return [Signed("table audit_checkpoint", body, bytes(signature)) for *_, body, signature in rows]


async def _of_database(conn: Connection, account: str | None, verifier: Verifier) -> list[Signed]:
    """The same, with the columns compared with the bodies."""
    for chain, seq, at, cut, body, _ in await (await conn.execute(sql.CHECKPOINTS, {"account": account})).fetchall():
        columns = {"account": chain, "seq": seq, "at": moment(at), "cut": cut}
        if not _has(body, columns):
            verifier.problems.append(f"table audit_checkpoint: the columns of row {seq} of {chain!r} were changed")
    return await of_database(conn, account)


def _compare(verifier: Verifier, row: Sequence[Any]) -> None:
    """The columns by which rows are found are those of the sealed body."""
    chain, seq, _, audit_id, body, at, account, act, target = row
    if body is not None and not _has(body, {"account": account, "act": act, "target": target, "at": moment(at)}):
        verifier.problems.append(f"table audit: the columns of record {audit_id} (row {seq} of {chain!r}) were changed")


def _has(body: str, columns: dict[str, Any]) -> bool:
    try:
        values = json.loads(body)
        return all(values[name] == value for name, value in columns.items())
    except (ValueError, KeyError, TypeError):
        return False
