"""OpenAI's batches: created from files, fetched, listed, cancelled.

Batches that were submitted on other routes are shown here too, without an input file.

A file with an invalid line makes a batch that has failed, with the reason, as at OpenAI. None of its lines runs.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
from psycopg.types.json import Jsonb

from app import cells
from app.admission.admission import Admission
from app.audit import actor, log
from app.audit.acts import Act
from app.audit.record import DONE, Record
from app.batches import lifecycle, submit
from app.batches import listing as batch_listing
from app.batches.intake.offload import Offload
from app.batches.intake.openai_file import FileIntake
from app.batches.intake.spool_options import spool_options
from app.batches.openai import uploads
from app.batches.refused_batches import nothing_to
from app.batches.request_labels import NO_LABELS, RequestLabels
from app.batches.validation.openai_lines import LineProblem, Lines
from app.batches.why_chain import explained
from app.db.pool import Connection, Database
from app.engines.catalogue import Catalogue, Model
from app.errors import BadInput, KeyReused, NotFound, PageTooLong
from app.events import BatchData, BatchFailure, EventKind
from app.files import ids, sealed_files, sql
from app.files import service as files
from app.files.service import File
from app.openai_codes import OpenAICode
from app.queue import dependencies, ingest, reads
from app.queue.answer_lengths import UsualLength
from app.queue.bodies import BatchSeal
from app.queue.listing import Filters
from app.queue.reads import BatchSnapshot, BatchStatus
from app.settings import Settings
from app.storage.store import Store
from app.tenants.service import Tenant
from app.webhooks import emitter

MOST_LISTED = 100
_FILE_REFUSED = "The input file has errors; the batch lists them"


@dataclass(frozen=True, slots=True)
class NewFileBatch:
    """The request to create a batch. `window`: the caller's text; `deadline_seconds`: its meaning, None: no deadline.

    `partial`: its files can be read while it runs. `mixed`: its lines may name several models and endpoints. `lenient`: invalid
    lines become lines of the error file, and the others run. `then`: the stages that follow it; None: none do. `depends_on`: the
    batches that must be final before it starts.
    """

    input_file_id: str
    endpoint: str
    window: str
    deadline_seconds: float | None
    labels: RequestLabels = NO_LABELS
    output_seconds: int | None = None
    partial: bool = False
    mixed: bool = False
    lenient: bool = False
    admission: Admission = field(kw_only=True)
    then: bytes | None = None
    depends_on: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True)
class FileBatch:
    """A batch in OpenAI's form. `input_file_id` is empty where it was submitted on another route. `status` None: it was refused
    because of `problems`. `eta_seconds`: from now; None: unknown, and `no_eta` says why while it is unfinished.
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
    no_eta: str | None


async def create(
    database: Database,
    settings: Settings,
    models: Catalogue,
    tenant: Tenant,
    new: NewFileBatch,
    usual: UsualLength,
    follow: submit.Register | None = None,
) -> FileBatch:
    """Create a batch. Its file is read from the store again and written into the queue in one transaction.

    `usual`: the usual length of answers without a limit. `follow`: writes what is to follow a new batch, in that transaction.
    """
    async with database.relaxed() as conn:
        file = await files.find(conn, tenant.tenant_id, ids.parse_id(new.input_file_id))
        batch_id = await ingest.next_batch_id(conn)
    if (problem := _unusable(file, new, tenant)) is not None:
        made = await _made_before(database, tenant, new)
        return await get(database, tenant, made) if made else await _refuse(database, tenant, new, [problem])
    assert file is not None
    store = Store.of(settings)
    endpoint = None if new.mixed else new.endpoint
    rules = submit.rules_of_lines(models, usual)
    strict = file.problems is not None
    lines = Lines(models, rules, endpoint, mixed=new.mixed, strict=strict, admission=new.admission)
    options = await spool_options(database, settings, tenant, new.admission, batch_id)
    async with Offload(store) as offload:
        with FileIntake(batch_id, lines, new.endpoint, lenient=new.lenient, **options) as intake:
            intake.note(_terms(new))
            async for block in sealed_files.stream(database, settings, tenant.tenant_id, file.file_id):
                await asyncio.to_thread(intake.add_block, block)
                await offload.put(intake.take_large())
            await asyncio.to_thread(intake.end_lines)
            if lines.model is None or (lines.problems and not new.lenient):
                return await _refuse(database, tenant, new, lines.problems)

            async def register(conn: Connection, batch: ingest.NewBatch, seal: BatchSeal | None) -> None:
                await register_batch(conn, tenant, new, batch.request_id, batch.batch_id, None)
                if new.depends_on:
                    await dependencies.add(conn, tenant.tenant_id, batch.batch_id, batch.request_id, new.depends_on)
                if follow is not None:
                    await follow(conn, batch, seal)

            order = _order(new, tenant, lines.model, file.filename)
            request_id = await submit.commit(database, settings, order, intake, offload, register)
    return await get(database, tenant, request_id)


def _order(new: NewFileBatch, tenant: Tenant, model: Model, filename: str) -> submit.Order:
    return submit.Order(
        tenant,
        model,
        new.labels,
        deadline_seconds=new.deadline_seconds,
        endpoint=new.endpoint,
        open_ended=True,
        of_file=True,
        admission=new.admission,
        name=filename,
    )


def _unusable(file: File | None, new: NewFileBatch, tenant: Tenant) -> LineProblem | None:
    """Why no batch can be created from the file."""
    name = new.input_file_id[:60]
    if file is None or file.request_id is not None:
        message = f"Cannot find file {name}, or account {tenant.account_id} does not have access to it."
    elif file.purpose != uploads.PURPOSE:
        message = f"The purpose of file {name} is '{file.purpose}'; a batch takes one of '{uploads.PURPOSE}'."
    else:
        return None
    return LineProblem(OpenAICode.INVALID_FILE, None, message, "file_id")


async def _made_before(database: Database, tenant: Tenant, new: NewFileBatch) -> UUID | None:
    """The batch with this key, whose file is deleted by now. Raises KeyReused where its request differs."""
    if new.labels.idempotency_key is None:
        return None
    async with database.relaxed() as conn:
        found = await ingest.find_key(conn, tenant.tenant_id, new.labels.idempotency_key)
        if found is None:
            return None
        values = _columns(new) | {"tenant_id": tenant.tenant_id, "request_id": found[0]}
        if (await (await conn.execute(sql.ASKED_ALIKE, values)).fetchone()) is None:
            raise KeyReused(submit.KEY_REUSED)
    return found[0]


def _terms(new: NewFileBatch) -> bytes:
    """The part of a request, besides its lines, that must be equal under the same idempotency key."""
    flags = [new.endpoint, new.window, new.output_seconds, new.partial, new.mixed, new.lenient]
    terms = orjson.dumps([flags, sorted((new.labels.metadata or {}).items())])
    needs = orjson.dumps(sorted(map(str, new.depends_on))) if new.depends_on else b""
    return terms + (new.then or b"") + needs


async def _refuse(database: Database, tenant: Tenant, new: NewFileBatch, problems: Sequence[LineProblem]) -> FileBatch:
    request_id = cells.new_id()
    async with database.transaction() as conn:
        await register_batch(conn, tenant, new, request_id, None, [problem.view() for problem in problems])
        await emitter.emit(
            conn,
            tenant_id=tenant.tenant_id,
            kind=EventKind.BATCH_FAILED,
            model="",
            batch_id=None,
            run=None,
            data=BatchData(
                request_id=str(request_id),
                account_id=tenant.account_id,
                failure=BatchFailure(_FILE_REFUSED, BadInput.code, BadInput.status),
            ),
        )
    return await get(database, tenant, request_id)


async def register_batch(
    conn: Connection,
    tenant: Tenant,
    new: NewFileBatch,
    request_id: UUID,
    batch_id: int | None,
    problems: list[dict[str, Any]] | None,
) -> None:
    """Insert what a batch is in OpenAI's form. `problems`: it was refused because of these, so it has no `batch_id`."""
    values = {
        "request_id": request_id,
        "tenant_id": tenant.tenant_id,
        "batch_id": batch_id,
        "problems": None if problems is None else Jsonb(problems),
        "output_file_id": cells.new_id(),
        "error_file_id": cells.new_id(),
    }
    await conn.execute(sql.INSERT_BATCH, values | _columns(new))
    if actor.current().session_id is not None:  # what a key submits is not recorded: its line names the key
        outcome = DONE if problems is None else "refused because of its file"
        await log.record(conn, Record(Act.BATCH_CREATE, str(request_id), tenant.account_id, outcome=outcome))


def _columns(new: NewFileBatch) -> dict[str, Any]:
    """The columns of a row that the request determines."""
    return {
        "input_file_id": new.input_file_id,
        "endpoint": new.endpoint,
        "completion_window": new.window,
        "metadata": None if new.labels.metadata is None else Jsonb(dict(new.labels.metadata)),
        "output_seconds": new.output_seconds,
        "partial": new.partial,
        "mixed": new.mixed,
        "terms": hashlib.sha256(_terms(new)).digest(),
    }


async def get(database: Database, tenant: Tenant, request_id: UUID) -> FileBatch:
    """One batch, submitted on any route. Raises NotFound."""
    found = await _many(database, tenant, [request_id])
    if not found:
        raise NotFound(f"No batch found with id 'batch_{request_id.hex}'.")
    return found[0]


async def listing(
    database: Database, tenant: Tenant, filters: Filters, *, after: UUID | None = None, limit: int = 20
) -> tuple[list[FileBatch], bool]:
    """The newest batches after `after`, submitted on any route, and whether there are more. Raises BadInput."""
    if not 1 <= limit <= MOST_LISTED:
        raise PageTooLong(limit, MOST_LISTED)
    positions, more = await batch_listing.page(database, tenant, filters, after=after, limit=limit)
    return await _many(database, tenant, [position.request_id for position in positions]), more


async def apply_verb(database: Database, tenant: Tenant, request_id: UUID, verb: lifecycle.Verb) -> FileBatch:
    """Pause, resume or cancel; finished items keep their results. Repeating a verb has no effect. Raises NotFound, Conflict."""
    await _check_ran(database, tenant, request_id, verb)
    await lifecycle.change_state(database, tenant, request_id, verb)
    return await get(database, tenant, request_id)


async def retry(
    database: Database, settings: Settings, models: Catalogue, tenant: Tenant, request_id: UUID
) -> FileBatch:
    """Run the failed, cancelled and expired items again, with new output files. Raises NotFound, Conflict."""
    await _check_ran(database, tenant, request_id, "retry")
    await lifecycle.retry(database, settings, models, tenant, request_id)
    return await get(database, tenant, request_id)


async def _check_ran(database: Database, tenant: Tenant, request_id: UUID, verb: str) -> None:
    if (await get(database, tenant, request_id)).status is None:
        raise nothing_to(verb)


async def _many(database: Database, tenant: Tenant, request_ids: Sequence[UUID]) -> list[FileBatch]:
    """The batches of these ids, in their order, without unknown ones."""
    rows = await _rows(database, tenant, request_ids)
    if len(rows) < len(request_ids):  # batches of other routes get a row when they are first shown here
        async with database.durable() as conn:
            values = {"tenant_id": tenant.tenant_id, "request_ids": list(request_ids)}
            await conn.execute(sql.ADOPT, values)
        rows = await _rows(database, tenant, request_ids)
    sights = await reads.snapshots(database, [(tenant.tenant_id, row[0]) for row in rows]) if rows else []
    found = [await _state_and_eta(database, sight) for sight in sights]
    batches = {row[0]: FileBatch(*[*row, *now]) for row, now in zip(rows, found, strict=True)}
    return [batches[request_id] for request_id in request_ids if request_id in batches]


async def _rows(database: Database, tenant: Tenant, request_ids: Sequence[UUID]) -> Sequence[Sequence[Any]]:
    async with database.relaxed() as conn:
        values = {"tenant_id": tenant.tenant_id, "request_ids": list(request_ids)}
        return await (await conn.execute(sql.BATCHES, values)).fetchall()


async def _state_and_eta(
    database: Database, sight: BatchSnapshot | None
) -> tuple[BatchStatus | None, float | None, str | None]:
    if sight is None:
        return None, None, None
    why = await explained(database, *sight)
    return sight[0], why.estimate.eta_seconds if why.estimate else None, why.no_eta
