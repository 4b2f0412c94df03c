"""Rate limits of a key, and their headers (draft-ietf-httpapi-ratelimit-headers-10)."""

import asyncio

import structlog
from fastapi import Request

from app.api import response_headers
from app.api.deps import Parts
from app.causes import cause
from app.db.transient_errors import TRANSIENT
from app.errors import RateLimited
from app.tenants import rate_limits
from app.tenants.key_scope import KeyLimits
from app.tenants.rate_limits import RateLimitCheck
from app.tenants.service import Tenant

_PATIENCE_SECONDS = 0.25
_log = structlog.get_logger("api")


async def count(request: Request, tenant: Tenant, parts: Parts, tokens: int) -> None:
    """Count one synchronous request of about this many tokens. Raises RateLimited.

    While the database does not answer, no request is refused: the limits share capacity, they do not protect it.
    """
    settings = parts.settings
    limit = rate_limits.in_force(tenant.limits, settings.key_requests_per_minute, settings.key_tokens_per_minute)
    if limit == rate_limits.NO_LIMITS:
        return
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS), parts.database.relaxed() as conn:
            taken = await rate_limits.take(conn, tenant.key_id, limit, tokens)
    except (TimeoutError, *TRANSIENT) as error:
        _log.warning("limits.not_counted", key=tenant.key_id, error=cause(error))
        return
    response_headers.add(request, _headers(limit, taken))
    if not taken.granted:
        never = limit.tokens is not None and tokens > limit.tokens
        raise RateLimited(_refusal(limit, taken, tokens), taken.seconds, final=never)


def _refusal(limit: KeyLimits, taken: RateLimitCheck, tokens: int) -> str:
    if limit.tokens is not None and tokens > limit.tokens:
        return f"Rate limit: about {tokens} tokens, but this key may use {limit.tokens} a minute; send a smaller one, or queue it"
    what = "requests" if taken.requests_left == 0 else "tokens"
    most = limit.requests if what == "requests" else limit.tokens
    return (
        f"Rate limit: {most} {what} a minute reached by this key; try again in {taken.seconds} s, or queue the request"
    )


def _headers(limit: KeyLimits, taken: RateLimitCheck) -> dict[str, str]:
    parts = [("requests", limit.requests, taken.requests_left), ("tokens", limit.tokens, taken.tokens_left)]
    known = [(name, most, left) for name, most, left in parts if most is not None]
    return {
        "ratelimit-policy": ", ".join(f'"{name}";q={most};w=60' for name, most, _ in known),
        "ratelimit": ", ".join(f'"{name}";r={left};t={taken.seconds}' for name, _, left in known),
    }
