"""The rate limits of a key per minute. They are counted in the database, so that all API processes share one count.

A window is a calendar minute of the database's clock. Only synchronous requests count; batches have no rate limit.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from app.db.pool import Connection
from app.tenants import sql
from app.tenants.key_scope import KeyLimits

NO_LIMITS = KeyLimits()


def in_force(own: KeyLimits, usual_requests: int, usual_tokens: int) -> KeyLimits:
    """The limits of a key: its own, else the usual ones of the settings, where 0 is no limit."""
    return KeyLimits(own.requests or usual_requests or None, own.tokens or usual_tokens or None)


@dataclass(frozen=True, slots=True)
class RateLimitCheck:
    """What is left of a key's minute, which ends in `seconds`. `granted`: whether the request is allowed."""

    granted: bool
    requests_left: int | None
    tokens_left: int | None
    seconds: int


@dataclass(frozen=True, slots=True)
class KeyMinute:
    """What is counted of a key in the present minute, which ends in `seconds`."""

    requests: int
    tokens: int
    seconds: int


async def take(conn: Connection, key_id: str, limits: KeyLimits, tokens: int) -> RateLimitCheck:
    """Count a request of so many tokens, unless it would exceed a limit."""
    parameters = {"key_id": key_id, "tokens": tokens, "most_requests": limits.requests, "most_tokens": limits.tokens}
    row = await (await conn.execute(sql.TAKE, parameters)).fetchone()
    assert row is not None
    granted, requests, used, seconds = row
    return RateLimitCheck(granted, _left(limits.requests, requests), _left(limits.tokens, used), seconds)


async def add(conn: Connection, used: Mapping[str, tuple[int, int]]) -> dict[str, KeyMinute]:
    """Count requests and tokens that engines' doors let in, by key, whatever its limit is. Returns the counts of the minute."""
    key_ids, counts = list(used), list(used.values())
    parameters = {"key_ids": key_ids, "requests": [c[0] for c in counts], "tokens": [c[1] for c in counts]}
    rows = await (await conn.execute(sql.ADD_USAGE, parameters)).fetchall()
    return {key_id: KeyMinute(*counted) for key_id, *counted in rows}


def _left(limit: int | None, used: int) -> int | None:
    return None if limit is None else max(0, limit - int(used))
