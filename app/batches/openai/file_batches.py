"""Batches as OpenAI has them: created of files, found, listed, cancelled.

A batch that came by another way is shown here too; it names no input file.

A file whose lines are not all fit makes a batch that has failed and says why, as at OpenAI; nothing of it is run.
"""

import asyncio
import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
from psycopg.types.json import Jsonb

from app.batches import lifecycle, submit
from app.batches import listing as batch_listing
from app.batches.intake.offload import Offload
from app.batches.intake.openai_file import FileIntake
from app.batches.openai import uploads
from app.batches.validation.openai_lines import LineProblem, Lines
from app.batches.why import explain
from app.db.pool import Connection, Database
from app.engines.catalogue import Catalogue
from app.errors import BadInput, Conflict, KeyReused, NotFound
from app.files import ids, sql
from app.files import service as files
from app.files.service import File
from app.queue import ingest, reads
from app.queue.answer_lengths import Usual
from app.queue.listing import Filters
from app.queue.reads import BatchStatus, Sight
from app.settings import Settings
from app.storage import object_names
from app.storage.store import Store
from app.tenants.service import Tenant
from app.webhooks import service as webhooks

MOST_LISTED = 100
_PROBLEMS = 7  # the column of a row


@dataclass(frozen=True, slots=True)
class NewFileBatch:
    """What a create asks for. `window`: as written; `deadline_seconds`: what it means, None: no deadline.

    `partial`: its files can be read while it runs. `mixed`: its lines may name several models and endpoints. `lenient`: lines
    that cannot be run become lines of the error file, and the others are run.
    """

    input_file_id: str
    endpoint: str
    window: str
    deadline_seconds: float | None
    metadata: Mapping[str, str] | None = None
    output_seconds: int | None = None
    idempotency_key: str | None = None
    traceparent: str | None = None
    correlation_id: str | None = None
    partial: bool = False
    mixed: bool = False
    lenient: bool = False


@dataclass(frozen=True, slots=True)
class FileBatch:
    """A batch as one of a file (`input_file_id` empty: it came by another way). `status` None: it was refused, for `problems`.

    `eta_seconds` from now, where that is known.
    """

    request_id: UUID
    input_file_id: str
    endpoint: str
    window: str
    created_at: datetime
    cancelling_at: datetime | None
    metadata: dict[str, str] | None
    problems: list[dict[str, Any]] | None
    output_file_id: UUID
    error_file_id: UUID
    partial: bool
    mixed: bool
    model: str | None
    status: BatchStatus | None
    eta_seconds: float | None


async def create(
    database: Database, settings: Settings, models: Catalogue, tenant: Tenant, wish: NewFileBatch, usual: Usual
) -> FileBatch:
    """Take a batch. Its file is read from the store once more and written into the queue in one transaction.

    `usual`: how long answers without a limit are.
    """
    async with database.relaxed() as conn:
        file = await files.find(conn, tenant.tenant_id, ids.read(wish.input_file_id))
        batch_id = await ingest.next_batch_id(conn)
    if (problem := _unusable(file, wish, tenant)) is not None:
        made = await _made_before(database, tenant, wish)
        return await get(database, tenant, made) if made else await _refuse(database, tenant, wish, [problem])
    assert file is not None
    store = Store.of(settings)
    endpoint = None if wish.mixed else wish.endpoint
    rules = submit.rules_of_lines(models, usual)
    lines = Lines(models, rules, endpoint, mixed=wish.mixed, strict=file.problems is not None)
    async with Offload(store) as offload:
        options = submit.spool_options(settings)
        with FileIntake(batch_id, lines, wish.endpoint, lenient=wish.lenient, **options) as intake:
            intake.note(_terms(wish))
            async for block in store.stream(object_names.upload(tenant.tenant_id, file.file_id)):
                await asyncio.to_thread(intake.add_block, block)
                await offload.put(intake.take_large())
            await asyncio.to_thread(intake.end_lines)
            if lines.model is None or (lines.problems and not wish.lenient):
                return await _refuse(database, tenant, wish, lines.problems)
            order = submit.Order(
                tenant,
                lines.model,
                wish.correlation_id,
                wish.traceparent,
                metadata=wish.metadata,
                idempotency_key=wish.idempotency_key,
                deadline_seconds=wish.deadline_seconds,
                endpoint=wish.endpoint,
                open_ended=True,
            )

            async def register(conn: Connection, batch: ingest.NewBatch) -> None:
                await _register(conn, tenant, wish, batch.request_id, batch.batch_id, None)

            request_id = await submit.commit(database, settings, order, intake, offload, register)
    return await get(database, tenant, request_id)


def _unusable(file: File | None, wish: NewFileBatch, tenant: Tenant) -> LineProblem | None:
    """Why no batch can be made of the file."""
    name = wish.input_file_id[:60]
    if file is None or file.request_id is not None:
        message = f"Cannot find file {name}, or account {tenant.account_id} does not have access to it."
    elif file.purpose != uploads.PURPOSE:
        message = f"The purpose of file {name} is '{file.purpose}'; a batch takes one of '{uploads.PURPOSE}'."
    else:
        return None
    return LineProblem("invalid_request", None, message, "file_id")


async def _made_before(database: Database, tenant: Tenant, wish: NewFileBatch) -> UUID | None:
    """The batch that was made under this key, of the file that has gone. Raises KeyReused where it was asked for otherwise."""
    if wish.idempotency_key is None:
        return None
    async with database.relaxed() as conn:
        found = await ingest.find_key(conn, tenant.tenant_id, wish.idempotency_key)
        if found is None:
            return None
        values = _columns(wish) | {"tenant_id": tenant.tenant_id, "request_id": found[0]}
        if (await (await conn.execute(sql.ASKED_ALIKE, values)).fetchone()) is None:
            raise KeyReused(submit.KEY_REUSED)
    return found[0]


def _terms(wish: NewFileBatch) -> bytes:
    """What beside its lines makes a create another one under the same idempotency key."""
    flags = [wish.endpoint, wish.window, wish.output_seconds, wish.partial, wish.mixed, wish.lenient]
    return orjson.dumps([flags, sorted((wish.metadata or {}).items())])


async def _refuse(database: Database, tenant: Tenant, wish: NewFileBatch, problems: Sequence[LineProblem]) -> FileBatch:
    request_id = uuid.uuid4()
    async with database.transaction() as conn:
        await _register(conn, tenant, wish, request_id, None, [problem.view() for problem in problems])
        await webhooks.emit(
            conn,
            tenant_id=tenant.tenant_id,
            kind="batch.failed",
            model="",
            batch_id=None,
            run=None,
            data={
                "request_id": str(request_id),
                "account_id": tenant.account_id,
                "message": problems[0].message,
                "internal_code": BadInput.code,
                "http_code": BadInput.status,
            },
        )
    return await get(database, tenant, request_id)


async def _register(
    conn: Connection,
    tenant: Tenant,
    wish: NewFileBatch,
    request_id: UUID,
    batch_id: int | None,
    problems: list[dict[str, Any]] | None,
) -> None:
    values = {
        "request_id": request_id,
        "tenant_id": tenant.tenant_id,
        "batch_id": batch_id,
        "problems": None if problems is None else Jsonb(problems),
        "output_file_id": uuid.uuid4(),
        "error_file_id": uuid.uuid4(),
    }
    await conn.execute(sql.INSERT_BATCH, values | _columns(wish))


def _columns(wish: NewFileBatch) -> dict[str, Any]:
    """What a row says of the wish."""
    return {
        "input_file_id": wish.input_file_id,
        "endpoint": wish.endpoint,
        "completion_window": wish.window,
        "metadata": None if wish.metadata is None else Jsonb(dict(wish.metadata)),
        "output_seconds": wish.output_seconds,
        "partial": wish.partial,
        "mixed": wish.mixed,
        "terms": hashlib.sha256(_terms(wish)).digest(),
    }


async def get(database: Database, tenant: Tenant, request_id: UUID) -> FileBatch:
    """One batch, however it came. Raises NotFound."""
    found = await _many(database, tenant, [request_id])
    if not found:
        raise NotFound(f"No batch found with id 'batch_{request_id.hex}'.", code=404)
    return found[0]


async def refused(database: Database, tenant: Tenant, request_ids: Sequence[UUID]) -> dict[UUID, FileBatch]:
    """Those of the batches that were refused for their file, by id."""
    rows = await _rows(database, tenant, request_ids)
    return {row[0]: FileBatch(*[*row, None, None]) for row in rows if row[_PROBLEMS] is not None}


async def listing(
    database: Database, tenant: Tenant, wanted: Filters, *, after: UUID | None = None, limit: int = 20
) -> tuple[list[FileBatch], bool]:
    """The newest batches behind `after`, however they came, and whether there are more. Raises BadInput."""
    if not 1 <= limit <= MOST_LISTED:
        raise BadInput(f"limit: must be 1 to {MOST_LISTED}", param="limit")
    places, more = await batch_listing.page(database, tenant, wanted, after=after, limit=limit)
    return await _many(database, tenant, [place.request_id for place in places]), more


async def halt(database: Database, tenant: Tenant, request_id: UUID, verb: lifecycle.Verb) -> FileBatch:
    """Pause, resume or cancel; what is done is kept, and done before is done. Raises NotFound, Conflict."""
    check_ran(await get(database, tenant, request_id), verb)
    await lifecycle.halt(database, tenant, request_id, verb)
    return await get(database, tenant, request_id)


async def retry(
    database: Database, settings: Settings, models: Catalogue, tenant: Tenant, request_id: UUID
) -> FileBatch:
    """Run what failed, was cancelled or has expired once more; its files come anew. Raises NotFound, Conflict."""
    check_ran(await get(database, tenant, request_id), "retry")
    await lifecycle.retry(database, settings, models, tenant, request_id)
    return await get(database, tenant, request_id)


def check_ran(batch: FileBatch, verb: str) -> None:
    """Raise Conflict for a batch of which nothing was ever run."""
    if batch.status is None:
        raise Conflict(
            f"The batch was refused for its file, so that there is nothing to {verb}; mend the file and make a new batch"
        )


async def _many(database: Database, tenant: Tenant, request_ids: Sequence[UUID]) -> list[FileBatch]:
    """The batches of these ids, in their order, without those that are none of the tenant's."""
    rows = await _rows(database, tenant, request_ids)
    if len(rows) < len(
        request_ids
    ):  # some came by another way, and are looked at as batches of files for the first time
        async with database.durable() as conn:
            values = {"tenant_id": tenant.tenant_id, "request_ids": list(request_ids)}
            await conn.execute(sql.ADOPT, values)
        rows = await _rows(database, tenant, request_ids)
    sights = await reads.sights(database, [(tenant.tenant_id, row[0]) for row in rows]) if rows else []
    found = {row[0]: FileBatch(*[*row, *_standing(sight)]) for row, sight in zip(rows, sights, strict=True)}
    return [found[request_id] for request_id in request_ids if request_id in found]


async def _rows(database: Database, tenant: Tenant, request_ids: Sequence[UUID]) -> Sequence[Sequence[Any]]:
    async with database.relaxed() as conn:
        values = {"tenant_id": tenant.tenant_id, "request_ids": list(request_ids)}
        return await (await conn.execute(sql.BATCHES, values)).fetchall()


def _standing(sight: Sight | None) -> tuple[BatchStatus | None, float | None]:
    if sight is None:
        return None, None
    expected = explain(*sight).estimate
    return sight[0], expected.eta_seconds if expected else None
