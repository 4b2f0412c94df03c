"""OpenAI's Files API: batch files in, output and error files out, which are views over results.

Shapes: openai-python 3.52, `types/file_object.py`. A file is checked while it is uploaded; what is wrong with it stands in
`status_details`, and makes the batch of it fail at once.
"""

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from app.api import body, byte_ranges
from app.api.deps import KeyHolder, Parts, PartsDep
from app.api.multipart import Form
from app.api.openai.list_pages import PageQuery, answer, listed
from app.api.parameter_limits import LARGEST, Text, declared
from app.api.response_headers import COMPLETE, add, attachment
from app.batches.openai import file_content, forecast, uploads
from app.batches.openai.uploads import IncomingUpload
from app.errors import BadInput
from app.files import ids
from app.files import service as files
from app.files.service import File
from app.sentences import bare, ended
from app.storage.store import Store
from app.tenants.service import Tenant

router = APIRouter()

_BYTES = "application/octet-stream"
_FORM_MB = 1.0  # beside the file
_DAY = 86_400
_EXPIRY = range(3600, 30 * _DAY + 1)


class FileListQuery(PageQuery):
    """The query of a listing of files."""

    limit: int = Field(files.MOST_LISTED, json_schema_extra=declared(1, files.MOST_LISTED))
    order: Literal["asc", "desc"] = "desc"
    purpose: Text | None = None


@router.post("/files")
async def create(request: Request, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Upload a file. The lines of one for a batch are checked while it arrives; one of another purpose is only kept."""
    form = Form(request.headers.get("content-type", ""))
    settings = parts.settings
    with IncomingUpload(settings, parts.catalogue, parts.lengths.of(tenant.tenant_id)) as upload:
        async for block in body.blocks(request, settings.ndjson_body_mb + _FORM_MB, uploads.too_large()):
            piece = form.feed(block)
            if piece:
                if "purpose" in form.fields:  # clients send it first, so that what is not for us ends here
                    upload.purpose = checked_purpose(form.fields.get("purpose"))
                await asyncio.to_thread(upload.add, piece)
        form.close()
        upload.purpose = checked_purpose(form.fields.get("purpose"))
        expires_seconds = expiry(form.fields.get("expires_after[anchor]"), form.fields.get("expires_after[seconds]"))
        await asyncio.to_thread(upload.close)
        kept = await uploads.kept(
            parts.database, settings, tenant, upload, filename=form.filename or "", expires_seconds=expires_seconds
        )
    return answer(view(kept, kept.bytes))


@router.get("/files")
async def listing(tenant: KeyHolder, parts: PartsDep, page: Annotated[FileListQuery, Query()]) -> Response:
    """Files that can be read. The size of an output file is known once somebody has asked for that file."""
    async with parts.database.relaxed() as conn:
        found, more = await files.listing(
            conn,
            tenant.tenant_id,
            purpose=page.purpose,
            after=page.after,
            limit=page.limit,
            ascending=page.order == "asc",
        )
    return listed([view(file, file.bytes or 0) for file in found], more=more)


@router.get("/files/{file_id}")
async def retrieve(file_id: str, tenant: KeyHolder, parts: PartsDep) -> Response:
    """One file."""
    async with parts.database.relaxed() as conn:
        file = await files.get(conn, tenant.tenant_id, file_id)
    return answer(view(file, await _size(parts, tenant, file)))


@router.get("/files/{file_id}/content")
async def content(
    request: Request,
    file_id: str,
    tenant: KeyHolder,
    parts: PartsDep,
    offset: Annotated[int, Query(ge=0, le=LARGEST)] = 0,
) -> Response:
    """What is in it, streamed: all of it, a `Range` of its bytes, or what follows its first `offset` lines.

    `x-slackwater-complete` says whether nothing will be added. What was read of a file that is not complete never changes.
    """
    async with parts.database.relaxed() as conn:
        file = await files.get(conn, tenant.tenant_id, file_id)
    found = await file_content.of(parts.database, parts.settings, parts.catalogue, tenant, file)
    headers = {
        "content-disposition": attachment(file.filename),
        "accept-ranges": "bytes",
        COMPLETE: "true" if found.complete else "false",
    }
    wanted = byte_ranges.parse(request.headers.get("range")) if not offset else None
    if wanted is None:
        return StreamingResponse(found.blocks(offset), media_type=_BYTES, headers=headers)
    size = file.bytes if file.bytes is not None else await found.size()
    part = wanted.within(size)
    whole = str(size) if found.complete else "*"
    if part is None:
        add(request, {"content-range": f"bytes */{size}"})
        raise BadInput(f"Range: nothing of it exists; the file has {size} bytes now", status=416)
    first, count = part
    headers |= {"content-range": f"bytes {first}-{first + count - 1}/{whole}", "content-length": str(count)}
    return StreamingResponse(found.part(first, count), 206, media_type=_BYTES, headers=headers)


@router.get("/files/{file_id}/estimate")
async def estimate(file_id: str, tenant: KeyHolder, parts: PartsDep) -> Response:
    """What a batch of an uploaded file would take: tokens, cost, and when it would be done if it were made now."""
    async with parts.database.relaxed() as conn:
        file = await files.get(conn, tenant.tenant_id, file_id)
    return answer(await forecast.of(parts.database, parts.catalogue, tenant, file))


@router.delete("/files/{file_id}")
async def delete(file_id: str, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Remove a file. Batches made of it go on."""
    async with parts.database.relaxed() as conn:
        file = await files.get(conn, tenant.tenant_id, file_id)
    await files.delete(parts.database, Store.of(parts.settings), tenant.tenant_id, file)
    return answer({"id": file_id, "object": "file", "deleted": True})


async def _size(parts: Parts, tenant: Tenant, file: File) -> int:
    return await file_content.size_of(parts.database, parts.settings, parts.catalogue, tenant, file)


def view(file: File, size: int | None) -> dict[str, Any]:
    """A file as OpenAI's clients read it."""
    return {
        "id": ids.format_id(file.file_id),
        "object": "file",
        "bytes": size,
        "created_at": int(file.created_at.timestamp()),
        "expires_at": int(file.expires_at.timestamp()) if file.expires_at else None,
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": _details(file.problems or []),
        "lines": file.lines,
    }


def _details(problems: list[dict[str, Any]]) -> str | None:
    """The first bad line, and what comes of it; lines that fail the whole batch come before those that fail alone."""
    if not problems:
        return None
    whole = [problem for problem in problems if not problem.get("alone")]
    told = whole or problems
    first = bare(told[0]["message"])
    more = f", and {len(told) - 1} more" if len(told) > 1 else ""
    comes = (
        "A batch of this file fails, unless its validation is lenient."
        if whole
        else "In a batch of this file only such lines fail."
    )
    return ended(f"line {told[0]['line']}: {first}{more}") + f" {comes}"


def checked_purpose(purpose: object) -> str:
    """The purpose, if files of it are taken. Raises BadInput."""
    taken = (uploads.PURPOSE, *uploads.PLAIN)
    if not isinstance(purpose, str) or purpose not in taken:
        given = "is missing" if purpose is None else f"{str(purpose)[:40]!r} is not supported"
        raise BadInput(f"purpose: {given}; one of {', '.join(taken)}", param="purpose")
    return purpose


def expiry(anchor: object, seconds: object) -> float:
    """`expires_after` in seconds from now; 30 days if it is not given. Raises BadInput."""
    if anchor is None and seconds is None:
        return uploads.USUAL_SECONDS
    number = str(seconds)[:12]
    if anchor != "created_at" or not number.isdecimal() or int(number) not in _EXPIRY:
        raise BadInput(
            f"expires_after: the anchor must be created_at, the seconds {_EXPIRY[0]} to {_EXPIRY[-1]}, got {number}",
            param="expires_after",
        )
    return float(number)
