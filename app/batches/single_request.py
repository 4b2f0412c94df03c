"""One request that goes through the queue: its client waits for it (flex), or fetches it later (a background response)."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import orjson

from app import off_loop
from app.batches import submit
from app.batches.intake.offload import Offload
from app.batches.intake.prompt_length import LongItem, may_not_fit
from app.batches.intake.spool import Spool
from app.batches.intake.spool_options import spool_options
from app.batches.restoring import Restorer
from app.batches.submit import Order, Register
from app.batches.validation.text_generation import ItemFacts
from app.batches.withholding import OnWithheld, unnoted, withholder
from app.db.pool import Database
from app.errors import NoCapacity
from app.openai_codes import OpenAICode
from app.policy.vaults import NO_VALUES
from app.queue import ingest, reads, response_log
from app.queue.bodies import StoredBodies
from app.queue.reads import BatchStatus, ItemResult
from app.queue.types import Kind
from app.sealing.keyring import Keyring
from app.settings import Settings
from app.storage.store import Store

AIM_SECONDS = 600.0  # somebody waits for the answer, so it comes before batches of the same account
SAME_SECONDS = 900.0  # for so long after its answer a request is still found by one that repeats it


@dataclass(frozen=True, slots=True)
class SingleRequest:
    """The state, the body and the result of a single request."""

    status: BatchStatus
    request: dict[str, Any]
    result: ItemResult


class _SingleItemSpool(Spool):
    """The spool of one item. `asked`: as its caller sent it."""

    def put(self, item: dict[str, Any], facts: ItemFacts, asked: dict[str, Any], values: Mapping[str, str]) -> None:
        self._add(facts, None, orjson.dumps(item), asked=orjson.dumps(asked), values=values)

    def _add_lines(self, lines: Sequence[bytes]) -> None:
        """A single item has no lines."""


async def enqueue(
    database: Database,
    settings: Settings,
    order: Order,
    item: dict[str, Any],
    facts: ItemFacts,
    *,
    asked: dict[str, Any] | None = None,
    values: Mapping[str, str] = NO_VALUES,
    repeated: bool = False,
    reject_if_busy: bool = False,
    register: Register | None = None,
) -> UUID:
    """Queue a valid request. `asked`: as its client sent it, if the policy changed it. `values`: of its placeholders.
    `repeated`: its client declares it a retry, so it is not queued twice.

    Raises BadInput where it is too long for its model, NoCapacity where it has `reject_if_busy` and would have to wait.
    """
    order = replace(order, aim_seconds=AIM_SECONDS)
    if may_not_fit(facts, submit.rules_of(order.model)):
        await submit.check_fit(database, settings, order, [LongItem("", item)])
    async with database.relaxed() as conn:
        batch_id = await ingest.next_batch_id(conn)
    options = await spool_options(database, settings, order.tenant, order.admission, batch_id)
    async with Offload(Store.of(settings)) as offload:
        name = order.admission.outcome.asked or order.model.name
        with _SingleItemSpool(batch_id, name, **options) as spool:
            await asyncio.to_thread(spool.put, item, facts, asked or item, values)
            if repeated and (same := await _same(database, order, spool.request_hash)) is not None:
                return same
            if reject_if_busy:
                await _check_room(database, order)
            return await submit.commit(database, settings, order, spool, offload, register)


async def _same(database: Database, order: Order, request_hash: bytes) -> UUID | None:
    async with database.relaxed() as conn:
        return await response_log.find_same(conn, order.tenant.tenant_id, order.kind, request_hash, SAME_SECONDS)


async def _check_room(database: Database, order: Order) -> None:
    async with database.relaxed() as conn:
        if not await response_log.has_room(conn, order.model.served):
            raise NoCapacity("Resource Unavailable: no idle capacity right now", reason=OpenAICode.UNAVAILABLE)


async def find(
    database: Database,
    settings: Settings,
    tenant_id: int,
    request_id: UUID,
    kind: Kind,
    restoring: Restorer | None = None,
    on_withheld: OnWithheld = unnoted,
) -> SingleRequest | None:
    """A single request of the tenant. None: it does not exist, or it was deleted. `restoring`: its placeholders.
    `on_withheld`: see `withholding`.
    """
    async with database.relaxed() as conn:
        if await response_log.find(conn, tenant_id, request_id, kind) is None:
            return None
    status = await reads.status(database, tenant_id, request_id)
    assert status is not None
    store, keyring = Store.of(settings), Keyring.of(settings)
    vaults = restoring is not None
    read = reads.results(
        database, status.batch_id, status.run, store=store, keyring=keyring, page=2, items=True, vaults=vaults
    )
    async for page in read:
        [result] = page
        if result.item_stored and result.item is not None:
            bodies = StoredBodies(database, keyring, status.batch_id)
            body = await bodies.payload(0, await store.get(result.item.decode()))
            result = result._replace(item=body, item_stored=False)
        size = len(result.item or b"") + len(result.body or b"")
        return await off_loop.of_size(size, _shown, status, result, restoring, on_withheld)
    return None


def _shown(
    status: BatchStatus, result: ItemResult, restoring: Restorer | None, on_withheld: OnWithheld
) -> SingleRequest:
    """A request as its caller may read it."""
    if restoring is not None:
        result = restoring.item(status.batch_id, result)
    if (withholding := withholder(status.policy, status.request_id, on_withheld)) is not None:
        result = withholding.item(result)
    return SingleRequest(status, orjson.loads(result.item or b"{}"), result)
