"""`GET /scale/{model}`: how many engines of a model the queued work needs. Autoscalers ask it, such as KEDA's `metrics-api`."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from app.api import metrics
from app.api.deps import PartsDep
from app.errors import NotFound

router = APIRouter()
Seconds = Annotated[
    float | None,
    Query(
        ge=0, le=86_400, description="how long an engine takes from its order to its first answer; default: as measured"
    ),
]


@router.get("/scale/{model:path}")
async def scale(model: str, request: Request, parts: PartsDep, start_seconds: Seconds = None) -> dict[str, Any]:
    """The engines that are needed so that each deadline is kept, and what that follows from.

    SLACKWATER_METRICS_TOKEN, if it is set, is required as bearer. 503 means: not known, keep the engines that there are.
    """
    metrics.check_token(request, parts.settings.metrics_token.get_secret_value())
    entry = parts.catalogue.resolve(model)
    if entry is None:
        raise NotFound(
            f"No such model {model}. A model that its engine names is known once an engine has run; to start from zero "
            "engines, describe it in SLACKWATER_MODELS_FILE"
        )
    return await parts.scale.document(entry.served, start_seconds)
