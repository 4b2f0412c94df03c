"""Seals the secrets of webhooks anew after the master key was changed, so that the earlier one can be given up."""

from dataclasses import dataclass

from app import crypto
from app.audit import log
from app.audit.acts import Act
from app.audit.record import Record
from app.db.pool import Connection
from app.webhooks import endpoint_sql as sql


@dataclass(frozen=True, slots=True)
class Sealed:
    """How many endpoints have secrets: `current` under the master key in use, `other` under one that is accepted,
    `unreadable` under none of them.
    """

    current: int = 0
    other: int = 0
    unreadable: int = 0


async def look(conn: Connection, key: bytes) -> Sealed:
    """Under which master keys the secrets are sealed."""
    return await _each(conn, key, reseal=False)


async def reseal(conn: Connection, key: bytes) -> Sealed:
    """Seal every readable secret under the master key in use. Returns what there was before. Safe to repeat and to interrupt."""
    async with conn.transaction():
        found = await _each(conn, key, reseal=True)
        if found.other:
            after = {"webhooks": found.other}
            await log.record(conn, Record(Act.SECRET_KEY_RESEAL, crypto.key_id(key), after=after))
    return found


async def _each(conn: Connection, key: bytes, *, reseal: bool) -> Sealed:
    counts = {"current": 0, "other": 0, "unreadable": 0}
    for endpoint_id, *sealed in await (await conn.execute(sql.SEALED)).fetchall():
        context, only = endpoint_id.bytes, bytes(key)
        given = [value for value in sealed if value is not None]
        if all(_readable(only, value, context) for value in given):
            counts["current"] += 1
        elif not all(_readable(key, value, context) for value in given):
            counts["unreadable"] += 1
        else:
            counts["other"] += 1
            if reseal:
                secret, previous, *signing_keys = (
                    None if value is None else crypto.seal(only, crypto.unseal(key, value, context), context)
                    for value in sealed
                )
                values = {"endpoint_id": endpoint_id, "before": sealed[0], "secret": secret, "previous": previous}
                values |= dict(zip(("signing_key", "previous_signing_key"), signing_keys, strict=True))
                await conn.execute(sql.RESEAL, values)
    return Sealed(**counts)


def _readable(key: bytes, sealed: bytes, context: bytes) -> bool:
    try:
        crypto.unseal(key, sealed, context)
    except crypto.Unreadable:
        return False
    return True
