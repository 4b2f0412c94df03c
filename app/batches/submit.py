"""Submit a batch: check and spool it while it arrives, then write it and its event in one transaction."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from app import cells, clock
from app.admission import quota_events, quotas
from app.admission.admission import Admission
from app.batches import batch_chunks, batch_spans
from app.batches.batch_chunks import Owner
from app.batches.intake import prompt_length
from app.batches.intake.offload import Offload
from app.batches.intake.prompt_length import LongItem
from app.batches.intake.spool import Spool, SpoolOptions
from app.batches.intake.spool_options import spool_options
from app.batches.intake.workers_ai import ItemIntake
from app.batches.request_labels import NO_LABELS, RequestLabels
from app.batches.validation import embeddings, workers_ai
from app.batches.validation.text_generation import Examine, ItemRules
from app.budgets.service import BudgetsChanged
from app.db.pool import Connection, Database
from app.db.transient_errors import with_retries
from app.engines.catalogue import Catalogue, Model, Task
from app.engines.rate_card import Work, queued_work
from app.engines.requests import CHAT, EMBEDDINGS, Target
from app.engines.service import ensure_pool
from app.errors import KeyInUse, KeyReused
from app.events import BatchData, EventKind
from app.policy.match import NO_DECISION
from app.queue import ingest, wakes
from app.queue.answer_lengths import UsualLength
from app.queue.bodies import BatchSeal
from app.queue.chunking import NewChunk
from app.queue.types import Kind
from app.sealing import batch_keys
from app.sealing.batch_keys import NewKey
from app.sealing.keyring import Keyring
from app.settings import Settings
from app.storage.store import Store
from app.tenants.service import Tenant
from app.webhooks import emitter

# By the task of a model: the engine's route for its items, and how they are checked.
ENGINE_ROUTES: Mapping[Task, tuple[str, Examine]] = {
    "text-generation": (CHAT, workers_ai.examine),
    "text-embeddings": (EMBEDDINGS, embeddings.examine),
}
# For the order of batches within an account: a batch without a deadline has this one, and never expires.
_DEFAULT_DEADLINE_SECONDS = 86_400.0
_AIMS = {
    "high": 600.0,
    "normal": _DEFAULT_DEADLINE_SECONDS,
    "low": 7 * 86_400.0,
}  # the same, by a priority of the policy


@dataclass(frozen=True, slots=True)
class Order:
    """What a request asks to queue, without its items. `deadline_seconds`: when the batch expires; None: never.

    `endpoint`: the engine's route for its items; None: that of the model's task. `aim_seconds`: replaces a missing deadline
    in the order of batches. `open_ended`: answers without a limit may use the rest of the context window. `of_file`: its items
    are the lines of a file. `name`: of the batch, unless its metadata have one. `look`: called with each item and its place.
    """

    tenant: Tenant
    model: Model
    labels: RequestLabels = NO_LABELS
    deadline_seconds: float | None = None
    endpoint: str | None = None
    kind: Kind = Kind.BATCH
    aim_seconds: float = _DEFAULT_DEADLINE_SECONDS
    open_ended: bool = False
    of_file: bool = False
    admission: Admission = field(kw_only=True)
    name: str | None = None
    look: Callable[[Mapping[str, Any], str], None] | None = None


MOST_NAME = 256  # characters of a batch's name that are kept
KEY_REUSED = "Idempotency-Key: this key was used for another request; use a new key for a new request"
Register = Callable[[Connection, ingest.NewBatch, BatchSeal | None], Awaitable[None]]


async def submit_items(database: Database, settings: Settings, order: Order, given: Sequence[Any]) -> UUID:
    """Submit a batch whose items are already parsed. All or nothing; returns the request id."""
    async with database.relaxed() as conn:
        batch_id = await ingest.next_batch_id(conn)
    options = await spool_options(database, settings, order.tenant, order.admission, batch_id)
    async with Offload(Store.of(settings)) as offload:
        with _intake(order, batch_id, options) as intake:
            await asyncio.to_thread(intake.add_items, given)
            await check_fit(database, settings, order, intake.long_items)
            return await commit(database, settings, order, intake, offload)


async def submit_lines(database: Database, settings: Settings, order: Order, blocks: AsyncIterator[bytes]) -> UUID:
    """Submit a batch as NDJSON, checked while it arrives. All or nothing; returns the request id."""
    async with database.relaxed() as conn:
        batch_id = await ingest.next_batch_id(conn)
    options = await spool_options(database, settings, order.tenant, order.admission, batch_id)
    async with Offload(Store.of(settings)) as offload:
        with _intake(order, batch_id, options) as intake:
            async for block in blocks:
                await asyncio.to_thread(intake.add_block, block)
                await offload.put(intake.take_large())
            await asyncio.to_thread(intake.end_lines)
            await check_fit(database, settings, order, intake.long_items)
            return await commit(database, settings, order, intake, offload)


async def check_fit(database: Database, settings: Settings, order: Order, items: Sequence[LongItem]) -> None:
    """Count the tokens of the items that may be too long for the order's model. Raises BadInput."""
    if items:
        target = Target.of(order.model)
        await prompt_length.check(database, settings, target, _endpoint(order), items, open_ended=order.open_ended)


def rules_of(model: Model, usual: UsualLength | None = None, *, stream: bool = False) -> ItemRules:
    """The rules for an item, or for a synchronous request, to this model.

    `usual`: the usual length of an answer without a limit, on OpenAI's routes. None: on Workers AI's routes, where the
    model's default limits it.
    """
    return ItemRules(
        model.context_window,
        model.default_max_tokens,
        names=frozenset((model.name, *model.aliases)),
        one_choice=model.shape == "native" and usual is None,
        vision="vision" in model.capabilities,
        media_hosts=frozenset(model.media_hosts),
        stream=stream,
        pooling=model.pooling,
        responses=model.shape == "responses",
        usual_tokens=usual(model) if usual else None,
    )


def rules_of_lines(models: Catalogue, usual: UsualLength) -> dict[str, ItemRules]:
    """The rules for the lines of a batch file, by model; they are those of OpenAI's routes."""
    return {model.name: rules_of(model, usual) for model in models.models.values()}


def _intake(order: Order, batch_id: int, options: SpoolOptions) -> ItemIntake:
    model = order.model
    admission, (route, examine) = order.admission, ENGINE_ROUTES[model.task]
    return ItemIntake(batch_id, model, rules_of, examine, route, admission, order.look, **options)


async def commit(
    database: Database,
    settings: Settings,
    order: Order,
    intake: Spool,
    offload: Offload,
    register: Register | None = None,
) -> UUID:
    """The one transaction of a submit: batch, payload, chunks, place in the fair order, event. Large bodies are stored before.

    `register` writes further rows of a new batch. Returns the request id.
    """
    await asyncio.to_thread(intake.close)
    await offload.put(intake.take_large())
    models = intake.models or [order.model]
    order = replace(order, model=models[0])
    if (earlier := await _repeated(database, order, intake)) is not None:
        return earlier
    owner = Owner(order.tenant, order.labels.spend, order.kind, _endpoint(order))
    priced = [model.priced(_work(order), clock.now()) for model in models]
    chunks = await batch_chunks.lined(database, settings, owner, intake, priced)
    async with database.relaxed() as conn:
        pools = [await ensure_pool(conn, model.served) for model in models]
        tells_items = await emitter.subscribed_to_items(conn, order.tenant.tenant_id)
    batch = _new_batch(order, intake, pools[0], chunks.line_ids, tells_items=tells_items)
    key = await data_key(database, settings, order.tenant.tenant_id, intake)

    async def store() -> UUID:
        async with quota_events.told(database, order.tenant), database.transaction() as conn:
            request_id = await _store(conn, batch, order, intake, chunks.by_pool(pools))
            if request_id != batch.request_id:
                return request_id
            if key is not None:
                await batch_keys.add(conn, batch.batch_id, key)
            if register is not None:
                await register(conn, batch, intake.sealing.seal if intake.sealing else None)
            await chunks.look.check(conn)
            offload.seal()
        return request_id

    while True:
        try:
            request_id = await with_retries(store)
            break
        except BudgetsChanged:
            chunks = await batch_chunks.lined(database, settings, owner, intake, priced)
    if request_id == batch.request_id and order.kind == Kind.BATCH:
        sums = batch.total, sum(intake.est_tokens), sum(intake.answer_tokens)
        order.admission.note_batch(batch.model, batch.endpoint, *sums)
    if request_id == batch.request_id:
        wakes.notify(chunks.ready([model.served for model in models]))
        batch_spans.submitted(order.labels.origin, batch, order.tenant.account_id, order.admission.outcome.rules)
    return request_id


async def data_key(database: Database, settings: Settings, tenant_id: int, intake: Spool) -> NewKey | None:
    """The key that seals the batch, or its vaults alone. None: nothing of it is sealed with one. Raises KeysUnavailable."""
    if intake.sealing is not None:
        return intake.sealing.key
    if intake.vault_key is None:
        return None
    return await batch_keys.wrap_for_vaults(
        database, Keyring.of(settings), tenant_id, intake.batch_id, intake.vault_key
    )


def _endpoint(order: Order) -> str:
    return order.endpoint or ENGINE_ROUTES[order.model.task][0]


def _deadline(order: Order) -> float | None:
    """The completion window of the caller, else of the policy; None: there is none."""
    return order.deadline_seconds or (order.admission.outcome.first or NO_DECISION).window


def _work(order: Order) -> Work:
    """The kind of work whose price is that of the order."""
    return Work.FLEX if order.kind == Kind.FLEX else queued_work(expires=_deadline(order) is not None)


def _new_batch(
    order: Order, intake: Spool, pool_id: int, line_ids: Sequence[int], *, tells_items: bool
) -> ingest.NewBatch:
    labels, decided = order.labels, order.admission.outcome.first or NO_DECISION
    deadline_seconds = _deadline(order)
    aim_seconds = _AIMS.get(decided.priority or "", order.aim_seconds)
    return ingest.NewBatch(
        batch_id=intake.batch_id,
        request_id=cells.new_id(),
        tenant_id=order.tenant.tenant_id,
        pool_id=pool_id,
        model=order.model.name,
        endpoint=_endpoint(order),
        total=len(intake.est_tokens),
        deadline_seconds=deadline_seconds or aim_seconds,
        expires=deadline_seconds is not None,
        correlation_id=labels.correlation_id,
        traceparent=labels.traceparent,
        affinity=labels.session,
        tags=labels.tags,
        metadata=labels.metadata,
        idempotency_key=labels.idempotency_key,
        request_hash=intake.request_hash if labels.idempotency_key or order.kind != Kind.BATCH else None,
        tells_items=tells_items,
        kind=order.kind,
        open_ended=order.open_ended,
        line_id=line_ids[0],
        model_lines=tuple(line_ids) if len(line_ids) > 1 else None,
        has_sessions=intake.has_sessions or (len(intake.est_tokens) == 1 and labels.session is not None),
        bytes=sum(intake.body_bytes),
        policy=order.admission.stored([model.name for model in intake.models] or [order.model.name]),
        name=((labels.metadata or {}).get("name") or order.name or "")[:MOST_NAME] or None,
        est_tokens=sum(intake.est_tokens),
    )


async def _store(
    conn: Connection, batch: ingest.NewBatch, order: Order, intake: Spool, cuts: dict[int, list[NewChunk]]
) -> UUID:
    """Write the batch and its event, or find the batch that has the idempotency key. Returns the request id.

    Raises QuotaExceeded.
    """
    key = batch.idempotency_key
    if key is not None and not await ingest.reserve_key(conn, batch.tenant_id, key):
        raise KeyInUse("Idempotency-Key: a request with this key is being stored at this moment; try again in a second")
    if order.tenant.has_quota and (key is None or await ingest.find_key(conn, batch.tenant_id, key) is None):
        demand = quotas.Demand(1, batch.total, sum(intake.est_tokens), batch.bytes)
        await quotas.check(conn, order.tenant, demand, of_file=order.of_file)
    own, elsewhere = cuts[batch.pool_id], {pool: part for pool, part in cuts.items() if pool != batch.pool_id}
    run = await ingest.enqueue(conn, batch, intake.blocks(), own, elsewhere)
    if run is None:
        earlier = await _earlier(conn, order, intake)
        assert earlier is not None
        return earlier
    if batch.kind != Kind.BATCH:
        return batch.request_id
    await emitter.emit(
        conn,
        tenant_id=batch.tenant_id,
        kind=EventKind.BATCH_QUEUED,
        model=batch.model,
        batch_id=batch.batch_id,
        run=run,
        data=BatchData(
            request_id=str(batch.request_id),
            account_id=order.tenant.account_id,
            traceparent=batch.traceparent,
            policy_rules=list(order.admission.outcome.rules) or None,
        ),
    )
    return batch.request_id


async def _repeated(database: Database, order: Order, intake: Spool) -> UUID | None:
    """The batch that a repeated submit finds, whatever budgets say by now. None: it is new. Raises KeyReused."""
    if order.labels.idempotency_key is None:
        return None
    async with database.durable() as conn:
        return await _earlier(conn, order, intake)


async def _earlier(conn: Connection, order: Order, intake: Spool) -> UUID | None:
    """The request id of the batch that was stored with the order's key; None: there is none. Raises KeyReused if its items
    differ.
    """
    key = order.labels.idempotency_key
    found = None if key is None else await ingest.find_key(conn, order.tenant.tenant_id, key)
    if found is None:
        return None
    request_id, request_hash = found
    if request_hash != intake.request_hash:
        raise KeyReused(KEY_REUSED)
    order.admission.outcome.clear()  # of the earlier batch, another policy may have decided
    return request_id
