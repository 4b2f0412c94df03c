"""Pages as OpenAI's clients turn them: by the last id of the page before, until there are no more."""

from typing import Any

from fastapi.responses import ORJSONResponse
from pydantic import BaseModel, ConfigDict


class Page(BaseModel):
    """The query of a listing; `after`: the last id of the page before. Unknown parameters are ignored."""

    model_config = ConfigDict(extra="ignore")

    after: str | None = None
    limit: int = 20


def listed(data: list[dict[str, Any]], *, more: bool) -> ORJSONResponse:
    """One page."""
    ends = {"first_id": data[0]["id"] if data else None, "last_id": data[-1]["id"] if data else None}
    return ORJSONResponse({"object": "list", "data": data, **ends, "has_more": more})
