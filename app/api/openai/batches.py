"""OpenAI's Batches API. Shapes: openai-python 3.52, `types/batch.py`; every field is present, some are null."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from app import clock, places, trace_context
from app.admission.admission import Admission
from app.api import body, policy_header, request_parsing, submit_metrics, submit_params, unknown_fields
from app.api.deps import KeyHolder, Parts, PartsDep
from app.api.header_texts import HeaderTexts
from app.api.openai.list_pages import PageQuery, answer, listed
from app.api.openai.metadata import read_metadata
from app.batches.openai import file_batches, uploads
from app.batches.openai.file_batches import FileBatch, NewFileBatch
from app.batches.validation.fields import show
from app.batches.validation.openai_lines import ROUTES
from app.engines.catalogue import Price
from app.engines.pricing import with_cost
from app.engines.rate_card import Work
from app.errors import BadInput, Conflict, NotFound, StageOfPipeline
from app.files import ids
from app.files import service as files
from app.openai_codes import OpenAICode
from app.pipelines import ids as pipeline_ids
from app.pipelines import then
from app.queue import dependencies
from app.queue.listing import Filters
from app.queue.reads import BatchStatus
from app.queue.types import Kind
from app.sentences import ended
from app.states import BatchState
from app.storage.store import Store
from app.tenants.service import Tenant

router = APIRouter()

_OUTPUT_SECONDS = range(3600, 30 * 86_400 + 1)
# A batch without any success is `completed` too: its error file has the reasons.
_STATUSES = {
    BatchState.OPEN: "in_progress",
    BatchState.PAUSED: "paused",
    BatchState.CANCELLING: "cancelling",
    BatchState.EXPIRING: "finalizing",
    BatchState.COMPLETED: "completed",
    BatchState.FAILED: "completed",
    BatchState.CANCELLED: "cancelled",
    BatchState.EXPIRED: "expired",
}


@router.post("/batches")
async def create(request: Request, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Create a batch from an uploaded file, or from `requests` in the body, which become a file first. A file with an invalid
    line makes a batch that has failed, with the reason; with `validation: lenient` only that line fails.
    """
    given = await body.read_json(request, parts.settings.json_body_mb)
    with submit_metrics.counted():
        return await _create(given, request, tenant, parts)


async def _create(given: dict[str, Any], request: Request, tenant: Tenant, parts: Parts) -> Response:
    unknown_fields.check(request, given, unknown_fields.BATCH)
    requests, stages = given.pop("requests", None), given.pop("then", None)
    new = _read(given if requests is None else {**given, "input_file_id": ""}, request, tenant, parts)
    database, settings, models = parts.database, parts.settings, parts.queued_catalogue
    if requests is not None:
        if given.get("input_file_id"):
            raise BadInput("requests: send them or input_file_id, not both", param="requests")
        if not isinstance(requests, list) or not requests:
            raise BadInput("requests: must be a non-empty list", param="requests")
        for place, each in enumerate(requests):
            if not isinstance(each, dict):
                where = f"requests[{place}]"
                raise BadInput(f"{where}: must be an object, got {show(each)}", param=where)
        batch = await _from_requests(requests, new, stages, tenant, parts)
    else:
        usual = parts.lengths.of(tenant.tenant_id)
        begin = _of_stages(new, tenant, parts)
        batch = await then.create(database, settings, models, tenant, new, stages, usual, begin)
    if batch.model:
        policy_header.add(request, new.admission, batch.model)
    return _shown(batch, parts)


async def _from_requests(
    requests: list[Any], new: NewFileBatch, stages: Any, tenant: Tenant, parts: Parts
) -> FileBatch:
    """A batch from a file with these requests. The file is deleted where no batch is created from it."""
    database, settings, models = parts.database, parts.settings, parts.queued_catalogue
    usual = parts.lengths.of(tenant.tenant_id)
    hidden, rule = new.admission.redaction, parts.admission.encrypts_files(tenant)
    file = await uploads.from_requests(database, settings, models, tenant, requests, new.endpoint, usual, hidden, rule)
    name, made = ids.format_id(file.file_id), None
    try:
        new = replace(new, input_file_id=name)
        begin = _of_stages(new, tenant, parts)
        made = await then.create(database, settings, models, tenant, new, stages, usual, begin)
    finally:
        if made is None or made.input_file_id != name:  # the idempotency key belongs to an earlier batch
            await files.discard(database, Store.of(settings), tenant.tenant_id, file)
    return made


def _of_stages(new: NewFileBatch, tenant: Tenant, parts: Parts) -> Callable[[], Admission]:
    """What opens the admission of stages behind a batch, under its labels and its window."""
    labels, window = new.labels, new.deadline_seconds
    of = tenant, labels.spend, Kind.STAGE, parts.queued_catalogue, window
    return lambda: parts.admission.begin(*of, stored=labels.stored)


@router.get("/batches")
async def listing(tenant: KeyHolder, parts: PartsDep, page: Annotated[PageQuery, Query()]) -> Response:
    """The newest batches, including those of Workers AI's routes."""
    after = places.parsed(page.after, submit_params.batch_id)
    found, more = await file_batches.listing(parts.database, tenant, Filters(), after=after, limit=page.limit)
    return listed([view(batch, _price(batch, parts)) for batch in found], more=more)


@router.get("/batches/{batch_id}")
async def retrieve(batch_id: str, tenant: KeyHolder, parts: PartsDep) -> Response:
    """The state of a batch."""
    return _shown(await file_batches.get(parts.database, tenant, _parse(batch_id)), parts)


@router.post("/batches/{batch_id}/retry")
async def retry(batch_id: str, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Run the failed, cancelled and expired items again, with the same completion window."""
    request_id = _parse(batch_id)
    database, settings = parts.database, parts.settings
    async with _conflict_in_openai_words("retry", tenant, parts, request_id):
        return _shown(await then.retry(database, settings, parts.queued_catalogue, tenant, request_id), parts)


@router.post("/batches/{batch_id}/{verb}")
async def change_state(
    batch_id: str, verb: Literal["cancel", "pause", "resume"], tenant: KeyHolder, parts: PartsDep
) -> Response:
    """Cancel: drop queued items, abort running ones, keep results. Pause: start no further item."""
    request_id = _parse(batch_id)
    async with _conflict_in_openai_words(verb, tenant, parts, request_id):
        return _shown(await then.apply_verb(parts.database, tenant, request_id, verb), parts)


@asynccontextmanager
async def _conflict_in_openai_words(verb: str, tenant: Tenant, parts: Parts, request_id: UUID) -> AsyncIterator[None]:
    try:
        yield
    except StageOfPipeline:
        raise
    except Conflict as refusal:
        batch = await file_batches.get(parts.database, tenant, request_id)
        why = "" if verb == "cancel" else f" {ended(refusal.message)}"
        raise Conflict(f"Cannot {verb} a batch with status '{_state(batch.status)}'.{why}") from None


def _read(given: dict[str, Any], request: Request, tenant: Tenant, parts: Parts) -> NewFileBatch:
    """The request to create a batch. Raises BadInput naming the field, SensitiveFound."""
    if given.get("input_file_id") is None:
        raise BadInput(
            "input_file_id: is missing; name an uploaded file, or send its lines as requests",
            param="input_file_id",
            reason=OpenAICode.MISSING,
        )
    for name in ("endpoint", "completion_window"):
        if given.get(name) is None:
            raise BadInput(f"{name}: is missing", param=name, reason=OpenAICode.MISSING)
    for name in ("input_file_id", "endpoint", "completion_window"):
        if not isinstance(given.get(name), str) or len(given[name]) > submit_params.LONGEST or "\0" in given[name]:
            raise BadInput(f"{name}: must be a string of at most {submit_params.LONGEST} characters", param=name)
    endpoint, window = given["endpoint"], given["completion_window"]
    if endpoint not in ROUTES:
        message = f"Invalid endpoint: {endpoint[:60]!r}. Supported values: {', '.join(map(repr, ROUTES))}."
        raise BadInput(message, param="endpoint", reason=OpenAICode.INVALID_VALUE)
    key = HeaderTexts(request.headers).get(submit_params.KEY_HEADER) or given.get("idempotency_key")
    metadata = read_metadata(given.get("metadata"))
    output_seconds = _output_seconds(given.get("output_expires_after"))
    key = submit_params.idempotency_key(key, "idempotency_key")
    labels = request_parsing.labels_of(request, tenant, metadata=metadata, idempotency_key=key)
    seconds, begin = _deadline(window), parts.admission.begin
    return NewFileBatch(
        given["input_file_id"],
        endpoint,
        window,
        seconds,
        labels,
        output_seconds,
        partial=_flag(given, "partial_results"),
        mixed=_flag(given, "mixed"),
        lenient=_lenient(given.get("validation")),
        admission=begin(tenant, labels.spend, Kind.BATCH, parts.catalogue, seconds, stored=labels.stored),
        depends_on=_depends_on(given.get("depends_on")),
    )


def _depends_on(given: Any) -> tuple[UUID, ...]:
    """The batches that must end first. Raises BadInput."""
    if given is None:
        return ()
    if not isinstance(given, list) or len(given) > dependencies.MOST:
        raise BadInput(
            f"{dependencies.FIELD}: must be a list of at most {dependencies.MOST} ids", param=dependencies.FIELD
        )
    found = [submit_params.batch_id(name) for name in given]
    for place, each in enumerate(found):
        if each is None:
            where = f"{dependencies.FIELD}[{place}]"
            raise BadInput(f"{where}: must be the id of a batch, as its create returns it", param=where)
    return tuple(dict.fromkeys(each for each in found if each is not None))


def _flag(given: dict[str, Any], name: str) -> bool:
    value = given.get(name)
    if value is not None and not isinstance(value, bool):
        raise BadInput(f"{name}: must be true or false", param=name)
    return bool(value)


def _lenient(given: Any) -> bool:
    if given not in (None, "strict", "lenient"):
        raise BadInput("validation: must be strict (a bad line fails the batch) or lenient", param="validation")
    return bool(given == "lenient")


def _deadline(window: str) -> float | None:
    if window == submit_params.NO_DEADLINE:
        return None
    seconds = submit_params.window_seconds(window)
    if seconds is None:
        known = f"{submit_params.WINDOWS}, or {submit_params.NO_DEADLINE} for no deadline"
        message = f"Invalid completion_window: must be {known}; got {window[:40]!r}."
        raise BadInput(message, param="completion_window", reason=OpenAICode.INVALID_VALUE)
    return seconds


def _output_seconds(given: Any) -> int | None:
    if given is None:
        return None
    seconds = given.get("seconds") if isinstance(given, dict) and given.get("anchor") == "created_at" else None
    if type(seconds) is not int or seconds not in _OUTPUT_SECONDS:
        raise BadInput(
            f"output_expires_after: the anchor must be created_at, the seconds {_OUTPUT_SECONDS[0]} to {_OUTPUT_SECONDS[-1]}; "
            f"got {show(given)}",
            param="output_expires_after",
        )
    return seconds


def _parse(batch_id: str) -> UUID:
    parsed = submit_params.batch_id(batch_id)
    if parsed is None:
        raise NotFound(f"No batch found with id '{batch_id[:60]}'.")
    return parsed


def _shown(batch: FileBatch, parts: Parts) -> Response:
    return answer(view(batch, _price(batch, parts)))


def _price(batch: FileBatch, parts: Parts) -> Price | None:
    """The price of the batch's tokens; None where its lines may differ in it."""
    one = batch.model and not batch.mixed and (batch.status is None or batch.status.has_one_model)
    model = parts.catalogue.resolve(batch.model) if batch.model and one else None
    return model.price_of(Work.BATCH, batch.created_at) if model else None


def _state(status: BatchStatus | None) -> str:
    return _STATUSES[status.state] if status else "failed"


def view(batch: FileBatch, price: Price | None) -> dict[str, Any]:
    """A batch in the form that OpenAI's clients read, with our additional fields."""
    status = batch.status
    state = _state(status)
    ended = _unix(status.finalized_at) if status else None
    readable = status is not None and (ended is not None or batch.partial)
    errors = None if batch.problems is None else {"object": "list", "data": batch.problems}
    return {
        "id": f"{submit_params.BATCH_PREFIX}{batch.request_id.hex}",
        "object": "batch",
        "endpoint": batch.endpoint,
        "model": batch.model,
        "errors": errors,
        "input_file_id": batch.input_file_id,
        "completion_window": batch.window,
        "status": state,
        "output_file_id": ids.format_id(batch.output_file_id) if readable and status and _has_output(status) else None,
        "error_file_id": ids.format_id(batch.error_file_id) if readable and status and _has_errors(status) else None,
        "created_at": _unix(batch.created_at),
        "in_progress_at": _unix(batch.created_at) if status else None,
        "expires_at": _unix(status.expires_at) if status else None,
        "finalizing_at": ended,
        "completed_at": ended if state == "completed" else None,
        "failed_at": _unix(batch.created_at) if status is None else None,
        "expired_at": ended if state == "expired" else None,
        "cancelling_at": _unix(batch.cancelling_at) if state in ("cancelling", "cancelled") else None,
        "cancelled_at": ended if state == "cancelled" else None,
        "request_counts": _counts(status),
        "usage": _usage(status, price),
        "metadata": batch.metadata,
        "policy": status.policy if status else None,
        "diverted_to": status.diverted_to if status else None,
        "pipeline": pipeline_ids.format_id(status.pipeline) if status and status.pipeline else None,
        "trace_id": trace_context.trace_id(status.traceparent) if status else None,
        "progress": round((status.ok + status.failed) / max(1, status.total), 4) if status else None,
        "eta": None if batch.eta_seconds is None else int(clock.now().timestamp() + batch.eta_seconds),
        "no_eta": batch.no_eta,
    }


def _has_output(status: BatchStatus) -> bool:
    """Whether there is an output file; while the batch runs, it may be empty."""
    return status.ok > 0 or status.finalized_at is None


def _has_errors(status: BatchStatus) -> bool:
    return status.failed > 0 if status.finalized_at is None else status.ok < status.total


def _counts(status: BatchStatus | None) -> dict[str, int]:
    if status is None:
        return {"total": 0, "completed": 0, "failed": 0}
    counts = {"total": status.total, "completed": status.ok, "failed": status.failed}
    if status.state in (BatchState.CANCELLED, BatchState.EXPIRED):
        counts[str(status.state)] = status.unfinished
    elif status.finalized_at is None:
        counts["in_progress"] = status.unfinished
    return counts


def _usage(status: BatchStatus | None, price: Price | None) -> dict[str, Any] | None:
    if status is None:
        return None
    tokens = {
        "input_tokens": status.prompt_tokens,
        "input_tokens_details": status.parts("input", cached_tokens=status.cached_tokens),
        "output_tokens": status.completion_tokens,
        "output_tokens_details": status.parts("output", reasoning_tokens=0),
        "total_tokens": status.prompt_tokens + status.completion_tokens,
    }
    return with_cost(tokens, price)


def _unix(moment: datetime | None) -> int | None:
    return int(moment.timestamp()) if moment else None
