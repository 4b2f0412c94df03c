"""`…/ai/models/search`, `…/ai/models/schema`, `…/ai/tasks/search`, `…/ai/authors/search`: the catalogue in Workers AI's form.

Each name, canonical or alias, is its own entry. The page after the last one is empty, by which Cloudflare's SDK detects the
end. Booleans among the properties are strings. Shapes: Cloudflare's API reference of `ai/models`.
"""

import uuid
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from app.api.deps import Caller, PartsDep
from app.api.envelope import success
from app.api.model_list import CREATED, named
from app.api.parameter_limits import LARGEST, Number, Text
from app.batches.validation.schemas import input_schema, output_schema
from app.engines.catalogue import Model, Price, Task

router = APIRouter(prefix="/ai")

CREATED_AT = "2025-01-01 00:00:00.000"  # CREATED in Cloudflare's form
OUR_SOURCE = 1  # the only source: the models of this installation
_IDS = uuid.uuid5(uuid.NAMESPACE_URL, "slackwater:catalogue")  # never changes: clients keep ids
_FLAGS = ("async_queue", "function_calling", "reasoning", "vision", "lora")
_PER_MILLION = 1_000_000


class TaskText(NamedTuple):
    """The name and description of a task at Cloudflare."""

    name: str
    description: str


TASKS: dict[Task, TaskText] = {
    "text-generation": TaskText("Text Generation", "Generates text from a prompt or a conversation."),
    "text-embeddings": TaskText("Text Embeddings", "Turns text into vectors, or compares a query with texts."),
}


class ModelSearchQuery(BaseModel):
    """The query of a search. Unknown parameters are ignored."""

    model_config = ConfigDict(extra="ignore")

    search: Text = Field("", description="part of a name or a description")
    task: Text = Field("", description="a task's name, such as Text Generation, or its id")
    author: Text = ""
    source: int | None = Field(
        None, ge=0, le=LARGEST, description=f"{OUR_SOURCE}: models of this installation; there are no others"
    )
    hide_experimental: bool = Field(False, description="no model here is experimental")
    page: Number = 1
    per_page: int = Field(50, ge=1, le=1000)
    format: Literal["openrouter"] | None = Field(None, description="all results, in OpenRouter's form")


@router.get("/models/search")
async def search(tenant: Caller, parts: PartsDep, query: Annotated[ModelSearchQuery, Query()]) -> Response:
    """Models by name, task, author and source."""
    found = [(name, model) for name, model in named(parts.catalogue) if _matches(name, model, query)]
    if query.format == "openrouter":
        return JSONResponse({"data": [_openrouter(name, model) for name, model in found]})
    begin = (query.page - 1) * query.per_page
    page = [_view(name, model) for name, model in found[begin : begin + query.per_page]]
    info = {
        "count": len(page),
        "page": query.page,
        "per_page": query.per_page,
        "total_count": len(found),
        "total_pages": -(-len(found) // query.per_page),
    }
    return success(page, result_info=info)


@router.get("/models/schema")
async def schema(tenant: Caller, parts: PartsDep, model: Text) -> Response:
    """JSON Schemas of the input and the output of a model."""
    found = parts.model(model)
    return success({"input": input_schema(found), "output": output_schema(found)})


@router.get("/tasks/search")
async def tasks(tenant: Caller, parts: PartsDep) -> Response:
    """The tasks of the models in the catalogue."""
    present = {model.task for model in parts.catalogue.models.values()}
    return success([_task(task) for task in TASKS if task in present])


@router.get("/authors/search")
async def authors(tenant: Caller, parts: PartsDep) -> Response:
    """The authors of the models, from the models' names."""
    names = sorted({_author(name) for name, _ in named(parts.catalogue)}, key=str.lower)
    return success([{"id": _id("author", name), "name": name} for name in names])


def _matches(name: str, model: Model, query: ModelSearchQuery) -> bool:
    words = query.search.lower()
    task = query.task.lower()
    return (
        (words in name.lower() or words in model.description.lower())
        and task in ("", model.task, TASKS[model.task].name.lower(), _id("task", model.task))
        and query.author.lower() in ("", _author(name).lower())
        and query.source in (None, OUR_SOURCE)
    )


def _view(name: str, model: Model) -> dict[str, Any]:
    return {
        "id": _id("model", name),
        "source": OUR_SOURCE,
        "name": name,
        "description": model.description,
        "task": _task(model.task),
        "created_at": CREATED_AT,
        "tags": [],
        "properties": _properties(model),
    }


def _properties(model: Model) -> list[dict[str, Any]]:
    values: dict[str, Any] = {"context_window": str(model.context_window)}
    if model.task == "text-embeddings":
        values["max_input_tokens"] = str(model.context_window)
    values |= {flag: str(flag in model.capabilities).lower() for flag in _FLAGS}
    if model.price is not None:
        values["price"] = _prices(model.price)
    return [{"property_id": name, "value": value} for name, value in values.items()]


def _prices(price: Price) -> list[dict[str, Any]]:
    units = {
        "per M input tokens": price.input,
        "per M cached input tokens": price.cached_input,
        "per M output tokens": price.output,
    }
    return [{"unit": unit, "price": float(each), "currency": price.currency} for unit, each in units.items()]


def _openrouter(name: str, model: Model) -> dict[str, Any]:
    """OpenRouter's form for providers: prices are strings, in US dollars for one token."""
    entry: dict[str, Any] = {
        "id": name,
        "name": name,
        "description": model.description,
        "created": CREATED,
        "context_length": model.context_window,
        "input_modalities": ["text", "image"] if "vision" in model.capabilities else ["text"],
        "output_modalities": ["text"] if model.task == "text-generation" else ["embeddings"],
    }
    if model.price is not None and model.price.currency == "USD":
        price = model.price
        each = {"prompt": price.input, "completion": price.output, "input_cache_read": price.cached_input}
        entry["pricing"] = {kind: f"{value / _PER_MILLION:f}" for kind, value in each.items()}
    return entry


def _task(task: Task) -> dict[str, Any]:
    return {"id": _id("task", task), **TASKS[task]._asdict()}


def _author(name: str) -> str:
    """The author in a model's name: `@cf/author/model`, `author/model`."""
    author, slash, _ = name.removeprefix("@cf/").partition("/")
    return author if slash else "slackwater"


def _id(kind: str, name: str) -> str:
    return str(uuid.uuid5(_IDS, f"{kind}:{name}"))
