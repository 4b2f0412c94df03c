"""Create a pipeline: its definition is read, its input is checked and spooled, then all of it is written in one transaction."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from uuid import UUID

import orjson

from app import cells, off_loop
from app.admission import quota_events, quotas
from app.admission.admission import Admission
from app.batches.intake.offload import Offload
from app.batches.intake.spool_options import spool_options
from app.batches.request_labels import RequestLabels
from app.batches.submit import KEY_REUSED, data_key
from app.db.pool import Connection, Database
from app.db.transient_errors import with_retries
from app.engines.catalogue import Catalogue
from app.errors import BadInput, KeyInUse, KeyReused
from app.files import ids as file_ids
from app.files import sealed_files
from app.files import service as files
from app.flows.counting import check_numbers
from app.flows.definition import parse
from app.flows.stages import MOST_ITEMS, Definition
from app.pipelines import creation, drafting, events, models, reads_sql, stored_flow
from app.pipelines.creation import Lines, NewPipeline, Source
from app.pipelines.drafting import Input, Order
from app.pipelines.intake import InputIntake, too_many
from app.queue import ingest, wakes
from app.queue.answer_lengths import UsualLength
from app.settings import Settings
from app.storage.store import Store
from app.tenants.service import Tenant

FILE, ITEMS = "input.file_id", "input.items"
_BATCH_PREFIX = "batch_"


@dataclass(frozen=True, slots=True)
class Given:
    """What a caller sent: a definition, and the lines of its input if they came with it."""

    definition: dict[str, Any]
    items: Sequence[Any] | None = None

    @classmethod
    def of(cls, body: dict[str, Any]) -> "Given":
        """From a JSON body."""
        source = body.get("input")
        if not isinstance(source, dict) or not isinstance(source.get("items"), list):
            return cls(body)
        return cls(body | {"input": source | {"items": True}}, source["items"])


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and what its requests have in common. `begin`: opens their admission, for a completion window in seconds."""

    tenant: Tenant
    labels: RequestLabels
    begin: Callable[[float | None], Admission]


async def order_of(caller: Caller, given: Given, catalogue: Catalogue, usual: UsualLength) -> Order:
    """The order of a definition, whose stages could run. Raises BadInput, PolicyDenied, SensitiveFound."""
    flow = await asyncio.to_thread(parse, given.definition)
    found = models.resolved(flow, catalogue)
    models.check_budget(flow, found)
    admission = caller.begin(flow.window)
    if (redaction := admission.redaction) is not None:
        text = orjson.dumps(given.definition)
        await off_loop.searched(text, redaction.check, "the definition of the pipeline", text.decode())
    await asyncio.to_thread(models.check_requests, flow, found, admission, usual)
    stored = stored_flow.of_definition(given.definition)
    return Order(caller.tenant, flow, stored, found, caller.labels, admission, flow.window)


async def create(
    database: Database, settings: Settings, caller: Caller, given: Given, catalogue: Catalogue, usual: UsualLength
) -> UUID:
    """Create a pipeline; all or nothing. A repeated idempotency key returns the pipeline that has it.

    Raises BadInput, NotFound, PolicyDenied, SensitiveFound, QuotaExceeded, BudgetSpent, KeyReused.
    """
    order = await order_of(caller, given, catalogue, usual)
    if order.flow.input.batch is not None:
        request_id = await _from_batch(database, settings, order)
    else:
        request_id = await _from_lines(database, settings, order, given.items)
    wakes.notify({})
    return request_id


async def _from_batch(database: Database, settings: Settings, order: Order) -> UUID:
    """A pipeline whose input are the items of a batch, which the steward copies when that is final."""
    async with database.relaxed() as conn:
        source_id, _ = await source_of(conn, order.tenant, order.flow)
    new = await drafting.drafted(database, settings, order, None, sha256(order.given).digest())
    return await _store(database, order, new, Source(source_id), quotas.Demand(1))


async def source_of(conn: Connection, tenant: Tenant, flow: Definition) -> tuple[int, int]:
    """The batch that the input names, and its items at this moment. Raises BadInput."""
    given, row = flow.input.batch or "", None
    try:
        request_id = UUID(given.removeprefix(_BATCH_PREFIX))
    except ValueError:
        request_id = None
    if request_id is not None:
        values = {"tenant_id": tenant.tenant_id, "request_id": request_id}
        row = await (await conn.execute(reads_sql.SOURCE, values)).fetchone()
    if row is None:
        raise BadInput(f"input.batch: this account has no batch or stage {given[:60]!r}", param="input.batch")
    batch_id, total, fed, final, shredded = row
    if shredded:
        raise BadInput("input.batch: the contents of this batch were deleted", param="input.batch")
    if final or not fed:
        _check_most(flow, min(total, flow.limit or total), "input.batch")
    return batch_id, total


async def _from_lines(database: Database, settings: Settings, order: Order, items: Sequence[Any] | None) -> UUID:
    """A pipeline whose input are lines of a file, or of the request."""
    async with database.relaxed() as conn:
        batch_id = await ingest.next_batch_id(conn)
    place = FILE if items is None else ITEMS
    options = await spool_options(database, settings, order.tenant, order.admission, batch_id)
    async with Offload(Store.of(settings)) as offload:
        with InputIntake(batch_id, order.admission, order.flow.limit, place, **options) as intake:
            intake.note(order.given)
            if items is not None:
                await asyncio.to_thread(intake.add_items, items)
            else:
                await _read_file(database, settings, order, intake, offload)
            check_lines(order.flow, len(intake.est_tokens), place)
            return await _store_lines(database, settings, order, intake, offload)


def check_lines(flow: Definition, lines: int, place: str) -> None:
    """Raise BadInput unless a pipeline can have so many lines, which are those of the field `place`."""
    if not lines:
        raise BadInput(f"{place}: has no line; the input needs at least one", param=place)
    _check_most(flow, lines, place)


def _check_most(flow: Definition, lines: int, place: str) -> None:
    if lines > MOST_ITEMS:
        raise too_many(place, MOST_ITEMS)
    check_numbers(flow, lines)


async def _read_file(
    database: Database, settings: Settings, order: Order, intake: InputIntake, offload: Offload
) -> None:
    """Add the lines of the file that the input names. Raises BadInput."""
    file_id = await file_of(database, order.tenant, order.flow)
    async for block in sealed_files.stream(database, settings, order.tenant.tenant_id, file_id):
        await asyncio.to_thread(intake.add_block, block)
        await offload.put(intake.take_large())
        if intake.full:
            break
    else:
        await asyncio.to_thread(intake.end_lines)


async def file_of(database: Database, tenant: Tenant, flow: Definition) -> UUID:
    """The file that the input names. Raises BadInput."""
    name = flow.input.file_id or ""
    async with database.relaxed() as conn:
        file = await files.find(conn, tenant.tenant_id, file_ids.parse_id(name))
    if file is None or file.request_id is not None:
        what = "is no file of this account" if file is None else "is the output of a batch; name that with input.batch"
        raise BadInput(f"{FILE}: {name[:60]!r} {what}", param=FILE)
    return file.file_id


async def _store_lines(
    database: Database, settings: Settings, order: Order, intake: InputIntake, offload: Offload
) -> UUID:
    await asyncio.to_thread(intake.close)
    await offload.put(intake.take_large())
    seal = intake.sealing.seal if intake.sealing else None
    key = await data_key(database, settings, order.tenant.tenant_id, intake)
    of = Input(intake.batch_id, cells.new_id(), seal, key)
    new = await drafting.drafted(database, settings, order, of, intake.request_hash)
    count, size = len(intake.est_tokens), sum(intake.body_bytes)
    demand = quotas.Demand(1, count, 0, size)
    return await _store(database, order, new, lambda: Lines(count, intake.blocks(), size), demand, offload)


async def _store(
    database: Database,
    order: Order,
    new: NewPipeline,
    source: Source | Callable[[], Lines],
    demand: quotas.Demand,
    offload: Offload | None = None,
) -> UUID:
    """The one transaction of a create. Returns the request id: of the earlier pipeline, if its key was used for the same."""
    tenant, key = order.tenant, order.labels.idempotency_key

    async def store() -> UUID:
        async with quota_events.told(database, tenant), database.transaction() as conn:
            if key is not None:
                if not await ingest.reserve_key(conn, tenant.tenant_id, key):
                    raise KeyInUse("Idempotency-Key: a pipeline with this key is being stored; try again in a second")
                if (found := await creation.find_key(conn, tenant.tenant_id, key)) is not None:
                    if found[1] != new.request_hash:
                        raise KeyReused(KEY_REUSED)
                    return found[0]
            await quotas.check(conn, tenant, demand)
            await creation.create(conn, new, source if isinstance(source, Source) else source())
            await created(conn, tenant, new)
            if offload is not None:
                offload.seal()
        return new.request_id

    return await with_retries(store)


async def created(conn: Connection, tenant: Tenant, new: NewPipeline) -> None:
    """Write the event of a pipeline that was stored in this transaction."""
    await events.queued(conn, tenant, new)
