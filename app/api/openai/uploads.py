"""OpenAI's Uploads API (`POST /v1/uploads`): a file in parts, each of which can be repeated where the network fails.

Shapes: openai-python 3.52, `types/upload.py` and `types/uploads/upload_part.py`. The file is checked when it is completed.
"""

import asyncio
import hashlib
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from fastapi import APIRouter, Request, Response

from app.admission import quota_events, quotas
from app.api import body
from app.api.deps import KeyHolder, Parts, PartsDep
from app.api.multipart import Form
from app.api.openai import files as file_routes
from app.api.openai.list_pages import answer
from app.batches.intake.spool import catch_disk_full, spooled
from app.batches.openai import uploads
from app.errors import BadInput, Conflict, NotFound, SensitiveFound
from app.files import names, sealed_files, upload_parts
from app.files import service as files
from app.files.service import File
from app.files.upload_parts import PART_PREFIX, PREFIX, Upload
from app.states import UploadState
from app.storage import object_names
from app.storage.store import Store
from app.tenants.service import Tenant

router = APIRouter(prefix="/uploads")

_BODY_MB, _PART_MB = 1.0, 64.0


@router.post("")
async def create(request: Request, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Begin an upload of a given size. Its parts must arrive within an hour."""
    _check_allowed(parts, tenant)
    given = await body.read_json(request, _BODY_MB)
    purpose = file_routes.checked_purpose(given.get("purpose"))
    size, filename = given.get("bytes"), given.get("filename")
    most = int(parts.settings.ndjson_body_mb * 2**20)
    if type(size) is not int or not 1 <= size <= most:
        raise BadInput(f"bytes: must be an integer between 1 and {most}", param="bytes")
    if not isinstance(filename, str) or not filename:
        raise BadInput("filename: must be a non-empty string", param="filename")
    names.checked(filename, "filename")
    if not isinstance(given.get("mime_type", ""), str):
        raise BadInput("mime_type: must be a string", param="mime_type")
    after = given.get("expires_after")
    if after is not None and not isinstance(after, dict):
        raise BadInput("expires_after: must be an object with anchor and seconds", param="expires_after")
    default = uploads.DEFAULT_SECONDS
    seconds = default if after is None else file_routes.expiry(after.get("anchor", ""), after.get("seconds"))
    seal = await sealed_files.new_seal(
        parts.database, parts.settings, tenant.tenant_id, parts.admission.encrypts_files(tenant)
    )
    async with parts.database.transaction() as conn:
        upload = await upload_parts.create(
            conn, tenant.tenant_id, filename=filename, purpose=purpose, size=size, file_seconds=seconds, seal=seal
        )
    return answer(_view(upload, None, tenant))


@router.post("/{upload_id}/parts")
async def add(upload_id: str, request: Request, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Add a part: the field `data` of a form. Parts may arrive in any order."""
    _check_allowed(parts, tenant)
    body.check_plain(request)
    form, size, part_id = Form(request.headers.get("content-type", ""), file="data"), 0, uuid4()
    parsed_id = _parse(upload_id, PREFIX)
    seal = await sealed_files.seal_of_upload(parts.database, parts.settings, tenant.tenant_id, parsed_id)
    frames = seal.writer(part_id) if seal else None
    with spooled(parts.settings.data_dir / "spool") as spool:
        async for block in body.blocks(request, _PART_MB + _BODY_MB):
            piece = form.feed(block)
            size += len(piece)
            with catch_disk_full():
                spool.write(frames.feed(piece) if frames else piece)
        form.close()
        with catch_disk_full():
            if frames:
                spool.write(frames.close())
            spool.flush()
        store = Store.of(parts.settings)
        path = Path(spool.name)
        demand = quotas.Demand(stored_bytes=size)
        async with quota_events.told(parts.database, tenant):
            part_id, created_at = await upload_parts.add(
                parts.database,
                store,
                tenant.tenant_id,
                parsed_id,
                path,
                size,
                check=lambda conn: quotas.check(conn, tenant, demand),
                part_id=part_id,
            )
    return answer(
        {
            "id": PART_PREFIX + part_id.hex,
            "object": "upload.part",
            "created_at": int(created_at.timestamp()),
            "upload_id": upload_id,
        }
    )


@router.post("/{upload_id}/complete")
async def complete(upload_id: str, request: Request, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Create the file from these parts, in this order. Repeating the call has no effect."""
    given = await body.read_json(request, _BODY_MB)
    _check_allowed(parts, tenant)
    async with parts.database.relaxed() as conn:
        upload = await upload_parts.get(conn, tenant.tenant_id, _parse(upload_id, PREFIX))
        if upload.status not in (UploadState.PENDING, UploadState.COMPLETED):
            raise Conflict(f"The upload is {upload.status}")
        if upload.state == UploadState.PENDING:
            part_ids = _part_ids(given.get("part_ids"))
            await upload_parts.check_parts(conn, upload, part_ids)
    if upload.state == UploadState.PENDING:
        upload = await _completed(parts, tenant, upload, part_ids, given.get("md5"))
    async with parts.database.relaxed() as conn:
        file = await files.find(conn, tenant.tenant_id, upload.file_id)
    return answer(_view(upload, file, tenant))


@router.post("/{upload_id}/cancel")
async def cancel(upload_id: str, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Delete the upload and its parts."""
    parsed_id, store = _parse(upload_id, PREFIX), Store.of(parts.settings)
    return answer(_view(await upload_parts.cancel(parts.database, store, tenant.tenant_id, parsed_id), None, tenant))


async def _completed(parts: Parts, tenant: Tenant, upload: Upload, part_ids: list[UUID], md5: Any) -> Upload:
    store, digest = Store.of(parts.settings), hashlib.md5(usedforsecurity=False)
    seal = await sealed_files.new_seal(
        parts.database, parts.settings, tenant.tenant_id, parts.admission.encrypts_files(tenant)
    )
    usual = parts.lengths.of(tenant.tenant_id)
    with uploads.IncomingUpload(parts.settings, parts.catalogue, usual, None, seal) as spool:
        spool.purpose = upload.purpose
        for part_id in part_ids:
            async for block in sealed_files.stream_part(
                parts.database, parts.settings, tenant.tenant_id, upload.upload_id, part_id
            ):
                digest.update(block)
                await asyncio.to_thread(spool.add, block)
        if md5 is not None and md5 != digest.hexdigest():
            raise BadInput("md5: it differs from that of these parts", param="md5")
        await asyncio.to_thread(spool.close)
        file = await uploads.store(
            parts.database,
            parts.settings,
            tenant,
            spool,
            filename=upload.filename,
            expires_seconds=upload.file_seconds,
            counted=True,
        )
    async with parts.database.durable() as conn:
        done = await upload_parts.complete(conn, tenant.tenant_id, upload.upload_id, file.file_id)
    if done is None:  # another call completed it first
        await files.discard(parts.database, store, tenant.tenant_id, file)
        async with parts.database.relaxed() as conn:
            done = await upload_parts.get(conn, tenant.tenant_id, upload.upload_id)
        if done.state != UploadState.COMPLETED:
            raise Conflict(f"The upload is {done.status}")
        return done
    await store.delete_prefix(object_names.parts(tenant.tenant_id, upload.upload_id))
    return done


def _check_allowed(parts: Parts, tenant: Tenant) -> None:
    """Raise SensitiveFound where the account's requests are redacted: a part may begin and end within a line."""
    if parts.admission.redaction(tenant) is not None:
        raise SensitiveFound("A policy of this account redacts its files, and parts cannot be; upload it to /v1/files")


def _part_ids(given: Any) -> list[UUID]:
    if not isinstance(given, list) or not 1 <= len(given) <= upload_parts.MAX_PARTS:
        raise BadInput(f"part_ids: must be a list of 1 to {upload_parts.MAX_PARTS} ids", param="part_ids")
    return [_parse(part_id, PART_PREFIX) for part_id in given]


def _parse(text: Any, prefix: str) -> UUID:
    try:
        return UUID(str(text).removeprefix(prefix))
    except ValueError:
        kind = "Upload" if prefix == PREFIX else "part"
        raise NotFound(f"No such {kind} object: {str(text)[:60]}") from None


def _view(upload: Upload, file: File | None, tenant: Tenant) -> dict[str, Any]:
    """An upload in the form that OpenAI's clients read."""
    return {
        "id": PREFIX + upload.upload_id.hex,
        "object": "upload",
        "bytes": upload.bytes,
        "created_at": int(upload.created_at.timestamp()),
        "expires_at": int(upload.expires_at.timestamp()),
        "filename": upload.filename,
        "purpose": upload.purpose,
        "status": upload.status,
        "file": file_routes.view(file, file.bytes, tenant) if file else None,
    }
