"""`GET …/models`: the models in OpenAI's form."""

from typing import Any

from fastapi import APIRouter, HTTPException

from app.api.deps import KeyHolder, PartsDep
from app.api.model_list import CREATED, named
from app.engines.catalogue import Model

router = APIRouter()


@router.get("/models")
async def listed(tenant: KeyHolder, parts: PartsDep) -> dict[str, Any]:
    """Every name, aliases included, of the models that an engine serves or has served."""
    return {"object": "list", "data": [_entry(name, model) for name, model in named(parts.models.offered)]}


@router.get("/models/{name:path}")
async def one(name: str, tenant: KeyHolder, parts: PartsDep) -> dict[str, Any]:
    """One model."""
    if not name:
        raise HTTPException(404)
    return _entry(name, parts.model(name))


def _entry(name: str, model: Model) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": CREATED,
        "owned_by": "slackwater",
        "max_model_len": model.context_window,
        "task": model.task,
        "capabilities": sorted(model.capabilities),
    }
