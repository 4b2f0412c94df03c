"""Answers in OpenAI's form: one object, or a page. The last id of a page is the cursor of the next one."""

from typing import Any

import orjson
from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field

from app.api.parameter_limits import Text, declared

MOST_LISTED = 100


class PageQuery(BaseModel):
    """The query of a listing; `after`: the last id of the previous page. Unknown parameters are ignored."""

    model_config = ConfigDict(extra="ignore")

    after: Text | None = None
    limit: int = Field(20, json_schema_extra=declared(1, MOST_LISTED))


def answer(content: dict[str, Any]) -> Response:
    """One object."""
    return Response(orjson.dumps(content), media_type="application/json")


def listed(data: list[dict[str, Any]], *, more: bool) -> Response:
    """One page."""
    ends = {"first_id": data[0]["id"] if data else None, "last_id": data[-1]["id"] if data else None}
    return answer({"object": "list", "data": data, **ends, "has_more": more})
