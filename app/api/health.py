"""Routes for monitoring: liveness, readiness, and the state of the installation.

HEAD has the same answer as GET; the server omits the body.
"""

from typing import Any

from fastapi import APIRouter

from app.api.deps import PartsDep
from app.db import schema, session_settings

router = APIRouter()


@router.head("/health", include_in_schema=False)
@router.get("/health")
async def health() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.head("/ready", include_in_schema=False)
@router.get("/ready")
async def ready(parts: PartsDep) -> dict[str, str]:
    """The process answers, its database can be reached, has a schema for this code and loses nothing, and its object store is
    shared.
    """
    parts.store.require()
    async with parts.database.relaxed() as conn:
        await schema.require(conn)
        await session_settings.require(conn)
    return {"status": "ready"}


@router.head("/status", include_in_schema=False)
@router.get("/status")
async def status(parts: PartsDep) -> dict[str, Any]:
    """The state of the installation: `ok`, `warning`, `degraded` or `down`, with parts, engines, queue and problems.

    Always 200 while this process answers. The content is at most a second old, and has no URL and no secret.
    """
    return await parts.installation.status()
