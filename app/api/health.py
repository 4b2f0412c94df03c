"""Routes for operators' machinery: liveness, readiness, and how the whole installation is.

To HEAD they answer as to GET; the server leaves the body out.
"""

from typing import Any

from fastapi import APIRouter

from app.api.deps import PartsDep
from app.db.migrate import current_revision, newest_revision
from app.errors import SlackwaterError

router = APIRouter()


@router.head("/health", include_in_schema=False)
@router.get("/health")
async def health() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.head("/ready", include_in_schema=False)
@router.get("/ready")
async def ready(parts: PartsDep) -> dict[str, str]:
    """The process answers, and its database can be reached has the schema that this code knows, and its object store is the
    other parts'.
    """
    parts.store.require()
    async with parts.database.relaxed() as conn:
        revision = await current_revision(conn)
    if revision != newest_revision():
        message = (
            f"The database is at revision {revision}, this code needs {newest_revision()}: run `slackwater migrate`"
        )
        raise SlackwaterError(message, status=503)
    return {"status": "ready"}


@router.head("/status", include_in_schema=False)
@router.get("/status")
async def status(parts: PartsDep) -> dict[str, Any]:
    """How the whole installation is: `ok`, `degraded` or `down`, with parts, engines, queue, and what to do about problems.

    Always 200 while this process answers; a moment old at most. Tells no URL and no secret.
    """
    return await parts.installation.status()
