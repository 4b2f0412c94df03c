"""Pipelines: batches that feed each other. OpenAI has no such routes; their style is that of its batches."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from app import places
from app.api import body, request_parsing, submit_params
from app.api.deps import KeyHolder, Parts, PartsDep
from app.api.openai.list_pages import PageQuery, answer, listed
from app.api.parameter_limits import LARGEST, Text
from app.api.response_headers import COMPLETE
from app.api.streams import streamed
from app.batches import shredding as batch_shredding
from app.batches.restoring import restorer
from app.errors import NotFound, PageTooLong
from app.flows.given import Given as Fields
from app.pipelines import check, ids, lifecycle, lineage, outlook, reads, results, retrying, service, shredding, views
from app.pipelines.service import Caller, Given
from app.queue.types import Kind
from app.tenants.key_scope import KeyRole
from app.tenants.service import Tenant

router = APIRouter(prefix="/pipelines")

_MOST_USD = 1e9


class ResultQuery(BaseModel):
    """Of which stage, and after which number. Unknown parameters are ignored."""

    model_config = ConfigDict(extra="ignore")

    stage: Text | None = None
    after: int = Field(-1, ge=-1, le=LARGEST)


@router.post("")
async def create(request: Request, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Create a pipeline from its definition. With `limit`, only so many lines of the input are used: a sample."""
    given = await body.read_json(request, parts.settings.json_body_mb)
    key = submit_params.key_of(request.headers)
    caller, usual = _caller(request, tenant, parts, key), parts.lengths.of(tenant.tenant_id)
    database, settings = parts.database, parts.settings
    request_id = await service.create(database, settings, caller, Given.of(given), parts.queued_catalogue, usual)
    return await _shown(request_id, tenant, parts)


@router.post("/check")
async def check_definition(request: Request, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Check a definition; nothing is stored. The answer has requests of a sample, and an estimate of what each stage needs.

    Its `items` are upper limits. Tokens, cost and time are those of requests that are all as large as the largest of the sample.
    """
    given = await body.read_json(request, parts.settings.json_body_mb)
    caller, usual = _caller(request, tenant, parts, None), parts.lengths.of(tenant.tenant_id)
    return answer(
        await check.of(parts.database, parts.settings, caller, Given.of(given), parts.queued_catalogue, usual)
    )


@router.get("")
async def listing(tenant: KeyHolder, parts: PartsDep, page: Annotated[PageQuery, Query()]) -> Response:
    """The newest pipelines."""
    if not 1 <= page.limit <= reads.MOST_LISTED:
        raise PageTooLong(page.limit, reads.MOST_LISTED)
    after = places.parsed(page.after, ids.parse_id)
    found, more = await reads.page(parts.database, tenant, after=after, limit=page.limit)
    return listed([views.listed(*each) for each in found], more=more)


@router.get("/{pipeline_id}")
async def retrieve(pipeline_id: str, tenant: KeyHolder, parts: PartsDep) -> Response:
    """The state of a pipeline and of its stages, what each waits for, and when all will be done."""
    return await _shown(_parse(pipeline_id), tenant, parts)


@router.get("/{pipeline_id}/results")
async def read(
    pipeline_id: str, tenant: KeyHolder, parts: PartsDep, query: Annotated[ResultQuery, Query()]
) -> Response:
    """The results of one stage (by default the last), an item a line; also while it runs.

    While it runs, `x-slackwater-complete` is false, and items with smaller numbers may get their results later.
    """
    sight = await reads.get(parts.database, parts.settings, tenant, _parse(pipeline_id))
    stage = sight.stages[-1] if query.stage is None else sight.stage(query.stage)
    if stage.status.shredded_at is not None:
        raise batch_shredding.gone(stage.status.shredded_at)
    lines = results.lines(
        parts.database,
        parts.settings,
        parts.queued_catalogue,
        stage,
        after=query.after,
        restoring=restorer(parts.secret_key, tenant),
        on_withheld=partial(parts.admission.withheld, tenant.account_id),
    )
    headers = {COMPLETE: "true" if stage.status.finalized_at is not None else "false"}
    return await streamed(lines, headers=headers, media_type=body.NDJSON)


@router.get("/{pipeline_id}/items/{custom_id}")
async def item(pipeline_id: str, custom_id: str, tenant: KeyHolder, parts: PartsDep) -> Response:
    """What became of one line of the input, stage by stage: state, why, model, tokens."""
    sight = await reads.get(parts.database, parts.settings, tenant, _parse(pipeline_id))
    return answer(await lineage.of(parts.database, parts.settings, sight, custom_id))


@router.delete("/{pipeline_id}")
async def delete(pipeline_id: str, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Delete the requests and answers of all stages of a pipeline that has ended, and its definition. Counts and usage stay."""
    request_id = _parse(pipeline_id)
    await shredding.shred(parts.database, parts.settings, tenant, request_id)
    return answer({"id": ids.format_id(request_id), "object": "pipeline", "deleted": True})


@router.post("/{pipeline_id}/retry")
async def retry(
    pipeline_id: str, tenant: KeyHolder, parts: PartsDep, run: Annotated[int | None, Query(ge=1, le=32_000)] = None
) -> Response:
    """Run what has no answer again. With `run`, the run to be retried, the call is safe to repeat."""
    request_id = _parse(pipeline_id)
    await retrying.retry(parts.database, parts.settings, parts.queued_catalogue, tenant, request_id, run)
    return await _shown(request_id, tenant, parts)


@router.post("/{pipeline_id}/{verb}")
async def change_state(
    pipeline_id: str,
    verb: Literal["pause", "resume", "cancel"],
    request: Request,
    tenant: KeyHolder,
    parts: PartsDep,
) -> Response:
    """Pause, resume or cancel a pipeline as a whole. `resume` may have a new `budget`, and goes on whatever paused it before."""
    request_id = _parse(pipeline_id)
    usd = _new_budget(await _optional(request)) if verb == "resume" else None
    await lifecycle.change_state(parts.database, tenant, request_id, verb, usd)
    return await _shown(request_id, tenant, parts)


async def _optional(request: Request) -> Mapping[str, Any]:
    """The body, if there is one."""
    if request.headers.get("content-length", "0") == "0" and "transfer-encoding" not in request.headers:
        return {}
    return await body.read_json(request, 1)


def _new_budget(given: Mapping[str, Any]) -> float | None:
    fields = Fields(dict(given), "", ("budget",))
    return fields.inner("budget", ("usd",)).number("usd", _MOST_USD) if fields.has("budget") else None


def _caller(request: Request, tenant: Tenant, parts: Parts, key: str | None) -> Caller:
    labels = request_parsing.labels_of(request, tenant, idempotency_key=key)
    begin, of = parts.admission.begin, (tenant, labels.spend, Kind.STAGE, parts.queued_catalogue)
    return Caller(tenant, labels, lambda window: begin(*of, window, stored=labels.stored))


async def _shown(request_id: UUID, tenant: Tenant, parts: Parts) -> Response:
    sight = await reads.get(parts.database, parts.settings, tenant, request_id)
    found = await outlook.of(parts.database, parts.queued_catalogue, tenant, sight)
    whole = tenant.scope.role.includes(KeyRole.SUBMITTER)  # a definition has prompts
    return answer(views.shown(found, with_definition=whole))


def _parse(pipeline_id: str) -> UUID:
    parsed = ids.parse_id(pipeline_id)
    if parsed is None:
        raise NotFound(f"No pipeline found with id '{pipeline_id[:60]}'.")
    return parsed
