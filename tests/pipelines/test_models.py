"""Claims about items of a stage that have another model than it: they are queued, run again and booked as that model's."""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from app.batches import batch_usage
from app.db.pool import Database
from app.engines import catalogue
from app.engines.catalogue import Catalogue, Price
from app.metering.lines import parts_of
from app.metering.spend_labels import NO_SPEND_LABELS
from app.pipelines import retrying
from app.policy import service as policies
from app.settings import Settings
from app.tenants.service import Tenant
from tests.flows.pipelines import Json, chat, pipeline, stage
from tests.pipelines import support
from tests.pipelines.support import Made, World
from tests.queue.support import make_tenant

LINES: list[Json] = [{"user": "vip" if n in (1, 2) else "any"} for n in range(4)]
ONE = pipeline(stage("a", body=chat("hello", user="{{item.user}}")))
TO_LARGE = '[[rule]]\nid = "vip"\nwhen = { end_user = "vip" }\nroute = "large"\n'
PRICES = {"small": Decimal(1), "large": Decimal(5)}


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    """Models with prices, and chunks of four items."""
    made = support.with_models(settings, tmp_path)
    text = support.MODELS
    for name, price in PRICES.items():
        head = f"[models.{name}]\n"
        text = text.replace(head, f"{head}price = {{ input = {price}, cached_input = {price}, output = {price} }}\n")
    (tmp_path / "models.toml").write_text(text)
    return made


class Moved:
    """A pipeline of one stage, two of whose four items the policy moves to another model."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self.database, self.settings = database, settings
        self.models = catalogue.load(settings.models_file)
        self.world = World(database, settings)

    async def begin(self) -> Made:
        async with self.database.transaction() as conn:
            await policies.apply(conn, TO_LARGE, self.models, "test")
            tenant = await make_tenant(conn)
        own = parts_of(tenant, "key", NO_SPEND_LABELS, "small", "stage", self.models.models["small"].price)
        line_id = (await batch_usage.line_ids(self.database, [own]))[own]
        made = await support.create(self.database, tenant, ONE, LINES)
        async with self.database.durable() as conn:
            await conn.execute("update batch set line_id = %s where batch_id = %s", (line_id, made.batches[1]))
        return made

    async def run(self, made: Made) -> None:
        """Run what is queued, to the end, and book it."""
        await self.world.work({batch_id: n for n, batch_id in enumerate(made.batches)})
        await self.world.settle()

    async def queued(self) -> list[tuple[str, str, Decimal, int]]:
        """Of what is queued: the model of the engines, that of the line, its price of a million tokens, the items."""
        query = """select p.model, l.model, (l.price_in / 1e6)::numeric, sum(c.n)::int from chunk c
          join pool p using (pool_id) join line l using (line_id) group by 1, 2, 3 order by 1"""
        return [tuple(row) for row in await self._rows(query)]

    async def booked(self) -> dict[str, int]:
        """The results of each model in the ledger."""
        query = "select l.model, sum(u.requests)::int from usage u join line l using (line_id) group by 1"
        return dict(await self._rows(query))

    async def _rows(self, query: str) -> list[tuple[object, ...]]:
        async with self.database.relaxed() as conn:
            return [tuple(row) for row in await (await conn.execute(query.encode())).fetchall()]


@pytest.fixture
def moved(database: Database, settings: Settings) -> Moved:
    return Moved(database, settings)


BY_MODEL = [("large", "large", PRICES["large"], 2), ("small", "small", PRICES["small"], 2)]


async def test_a_moved_item_is_queued_and_booked_at_the_price_of_its_model_also_where_that_had_no_line(
    moved: Moved,
) -> None:
    made = await moved.begin()
    await moved.world.feed()
    assert await moved.queued() == BY_MODEL
    await moved.run(made)
    assert await moved.booked() == {"small": 2, "large": 2}


async def test_a_retry_runs_a_moved_item_on_the_model_that_it_was_moved_to(moved: Moved, settings: Settings) -> None:
    made = await moved.begin()
    moved.world.failing = {(1, n) for n in range(3)}
    await moved.world.feed()
    await moved.run(made)
    owner = Tenant(made.tenant, "acme")
    assert await retrying.retry(moved.database, settings, moved.models, owner, made.request_id, 1) == 3
    assert await moved.queued() == [BY_MODEL[0], (*BY_MODEL[1][:3], 1)]
    moved.world.failing = set()
    await moved.run(made)
    assert await moved.booked() == {"small": 3, "large": 4}


async def test_a_retry_keeps_the_price_at_which_an_item_was_moved(moved: Moved, settings: Settings) -> None:
    made = await moved.begin()
    moved.world.failing = {(1, n) for n in range(4)}
    await moved.world.feed()
    await moved.run(made)
    dearer = replace(moved.models.models["large"], price=Price(Decimal(9), Decimal(9), Decimal(9)))
    named = {**moved.models.models, "large": dearer}
    models = Catalogue(named, named)
    own = parts_of(made.tenant, "key", NO_SPEND_LABELS, "large", "stage", dearer.price, "-")
    await batch_usage.line_ids(moved.database, [own])
    assert await retrying.retry(moved.database, settings, models, Tenant(made.tenant, "acme"), made.request_id, 1) == 4
    assert await moved.queued() == BY_MODEL
