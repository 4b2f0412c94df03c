"""`GET …/models`: what may be asked for, as OpenAI lists it."""

from typing import Any

from fastapi import APIRouter

from app.api.deps import KeyHolder, PartsDep
from app.engines.catalogue import Model

router = APIRouter()

CREATED = 1_735_689_600  # the list has no dates of its own; one that does not change keeps clients' caches valid


@router.get("/models")
async def listed(tenant: KeyHolder, parts: PartsDep) -> dict[str, Any]:
    """Every name of the catalogue, aliases included."""
    names = [(name, model) for model in parts.catalogue.models.values() for name in (model.name, *model.aliases)]
    return {"object": "list", "data": [_entry(name, model) for name, model in sorted(names, key=lambda n: n[0])]}


@router.get("/models/{name:path}")
async def one(name: str, tenant: KeyHolder, parts: PartsDep) -> dict[str, Any]:
    """One model."""
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
