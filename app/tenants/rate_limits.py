"""How much a key may ask for in a minute, counted in the database, so that all API processes count together.

A window is a minute of Postgres's clock. Only synchronous requests count; what is queued is never refused for capacity.
"""

from dataclasses import dataclass

from app.db.pool import Connection
from app.tenants import sql


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """Of one key, for a minute; None: no limit. `tokens` are estimates of prompt and answer together."""

    requests: int | None = None
    tokens: int | None = None


NO_LIMITS = KeyLimits()


@dataclass(frozen=True, slots=True)
class Taken:
    """What is left of a key's minute, which ends in `seconds`. `granted`: whether the request may go on."""

    granted: bool
    requests_left: int | None
    tokens_left: int | None
    seconds: int


async def take(conn: Connection, key_id: str, limits: KeyLimits, tokens: int) -> Taken:
    """Count a request of so many tokens, unless that would exceed a limit."""
    parameters = {"key_id": key_id, "tokens": tokens, "most_requests": limits.requests, "most_tokens": limits.tokens}
    row = await (await conn.execute(sql.TAKE, parameters)).fetchone()
    assert row is not None
    granted, requests, used, seconds = row
    return Taken(granted, _left(limits.requests, requests), _left(limits.tokens, used), seconds)


def _left(limit: int | None, used: int) -> int | None:
    return None if limit is None else max(0, limit - int(used))
