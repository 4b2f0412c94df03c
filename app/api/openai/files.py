"""OpenAI's Files API: batch files are uploaded; output and error files are views of results.

Shapes: openai-python 3.52, `types/file_object.py`. A file is checked while it is uploaded. Its `status_details` describe
errors, and a batch of such a file fails at once.
"""

import asyncio
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from app.api import body, byte_ranges, conditions, request_parsing
from app.api.byte_ranges import Range
from app.api.deps import KeyHolder, Parts, PartsDep
from app.api.multipart import Form
from app.api.openai.list_pages import PageQuery, answer, listed
from app.api.parameter_limits import LARGEST, Text, declared
from app.api.response_headers import COMPLETE, add, attachment
from app.api.streams import streamed
from app.batches import shredding
from app.batches.openai import file_content, forecast, uploads
from app.batches.openai.file_content import FileContent
from app.batches.openai.uploads import IncomingUpload
from app.batches.restoring import restorer
from app.batches.validation import fields
from app.engines.outcome import meaning
from app.errors import BadInput
from app.files import ids, sealed_files
from app.files import service as files
from app.files.service import File
from app.openai_codes import OpenAICode
from app.sentences import bare, ended
from app.storage.store import Store
from app.tenants.service import Tenant

router = APIRouter()

_BYTES = "application/octet-stream"
_FORM_MB = 1.0  # limit of the form without the file
_DAY = 86_400
_EXPIRY = range(3600, 30 * _DAY + 1)


class FileListQuery(PageQuery):
    """The query of a listing of files."""

    limit: int = Field(files.MOST_LISTED, json_schema_extra=declared(1, files.MOST_LISTED))
    order: Literal["asc", "desc"] = "desc"
    purpose: Text | None = None


@router.post("/files")
async def create(request: Request, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Upload a file. The lines of a batch file are checked while it arrives; files of other purposes are only stored."""
    body.check_plain(request)
    form = Form(request.headers.get("content-type", ""))
    settings = parts.settings
    redaction = parts.admission.redaction(tenant)
    rule = parts.admission.encrypts_files(tenant)
    seal = await sealed_files.new_seal(parts.database, settings, tenant.tenant_id, rule)
    with IncomingUpload(settings, parts.catalogue, parts.lengths.of(tenant.tenant_id), redaction, seal) as upload:
        async for block in body.blocks(request, settings.ndjson_body_mb + _FORM_MB, uploads.too_large(settings)):
            piece = form.feed(block)
            if piece:
                if "purpose" in form.fields:  # clients send it first, so files of unknown purposes are refused early
                    upload.purpose = checked_purpose(form.fields.get("purpose"))
                await asyncio.to_thread(upload.add, piece)
        form.close()
        upload.purpose = checked_purpose(form.fields.get("purpose"))
        expires_seconds = expiry(form.fields.get("expires_after[anchor]"), form.fields.get("expires_after[seconds]"))
        await asyncio.to_thread(upload.close)
        stored = await uploads.store(
            parts.database, settings, tenant, upload, filename=form.filename or "", expires_seconds=expires_seconds
        )
    return answer(view(stored, stored.bytes, tenant))


@router.get("/files")
async def listing(tenant: KeyHolder, parts: PartsDep, page: Annotated[FileListQuery, Query()]) -> Response:
    """Files that can be read. The size of an output file is known after that file was fetched once."""
    async with parts.database.relaxed() as conn:
        found, more = await files.listing(
            conn,
            tenant.tenant_id,
            purpose=page.purpose,
            after=page.after,
            limit=page.limit,
            ascending=page.order == "asc",
        )
    return listed([view(file, file.bytes or 0, tenant) for file in found], more=more)


@router.get("/files/{file_id}")
async def retrieve(file_id: str, tenant: KeyHolder, parts: PartsDep) -> Response:
    """One file."""
    async with parts.database.relaxed() as conn:
        file = await files.get(conn, tenant.tenant_id, file_id)
    return answer(view(file, await _size(parts, tenant, file), tenant))


@router.head("/files/{file_id}/content", include_in_schema=False)
@router.get("/files/{file_id}/content")
async def content(
    request: Request,
    file_id: str,
    tenant: KeyHolder,
    parts: PartsDep,
    offset: Annotated[int, Query(ge=0, le=LARGEST)] = 0,
) -> Response:
    """The content as a stream: all of it, a `Range` of its bytes, or the part after its first `offset` lines.

    `x-slackwater-complete` is true for a final content, which has an `etag`. Lines of a content that is not final do not change,
    more are added.
    """
    async with parts.database.relaxed() as conn:
        file = await files.get(conn, tenant.tenant_id, file_id)
    restoring = restorer(parts.secret_key, tenant)
    on_withheld = partial(parts.admission.withheld, tenant.account_id)
    contents = await file_content.of(
        parts.database, parts.settings, parts.catalogue, tenant, file, restoring, on_withheld
    )
    headers = {
        "content-disposition": attachment(file.filename),
        "accept-ranges": "bytes",
        COMPLETE: "true" if contents.complete else "false",
    }
    if contents.tag is not None:
        headers["etag"] = contents.tag
    if conditions.has_changed(request.headers, contents.tag):
        raise BadInput("If-Match: is not the ETag of this content", status=412)
    if conditions.is_known(request.headers, contents.tag):
        return Response(status_code=304, headers=headers)
    known = None if offset else file_content.known_size(file, restoring)
    if request.method == "HEAD":
        size = await contents.size(offset) if known is None else known
        return Response(headers=headers | {"content-length": str(size)}, media_type=_BYTES)
    follows = not offset and conditions.may_continue(request.headers, contents.tag)
    byte_range = byte_ranges.parse(request.headers.get("range")) if follows else None
    if byte_range is None:
        if known is not None and file.request_id is None:  # output is made while it is read
            headers["content-length"] = str(known)
        return await streamed(contents.blocks(offset), headers=headers, media_type=_BYTES)
    return await _part(request, contents, byte_range, await contents.size() if known is None else known, headers)


async def _part(request: Request, contents: FileContent, wanted: Range, size: int, headers: dict[str, str]) -> Response:
    """A range of a content of this many bytes. Raises BadInput."""
    part = wanted.within(size)
    if part is None:
        add(request, {"content-range": f"bytes */{size}"})
        raise BadInput(f"Range: is outside the file, which has {size} bytes now", status=416)
    first, count = part
    whole = str(size) if contents.complete else "*"
    headers |= {"content-range": f"bytes {first}-{first + count - 1}/{whole}", "content-length": str(count)}
    return await streamed(contents.part(first, count), 206, headers, media_type=_BYTES)


@router.get("/files/{file_id}/estimate")
async def estimate(file_id: str, request: Request, tenant: KeyHolder, parts: PartsDep) -> Response:
    """The estimate for a batch of an uploaded file: tokens, cost, its end if it were created now, and where money would end.

    The workflow of the batch is that of this request: `x-slackwater-workflow`, or the key's.
    """
    labels = request_parsing.labels_of(request, tenant).spend
    async with parts.database.relaxed() as conn:
        file = await files.get(conn, tenant.tenant_id, file_id)
    return answer(await forecast.of(parts.database, parts.queued_catalogue, tenant, labels, file))


@router.delete("/files/{file_id}")
async def delete(file_id: str, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Remove a file. Batches of an uploaded file continue. With the last output or error file of a batch that has ended, the
    contents of the batch are deleted.
    """
    async with parts.database.relaxed() as conn:
        file = await files.get(conn, tenant.tenant_id, file_id)
    if file.request_id is None:
        await files.delete(parts.database, Store.of(parts.settings), tenant, file)
    else:
        await shredding.delete_output(parts.database, parts.settings, tenant, file)
    return answer({"id": file_id, "object": "file", "deleted": True})


async def _size(parts: Parts, tenant: Tenant, file: File) -> int:
    restoring = restorer(parts.secret_key, tenant)
    return await file_content.size_of(parts.database, parts.settings, parts.catalogue, tenant, file, restoring)


def view(file: File, size: int | None, tenant: Tenant) -> dict[str, Any]:
    """A file in the form that OpenAI's clients read, as this tenant's key may see it."""
    return {
        "id": ids.format_id(file.file_id),
        "object": "file",
        "bytes": size,
        "created_at": int(file.created_at.timestamp()),
        "expires_at": int(file.expires_at.timestamp()) if file.expires_at else None,
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": _details(file.problems or [], tenant),
        "lines": file.lines,
    }


def _details(problems: list[dict[str, Any]], tenant: Tenant) -> str | None:
    """The first invalid line and its effect; lines that fail the whole batch come before those that fail alone.

    What is wrong with a line that fails alone may quote its prompt, so not every key reads it.
    """
    if not problems:
        return None
    whole = [problem for problem in problems if not problem.get("alone")]
    shown = whole or problems
    first = bare(shown[0]["message"] if whole or tenant.scope.reads_bodies else meaning(BadInput.code))
    more = f", and {len(shown) - 1} more" if len(shown) > 1 else ""
    effect = (
        "A batch of this file fails, unless its validation is lenient."
        if whole
        else "In a batch of this file only such lines fail."
    )
    return ended(f"line {shown[0]['line']}: {first}{more}") + f" {effect}"


def checked_purpose(purpose: object) -> str:
    """The purpose, if it is supported. Raises BadInput."""
    supported = (uploads.PURPOSE, *uploads.UNREAD_PURPOSES)
    if not isinstance(purpose, str) or purpose not in supported:
        given = "it is missing" if purpose is None else f"got {str(purpose)[:40]!r}"
        reason = OpenAICode.MISSING if purpose is None else None
        message = f"purpose: must be one of {', '.join(supported)}; {given}"
        raise BadInput(message, param="purpose", reason=reason)
    return purpose


def expiry(anchor: object, seconds: object) -> float:
    """`expires_after` in seconds from now; 30 days by default. Raises BadInput."""
    if anchor is None and seconds is None:
        return uploads.DEFAULT_SECONDS
    number = str(seconds)[:12]
    if anchor != "created_at" or not number.isdecimal() or int(number) not in _EXPIRY:
        raise BadInput(
            f"expires_after: the anchor must be created_at, the seconds {_EXPIRY[0]} to {_EXPIRY[-1]}; "
            f"got {fields.show(anchor)} and {fields.show(seconds)}",
            param="expires_after",
        )
    return float(number)
