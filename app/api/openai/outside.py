"""Items of pipelines that wait for an answer from outside: what waits, and the answers."""

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from app.api import body
from app.api.deps import KeyHolder, PartsDep
from app.api.openai.list_pages import MOST_LISTED, answer, listed
from app.api.parameter_limits import Text, declared
from app.errors import BadInput, NotFound, PageTooLong
from app.flows.stages import MOST_OUTSIDE_BYTES
from app.pipelines import ids, outside
from app.pipelines.parked import Waiting
from app.sealing.keyring import Keyring

router = APIRouter()

_BODY_MB = 2 * MOST_OUTSIDE_BYTES / 2**20  # the answer with its name, and escapes that JSON need not have
_MOST_SEQ = 2**31


class WaitingQuery(BaseModel):
    """The query of a page; `after`: the last id of the page before. Unknown parameters are ignored."""

    model_config = ConfigDict(extra="ignore")

    stage: Text | None = None
    after: Text | None = None
    limit: int = Field(20, json_schema_extra=declared(1, MOST_LISTED))


@router.get("/pipelines/{pipeline_id}/waiting")
async def waiting(
    pipeline_id: str, tenant: KeyHolder, parts: PartsDep, page: Annotated[WaitingQuery, Query()]
) -> Response:
    """The items that wait for an answer from outside, with what they ask, by stage and number."""
    if not 1 <= page.limit <= MOST_LISTED:
        raise PageTooLong(page.limit, MOST_LISTED)
    keyring = Keyring.of(parts.settings)
    after = None if page.after is None else _item(page.after)
    request_id = _parsed(pipeline_id)
    found, more = await outside.waiting(
        parts.database, keyring, tenant, request_id, stage=page.stage, after=after, limit=page.limit
    )
    return listed([_view(each) for each in found], more=more)


@router.post("/pipelines/{pipeline_id}/items/{stage}/{item}/answer")
async def store_answer(
    pipeline_id: str, stage: str, item: str, request: Request, tenant: KeyHolder, parts: PartsDep
) -> Response:
    """Answer an item that waits. The same answer again has no effect; another one is refused."""
    request_id, (_, seq) = _parsed(pipeline_id), _item(f"{stage}/{item}")
    given = await body.read_json(request, _BODY_MB)
    if "answer" not in given:
        raise BadInput("answer: is missing; it may be any JSON", param="answer")
    redaction, safe = parts.admission.redaction(tenant), parts.admission.vaults(tenant)
    keeping = outside.Keeping(Keyring.of(parts.settings), safe, redaction)
    await outside.answer(parts.database, keeping, tenant, request_id, stage, seq, given["answer"])
    return answer({"id": f"{stage}/{seq}", "object": "pipeline.item", "state": "answered"})


def _view(found: Waiting) -> dict[str, Any]:
    return {
        "id": f"{found.stage}/{found.seq}",
        "object": "pipeline.item",
        "stage": found.stage,
        "item": found.seq,
        "custom_id": found.reference,
        "body": orjson.loads(found.body),
        "due_at": int(found.due.timestamp()),
    }


def _parsed(text: str) -> Any:
    """The pipeline of an id. Raises NotFound."""
    if (request_id := ids.parse_id(text)) is None:
        raise NotFound(f"No pipeline found with id '{text[:60]}'.")
    return request_id


def _item(text: str) -> tuple[str, int]:
    """Stage and number of an item's id. Raises NotFound."""
    stage, _, number = text.rpartition("/")
    if not number.isascii() or not number.isdecimal() or len(number) > 10 or int(number) >= _MOST_SEQ:
        raise NotFound(f"No item found with id '{text[:60]}'.")
    return stage, int(number)
