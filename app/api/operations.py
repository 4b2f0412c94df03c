"""Routes for operators' machinery: liveness and readiness."""

from fastapi import APIRouter

from app.api.deps import PartsDep
from app.db.migrate import current_revision, newest_revision
from app.errors import SlackwaterError

router = APIRouter()


@router.get("/health")
async def health() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/ready")
async def ready(parts: PartsDep) -> dict[str, str]:
    """The process answers, and its database can be reached and has the schema that this code knows."""
    async with parts.database.relaxed() as conn:
        revision = await current_revision(conn)
    if revision != newest_revision():
        message = (
            f"The database is at revision {revision}, this code needs {newest_revision()}: run `slackwater migrate`"
        )
        raise SlackwaterError(message, status=503)
    return {"status": "ready"}
