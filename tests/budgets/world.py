"""An account under budgets, with one line, its pool and a worker. For the tests of the money of queued work."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from app.batches import lifecycle
from app.budgets import queued
from app.budgets import service as budgets
from app.budgets.rules import Budget, ItemSizes
from app.budgets.service import of_lines
from app.db.pool import Database
from app.engines import catalogue
from app.engines.catalogue import Catalogue, Price
from app.metering.lines import Lines, parts_of
from app.metering.spend_labels import SpendLabels
from app.policy import service as policies
from app.queue import chunk_sweeps, chunking, copy_format, ingest
from app.queue.types import Lease
from app.settings import DEMO_MODELS
from tests.queue import support

MODELS = catalogue.load(DEMO_MODELS)
PRICE = Price(Decimal(1000), Decimal(1000), Decimal(1000))  # a token costs a thousandth of a dollar
MODEL = replace(MODELS.models["smollm2-135m-instruct"], name="toy", served="toy", price=PRICE, context_window=10_000)
TOY = Catalogue({"toy": MODEL}, {"toy": MODEL})
TOKEN = 10**6  # its cost, in the unit of a budget
_EARLIER = "{0} = {0} - interval '100 days'"
ENDED = "update budget set window_to = now(), " + ", ".join(map(_EARLIER.format, ("window_from", "spent_in")))


class World:
    """An account with one line, its pool, and a worker."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.tenant = self.pool = self.worker = self.line = 0

    async def begin(self, workflow: str = "w") -> None:
        async with self.database.durable() as conn:
            self.tenant = await support.make_tenant(conn)
            self.pool = await support.make_pool(conn)
        self.worker = await self.serve(self.pool)
        self.line = await self.line_of(workflow)

    async def serve(self, pool: int) -> int:
        """A worker with the ready engine of this pool. Returns the worker's id."""
        return await support.serve(self.database, pool)

    async def line_of(self, workflow: str, price: Price | None = PRICE) -> int:
        parts = parts_of(self.tenant, "key", SpendLabels(workflow, critical=False), "toy", "batch", price)
        [line_id] = await Lines().ids(self.database, [parts])
        return line_id

    async def budget(self, name: str = "b", **terms: object) -> Budget:
        async with self.database.transaction() as conn:
            await budgets.put(conn, self.tenant, name, terms)
        await budgets.note(self.database)
        return await self.state(name)

    async def removed(self, name: str = "b") -> None:
        """Without this budget."""
        async with self.database.transaction() as conn:
            await budgets.remove(conn, self.tenant, name)

    async def moves(self, models: Catalogue, fallback: Sequence[str], at: int = 80, more: str = "") -> None:
        """A policy by which waiting work that is not critical moves to a fallback from this share of its budget on."""
        names = ", ".join(f'"{name}"' for name in fallback)
        rule = f'[[rule]]\nid = "short"\nwhen = {{ budget = ">={at}", critical = false }}\nfallback = [{names}]\n'
        async with self.database.transaction() as conn:
            await policies.apply(conn, rule + more, models, "test")

    async def state(self, name: str = "b") -> Budget:
        async with self.database.relaxed() as conn:
            return next(budget for budget in await budgets.listing(conn, self.tenant) if budget.name == name)

    async def submit(
        self, items: int, *, most: int = 8, chunk: int = 4, line: int | None = None, **more: object
    ) -> int:
        """A batch of items with a prompt of 3 tokens and answers of at most `most`. Returns its id."""
        line = line or self.line
        body = b"{}".ljust(30)
        sizes = ItemSizes([3 + most] * items, [most] * items, [most] * items, [len(body)] * items)
        async with self.database.transaction() as conn:
            under = (await of_lines(conn, [line])).get(line)
            amounts = under.amounts(sizes, MODEL.context_window) if under else None
            batch = replace(await support.new_batch(conn, self.tenant, self.pool, items), line_id=line, **more)
            rows = [copy_format.payload_row(batch.batch_id, n, None, None, 3 + most, body) for n in range(items)]
            payload = [copy_format.HEADER, *rows, copy_format.TRAILER]
            cuts = chunking.cut(sizes.est_tokens, max_tokens=10**6, max_items=chunk, line_id=line, amounts=amounts)
            await ingest.enqueue(conn, batch, payload, cuts)
        return batch.batch_id

    async def reserve(self) -> int:
        return await queued.reserve(self.database, TOY)

    async def settle(self) -> None:
        async with self.database.relaxed() as conn:
            await chunk_sweeps.sweep(conn)
        async with self.database.transaction() as conn:
            await lifecycle.settle(conn)
        await budgets.note(self.database)

    async def claim(self) -> Lease | None:
        async with self.database.relaxed() as conn:
            return await support.claim(conn, self.pool, self.worker)

    async def drain(self) -> int:
        """Run what is ready. Returns the number of chunks."""
        return len(await support.drain(self.database, self.pool, self.worker))

    async def states(self) -> dict[str, int]:
        return dict(await self.rows("select state, count(*)::int from chunk group by 1"))

    async def rows(self, query: str, *values: object) -> list[tuple[object, ...]]:
        async with self.database.relaxed() as conn:
            return [tuple(row) for row in await (await conn.execute(query, values)).fetchall()]

    async def recount(self) -> list[budgets.Drift]:
        return await budgets.recount(self.database)

    async def events(self) -> list[str]:
        return [
            str(kind)
            for (kind,) in await self.rows("select kind from event where kind like 'budget.%%' order by event_id")
        ]

    async def turn(self) -> None:
        """Let the windows end now."""
        async with self.database.durable() as conn:
            await conn.execute(ENDED)
        await budgets.turn(self.database)
        await budgets.note(self.database)
