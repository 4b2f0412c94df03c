"""OpenAI's Files API: batch files in, output and error files out, which are views over results.

Shapes: openai-python 3.52, `types/file_object.py`. A file is checked while it is uploaded; what is wrong with it stands in
`status_details`, and makes the batch of it fail at once.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal
from uuid import uuid4

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import ORJSONResponse, StreamingResponse

from app.api import body
from app.api.deps import KeyHolder, Parts, PartsDep
from app.api.multipart import Form
from app.api.openai.lists import Page, listed
from app.batches import file_batches, result_lines, service
from app.batches.uploads import Upload
from app.errors import BadInput
from app.files import ids
from app.files import service as files
from app.files.service import File
from app.queue import reading
from app.storage import keys
from app.storage.store import Store
from app.tenants.service import Tenant

router = APIRouter()

PURPOSE = "batch"
_FORM_MB = 1.0  # beside the file
_DAY = 86_400
_EXPIRY = range(3600, 30 * _DAY + 1)


class Listing(Page):
    """The query of a listing of files."""

    limit: int = files.MOST_LISTED
    order: Literal["asc", "desc"] = "desc"
    purpose: str | None = None


@router.post("/files")
async def create(request: Request, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Upload a batch file; its lines are checked while it arrives."""
    form = Form(request.headers.get("content-type", ""))
    settings, file_id = parts.settings, uuid4()
    with Upload(settings, parts.catalogue, service.rules_of_lines(parts.catalogue)) as upload:
        async for block in body.blocks(request, settings.ndjson_body_mb + _FORM_MB):
            piece = form.feed(block)
            if piece:
                if "purpose" in form.fields:  # clients send it first, so that what is not for us ends here
                    _check_purpose(form)
                await asyncio.to_thread(upload.add, piece)
        form.close()
        _check_purpose(form)
        expires_seconds = _expiry(form)
        await asyncio.to_thread(upload.close)
        kept = await files.keep(
            parts.database,
            Store.of(settings),
            upload.path,
            file_id=file_id,
            tenant_id=tenant.tenant_id,
            purpose=PURPOSE,
            filename=(form.filename or "")[:255],
            size=upload.size,
            expires_seconds=expires_seconds,
            lines=upload.lines.count,
            problems=[problem.view() for problem in upload.lines.problems],
        )
    return ORJSONResponse(view(kept, kept.bytes))


@router.get("/files")
async def listing(tenant: KeyHolder, parts: PartsDep, page: Annotated[Listing, Query()]) -> Response:
    """Files that can be read, uploads and those of final batches."""
    async with parts.database.relaxed() as conn:
        found, more = await files.listing(
            conn,
            tenant.tenant_id,
            purpose=page.purpose,
            after=page.after,
            limit=page.limit,
            ascending=page.order == "asc",
        )
    data = [view(file, await _size(parts, tenant, file)) for file in found]
    return listed(data, more=more)


@router.get("/files/{file_id}")
async def retrieve(file_id: str, tenant: KeyHolder, parts: PartsDep) -> Response:
    """One file."""
    async with parts.database.relaxed() as conn:
        file = await files.get(conn, tenant.tenant_id, file_id)
    return ORJSONResponse(view(file, await _size(parts, tenant, file)))


@router.get("/files/{file_id}/content")
async def content(file_id: str, tenant: KeyHolder, parts: PartsDep) -> Response:
    """What is in it, streamed."""
    async with parts.database.relaxed() as conn:
        file = await files.get(conn, tenant.tenant_id, file_id)
    names = {"content-disposition": f'attachment; filename="{_plain(file.filename)}"'}
    return StreamingResponse(await _content(parts, tenant, file), media_type="application/octet-stream", headers=names)


@router.delete("/files/{file_id}")
async def delete(file_id: str, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Remove a file. Batches made of it go on."""
    async with parts.database.relaxed() as conn:
        file = await files.get(conn, tenant.tenant_id, file_id)
    await files.delete(parts.database, Store.of(parts.settings), tenant.tenant_id, file)
    return ORJSONResponse({"id": file_id, "object": "file", "deleted": True})


async def _content(parts: Parts, tenant: Tenant, file: File) -> AsyncIterator[bytes]:
    store = Store.of(parts.settings)
    if file.request_id is None:
        return store.stream(keys.upload(tenant.tenant_id, file.file_id))
    batch = await file_batches.get(parts.database, tenant, file.request_id)
    status = batch.status
    assert status is not None
    model = parts.catalogue.resolve(status.model)
    pages = reading.results(parts.database, status.batch_id, status.run, store=store)
    return result_lines.lines(
        file.request_id,
        status.state,
        pages,
        of_errors=bool(file.of_errors),
        price=model.price if model else None,
    )


async def _size(parts: Parts, tenant: Tenant, file: File) -> int:
    """Bytes of a file; those of a view are counted by making it."""
    if file.bytes is not None:
        return file.bytes
    return sum([len(block) async for block in await _content(parts, tenant, file)])


def view(file: File, size: int | None) -> dict[str, Any]:
    """A file as OpenAI's clients read it."""
    details = None
    if file.problems:
        first = file.problems[0]
        more = f", and {len(file.problems) - 1} more" if len(file.problems) > 1 else ""
        details = f"line {first['line']}: {first['message']}{more}. A batch of this file fails."
    return {
        "id": ids.written(file.file_id),
        "object": "file",
        "bytes": size,
        "created_at": int(file.created_at.timestamp()),
        "expires_at": int(file.expires_at.timestamp()) if file.expires_at else None,
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": details,
        "lines": file.lines,
    }


def _check_purpose(form: Form) -> None:
    purpose = form.fields.get("purpose")
    if purpose != PURPOSE:
        given = "is missing" if purpose is None else f"{purpose[:40]!r} is not supported"
        raise BadInput(f"purpose: {given}; only {PURPOSE!r} is")


def _expiry(form: Form) -> float:
    """`expires_after` in seconds from now; 30 days if it is not given."""
    anchor, seconds = form.fields.get("expires_after[anchor]"), form.fields.get("expires_after[seconds]")
    if anchor is None and seconds is None:
        return 30 * _DAY
    if anchor != "created_at" or not (seconds or "").isdecimal() or int((seconds or "0")[:12]) not in _EXPIRY:
        raise BadInput(
            f"expires_after: the anchor must be created_at, the seconds {_EXPIRY[0]} to {_EXPIRY[-1]}, got {seconds}"
        )
    return float(seconds or 0)


def _plain(name: str) -> str:
    return "".join(letter for letter in name if letter.isascii() and letter.isprintable() and letter not in '"\\')
