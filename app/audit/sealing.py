"""Seals rows into the chain of their account. Any number of stewards may do so at once, and be killed at any moment.

Rows get their numbers in the order in which they are sealed. A transaction takes rows that wait, reads the heads of their chains
and adds seals. If another one has continued a chain in the meantime, the unique keys refuse it, and its rows still wait.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from psycopg.errors import UniqueViolation

from app.audit import sql
from app.audit.verifier import START, row_hash
from app.db.pool import Connection, Database

MOST_ROWS = 2000  # of one transaction


@dataclass(frozen=True, slots=True)
class Head:
    """The newest row of a chain."""

    seq: int
    hash: bytes


@dataclass(frozen=True, slots=True)
class Sealed:
    """What one transaction sealed. `before`, `heads`: the newest rows of its chains before it, and after it. `missing`: rows
    that waited for a seal, but are gone.
    """

    rows: int = 0
    before: Mapping[str, Head] = field(default_factory=dict)
    heads: Mapping[str, Head] = field(default_factory=dict)
    missing: tuple[int, ...] = ()


async def seal(database: Database, most: int = MOST_ROWS) -> Sealed:
    """Seal rows that wait, in a durable transaction of its own. Another steward's seals make it do nothing."""
    try:
        async with database.transaction() as conn:
            return await _seal(conn, most)
    except UniqueViolation:
        return Sealed()


async def _seal(conn: Connection, most: int) -> Sealed:
    rows = await (await conn.execute(sql.TAKE_PENDING, {"limit": most})).fetchall()
    missing = tuple(audit_id for audit_id, _, body in rows if body is None)
    accounts = sorted({account for _, account, body in rows if body is not None})
    if not accounts:
        return Sealed(missing=missing)
    found = await (await conn.execute(sql.HEADS, {"accounts": accounts})).fetchall()
    before = dict.fromkeys(accounts, Head(0, START)) | {account: Head(seq, digest) for account, seq, digest in found}
    heads = dict(before)
    seals = []
    for audit_id, account, body in rows:
        if body is not None:
            seq = heads[account].seq + 1
            heads[account] = Head(seq, row_hash(heads[account].hash, seq, body))
            seals.append((account, seq, audit_id, heads[account].hash))
    names = ("account", "seq", "audit_id", "hash")
    await conn.execute(sql.SEAL, dict(zip(names, map(list, zip(*seals, strict=True)), strict=True)))
    return Sealed(len(seals), before, heads, missing)
