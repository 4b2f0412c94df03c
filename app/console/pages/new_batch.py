"""New batch: a file is dropped, each of its lines is checked while it arrives, its needs are estimated, and it is queued."""

import asyncio
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from app import clock
from app.access.roles import Viewer
from app.batches.openai import file_batches, forecast, uploads
from app.batches.openai.file_batches import NewFileBatch
from app.batches.openai.uploads import IncomingUpload
from app.batches.request_labels import RequestLabels
from app.batches.validation.openai_lines import ROUTES as ENDPOINTS
from app.console import forms, queries
from app.console.page import whole
from app.console.pages.actions import account_of
from app.console.parts import Parts, parts_of, viewer_of
from app.console.views import new_batch
from app.errors import BadInput, SlackwaterError
from app.files import ids, names, sealed_files
from app.files import service as files
from app.files.service import File
from app.metering.spend_labels import NO_SPEND_LABELS
from app.quantities import seconds_of
from app.queue.types import Kind
from app.tenants.service import Tenant

_SUBMIT = "submit a batch"
_NAME_CHARACTERS = 80
_KEPT_SECONDS = 24 * 3600.0  # a file of which no batch is made is removed after a day


async def show(request: Request) -> Response:
    """Where a file is dropped; with a file, its check and the order."""
    parts, tenant = parts_of(request), account_of(viewer_of(request), _SUBMIT)
    async with parts.reader.relaxed() as conn:
        served = await queries.served_models(conn)
    known = parts.models.offered.models or parts.catalogue.models
    model = min(known.values(), key=lambda each: (each.served not in served, each.name != each.served, each.name))
    most = f"{parts.settings.ndjson_body_mb:g}"
    context: dict[str, object] = {"checked": None, "most_mb": most, "model": model.name}
    if public_id := request.query_params.get("file", ""):
        context["checked"] = await _checked(parts, tenant, public_id)
    return await whole(request, "new_batch", context, active=new_batch.PATH)


async def _checked(parts: Parts, tenant: Tenant, public_id: str) -> dict[str, object]:
    async with parts.reader.relaxed() as conn:
        file = await files.get(conn, tenant.tenant_id, public_id)
    estimate = await forecast.of(parts.reader, parts.queued_catalogue, tenant, NO_SPEND_LABELS, file)
    return new_batch.view(file, estimate, clock.now())


async def upload(request: Request) -> Response:
    """Take a file as it comes. `x-next` is where its check is shown."""
    parts, viewer = parts_of(request), viewer_of(request)
    tenant = account_of(viewer, _SUBMIT)
    try:
        file = await _stored(request, parts, viewer, tenant)
    except SlackwaterError as error:
        return PlainTextResponse(error.message, error.status)
    public_id = ids.format_id(file.file_id)
    return PlainTextResponse("checked\n", 201, headers={"x-next": f"{new_batch.PATH}?file={quote(public_id)}"})


async def report(request: Request) -> Response:
    """What was found so far in a file that still arrives, as JSON: `words`, and `problems` by line. 404: it does not."""
    parts, viewer = parts_of(request), viewer_of(request)
    account_of(viewer, _SUBMIT)
    upload = parts.arriving.find(viewer, request.query_params.get("upload", ""))
    if upload is None:
        return JSONResponse({"words": "", "problems": []}, 404)
    return JSONResponse(new_batch.report(upload.lines.count, upload.lines.all_problems))


async def _stored(request: Request, parts: Parts, viewer: Viewer, tenant: Tenant) -> File:
    settings, shown = parts.settings, request.query_params.get("upload", "")
    redaction, rule = parts.admission.redaction(tenant), parts.admission.encrypts_files(tenant)
    seal = await sealed_files.new_seal(parts.database, settings, tenant.tenant_id, rule)
    with (
        IncomingUpload(settings, parts.catalogue, parts.lengths.of(tenant.tenant_id), redaction, seal) as incoming,
        parts.arriving.shown(viewer, shown, incoming),
    ):
        incoming.purpose = uploads.PURPOSE
        async for block in request.stream():
            if block:
                await asyncio.to_thread(incoming.add, block)
        await asyncio.to_thread(incoming.close)
        name = names.checked(request.query_params.get("name", ""), "name") or "input.jsonl"
        return await uploads.store(
            parts.database, settings, tenant, incoming, filename=name, expires_seconds=_KEPT_SECONDS
        )


async def create(request: Request) -> Response:
    """Queue a batch of a checked file."""
    parts, viewer = parts_of(request), viewer_of(request)
    tenant = account_of(viewer, _SUBMIT)
    form = {name: str(value) for name, value in (await forms.read(request)).items()}
    order = _order(parts, tenant, form)
    made = await file_batches.create(
        parts.database, parts.settings, parts.catalogue, tenant, order, parts.lengths.of(tenant.tenant_id)
    )
    parts.looks.expire()
    if made.status is None:
        raise BadInput(f"The file was refused: {(made.problems or [{}])[0].get('message', 'a line is invalid')}")
    return RedirectResponse(f"/console/batches/{made.request_id}?did=queued", 303)


def _order(parts: Parts, tenant: Tenant, form: dict[str, str]) -> NewFileBatch:
    window = form.get("window", "24h")
    if window not in dict(new_batch.WINDOWS):
        raise BadInput(f"window: must be one of {', '.join(dict(new_batch.WINDOWS))}")
    seconds = seconds_of(window)
    name = form.get("name", "").strip()[:_NAME_CHARACTERS]
    labels = RequestLabels(metadata={"name": name} if name else None)
    admission = parts.admission.begin(tenant, labels.spend, Kind.BATCH, parts.catalogue, seconds, stored=labels.stored)
    return NewFileBatch(
        form.get("file", ""),
        next(iter(ENDPOINTS)),
        window,
        seconds,
        labels,
        partial=True,
        mixed=True,
        lenient=form.get("lenient") == "on",
        admission=admission,
    )


ROUTES = (
    Route(new_batch.PATH, show, name="new_batch"),
    Route(new_batch.PATH, create, methods=["POST"]),
    Route(f"{new_batch.PATH}/file", report),
    Route(f"{new_batch.PATH}/file", upload, methods=["POST"]),
)
