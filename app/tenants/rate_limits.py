"""The rate limits of a key per minute. They are counted in the database, so that all API processes share one count.

A window is a calendar minute of the database's clock. Only synchronous requests count; batches have no rate limit.
"""

from dataclasses import dataclass

from app.db.pool import Connection
from app.tenants import sql


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """The limits of one key per minute. None: no limit. `tokens`: estimated, prompt and answer together."""

    requests: int | None = None
    tokens: int | None = None


NO_LIMITS = KeyLimits()


@dataclass(frozen=True, slots=True)
class RateLimitCheck:
    """What is left of a key's minute, which ends in `seconds`. `granted`: whether the request is allowed."""

    granted: bool
    requests_left: int | None
    tokens_left: int | None
    seconds: int


async def take(conn: Connection, key_id: str, limits: KeyLimits, tokens: int) -> RateLimitCheck:
    """Count a request of so many tokens, unless it would exceed a limit."""
    parameters = {"key_id": key_id, "tokens": tokens, "most_requests": limits.requests, "most_tokens": limits.tokens}
    row = await (await conn.execute(sql.TAKE, parameters)).fetchone()
    assert row is not None
    granted, requests, used, seconds = row
    return RateLimitCheck(granted, _left(limits.requests, requests), _left(limits.tokens, used), seconds)


def _left(limit: int | None, used: int) -> int | None:
    return None if limit is None else max(0, limit - int(used))
