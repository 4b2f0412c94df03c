"""Claims about the price of what is retried: it is that of the submit, also for further models and for work that was diverted."""

from dataclasses import replace
from decimal import Decimal
from uuid import UUID

import pytest

from app.batches import lifecycle
from app.budgets import queued
from app.budgets.rules import ItemSizes
from app.budgets.service import of_lines
from app.engines.catalogue import Catalogue, Price
from app.engines.service import ensure_pool
from app.metering.lines import Lines, parts_of
from app.metering.spend_labels import SpendLabels
from app.queue import chunking, copy_format, ingest, service
from app.settings import Settings
from app.tenants.service import Tenant
from tests.budgets.world import MODEL, TOKEN, World
from tests.queue import support

CHEAP, DEAR = (Price(Decimal(n), Decimal(n), Decimal(n)) for n in (1, 7))
OF_CHEAP = TOKEN // 1000  # the cost of one of its tokens; of a retried item both prompt and answer may be all of its 11


def models(price: Price) -> Catalogue:
    small = replace(MODEL, name="small", served="small", price=price)
    return Catalogue({"toy": MODEL, "small": small}, {"toy": MODEL, "small": small})


class Retries:
    """A batch of two items, some of which have another model, and whose first run fails."""

    def __init__(self, world: World, settings: Settings) -> None:
        self.world, self.settings = world, settings
        self.small = 0
        self.request_id = UUID(int=0)

    async def line_of_small(self, price: Price) -> int:
        labels = SpendLabels("w", critical=False)
        parts = parts_of(self.world.tenant, "key", labels, "small", "batch", price)
        [line_id] = await Lines().ids(self.world.database, [parts])
        return line_id

    async def submit(self, *names: str | None, model_lines: tuple[int, ...] | None = None) -> None:
        """A batch of `toy` with an item for each name."""
        world = self.world
        async with world.database.durable() as conn:
            self.small = await ensure_pool(conn, "small")
        await world.serve(self.small)
        async with world.database.transaction() as conn:
            batch = replace(
                await support.new_batch(conn, world.tenant, world.pool, len(names)),
                line_id=world.line,
                model_lines=model_lines,
            )
            rows = [
                copy_format.payload_row(batch.batch_id, n, None, None, 11, b"{}", model=name)
                for n, name in enumerate(names)
            ]
            parts = {}
            for pool, name, line_id in (
                (world.pool, None, world.line),
                (self.small, "small", (model_lines or (0,))[-1]),
            ):
                seqs = [n for n, of in enumerate(names) if of == name]
                under = (await of_lines(conn, [line_id])).get(line_id)
                sizes = ItemSizes([11] * 2, [8] * 2, [8] * 2, [30] * 2)
                amounts = under.amounts(sizes, MODEL.context_window) if under else None
                cuts = chunking.cut(
                    [11] * len(seqs), max_tokens=10**6, max_items=9, seqs=seqs, line_id=line_id, amounts=amounts
                )
                if cuts:
                    parts[pool] = cuts
            own = parts.pop(world.pool, [])
            await ingest.enqueue(conn, batch, [copy_format.HEADER, *rows, copy_format.TRAILER], own, parts)
        self.request_id = batch.request_id

    async def run(self, *, ok: bool) -> None:
        """Run what is ready in both pools, and count it."""
        world = self.world
        for pool in (world.pool, self.small):
            worker = await world.serve(pool)
            while True:
                async with world.database.durable() as conn:
                    lease = await support.claim(conn, pool, worker)
                    if lease is None:
                        break
                    items = await service.load(conn, lease)
                    await service.flush(conn, lease, support.answers(items, ok=ok))
                    await service.finish(conn, lease)
        await world.settle()

    async def retry(self, catalogue: Catalogue) -> int:
        tenant = Tenant(self.world.tenant, "acme")
        return await lifecycle.retry(self.world.database, self.settings, catalogue, tenant, self.request_id)


@pytest.fixture
def retries(world: World, settings: Settings) -> Retries:
    return Retries(world, settings)


async def test_a_retry_of_an_item_with_its_own_model_keeps_the_price_of_the_submit(
    world: World, retries: Retries
) -> None:
    await world.budget(max_cost="1")
    small = await retries.line_of_small(CHEAP)
    await retries.submit(None, "small", model_lines=(world.line, small))
    await world.reserve()
    await retries.run(ok=False)
    assert await retries.line_of_small(DEAR) > small
    spent = (await world.state()).spent
    assert spent == 8 * TOKEN + 8 * OF_CHEAP
    assert await retries.retry(models(DEAR)) == 2
    assert await world.rows("select line_id from chunk order by line_id") == [(world.line,), (small,)]
    await world.reserve()
    await retries.run(ok=True)
    assert (await world.state()).spent == 2 * spent


async def test_a_retry_of_diverted_work_keeps_the_price_at_which_it_was_diverted_and_waits_for_money(
    world: World, retries: Retries
) -> None:
    await world.moves(models(CHEAP), ["small"])
    await world.budget(max_cost="1")
    async with world.database.durable() as conn:
        await conn.execute("update budget set spent = max * 0.85")
    await retries.submit(None, None)
    for _ in range(2):
        await queued.reserve(world.database, models(CHEAP))
    await retries.run(ok=False)
    spent = (await world.state()).spent
    await retries.line_of_small(DEAR)
    assert await retries.retry(models(DEAR)) == 2
    assert set(await world.rows("select state, expected_cost from chunk")) == {("unreserved", 2 * 22 * OF_CHEAP)}
    await queued.reserve(world.database, models(DEAR))
    assert (await world.state()).reserved > 0
    await retries.run(ok=True)
    assert (await world.state()).spent == spent + 2 * 8 * OF_CHEAP
    assert await world.recount() == []


async def test_a_retry_of_diverted_work_of_a_prompt_family_has_a_line_and_waits_for_money(
    world: World, retries: Retries
) -> None:
    await world.budget(max_cost="1")
    await retries.submit("small", "small", model_lines=(world.line, await retries.line_of_small(CHEAP)))
    await world.reserve()
    await retries.run(ok=False)
    async with (
        world.database.durable() as conn
    ):  # as an earlier version queued it: no line of its model equals the batch's
        await conn.execute("update batch set model_lines = null")
        await conn.execute("update line set family = 'letters' where model = 'small'")
    assert await retries.retry(models(CHEAP)) == 2
    [(line_id, state, expected)] = await world.rows("select line_id, state, expected_cost from chunk")
    assert (state, expected) == ("unreserved", 2 * 22 * OF_CHEAP)
    assert await world.rows("select model, family from line where line_id = %s", line_id) == [("small", "-")]
