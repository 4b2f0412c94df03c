"""`/operator/pipelines` and `/operator/conversations`: those of all accounts, without definitions, prompts and answers."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from app import places
from app.api.deps import Parts, PartsDep
from app.api.envelope import success
from app.api.parameter_limits import Text, cursor
from app.api.workers_ai import conversations
from app.api.workers_ai.conversations import ConversationQuery, TurnQuery
from app.errors import NotFound
from app.pipelines import ids, lineage, listing, outlook, reads, views
from app.pipelines.listing import Filter, Listed
from app.pipelines.reads import PipelineSight
from app.pipelines.waiting import Pause
from app.states import BatchState
from app.tenants.service import Tenant

router = APIRouter()


class PipelineQuery(BaseModel):
    """The query of a list of pipelines."""

    model_config = ConfigDict(extra="forbid")

    account: Text = Field(default="", description="of this account; default: of all")
    state: BatchState | None = Field(
        default=None, json_schema_extra={"enum": [*map(str, BatchState), None]}, description="in this state"
    )
    waits: Pause | None = Field(
        default=None,
        json_schema_extra={"enum": [*map(str, Pause), None]},
        description="pauses by itself for this reason",
    )
    name: Text = Field(default="", description="its name begins with this")
    limit: int = Field(default=listing.PAGE_ROWS, ge=1, le=100, description="pipelines in one page")
    after: Text | None = cursor("^pipe_[0-9a-f]{32}$")


class AccountConversationsQuery(ConversationQuery):
    """The query of a list of conversations of all accounts."""

    account: Text = Field(default="", description="of this account; default: of all")


@router.get("/pipelines")
async def pipelines(parts: PartsDep, query: Annotated[PipelineQuery, Query()]) -> Response:
    """The pipelines of all accounts, newest first."""
    after = places.parsed(query.after, ids.parse_id)
    wanted = Filter(
        account=query.account, state=query.state or "", waits=query.waits or "", name=query.name, after=after
    )
    async with parts.database.relaxed() as conn:
        rows, more = await listing.page(conn, wanted, query.limit)
    shown = [{"account": each.account} | views.listed(each.row, each.sums, each.spent) for each in rows]
    info = {"count": len(rows), "per_page": query.limit, "cursor": rows[-1].row.public_id if more else None}
    return success(shown, result_info=info)


@router.get("/pipelines/{pipeline_id}")
async def pipeline(pipeline_id: str, parts: PartsDep) -> Response:
    """The state of a pipeline of any account and of its stages, what each waits for, and when all will be done."""
    owner, sight = await _sight(parts, pipeline_id)
    found = await outlook.of(parts.database, parts.queued_catalogue, Tenant(owner.tenant_id, owner.account), sight)
    shown = views.shown(found)
    del shown["definition"]
    return success({"account": owner.account} | shown)


@router.get("/pipelines/{pipeline_id}/items/{custom_id}")
async def item(pipeline_id: str, custom_id: str, parts: PartsDep) -> Response:
    """What became of one line of the input of a pipeline of any account, without messages that may quote it."""
    _, sight = await _sight(parts, pipeline_id)
    return success(await lineage.of(parts.database, parts.settings, sight, custom_id, words=False))


@router.get("/conversations")
async def grown(parts: PartsDep, query: Annotated[AccountConversationsQuery, Query()]) -> Response:
    """The conversations of all accounts, the last used first: turns, growth, how full the window is, checkpoints."""
    return await conversations.conversations_of(parts, query, None, query.account)


@router.get("/conversations/{conversation_id}/turns")
async def turns(conversation_id: str, parts: PartsDep, query: Annotated[TurnQuery, Query()]) -> Response:
    """The turns of a conversation of any account: state, model, tokens and times."""
    return await conversations.turns_of(parts, conversation_id, query, None)


async def _sight(parts: Parts, pipeline_id: str) -> tuple[Listed, PipelineSight]:
    """A pipeline and its account. Raises NotFound."""
    request_id: UUID | None = ids.parse_id(pipeline_id)
    found = None
    if request_id is not None:
        async with parts.database.relaxed() as conn:
            found = await listing.one(conn, None, request_id)
    if found is None:
        raise NotFound(f"No pipeline found with id '{pipeline_id[:60]}'.")
    tenant = Tenant(found.tenant_id, found.account)
    return found, await reads.sight(parts.database, parts.settings, tenant, found.row)
