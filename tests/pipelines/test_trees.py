"""Claims about pipelines in the database: whatever dies and in whatever order, every item of every stage is there once, and what
is stored is what a pure recomputation says.
"""

import random
from pathlib import Path

import orjson
import pytest

from app.db.pool import Database
from app.flows.items import Asked, Copied, Refused
from app.settings import Settings
from app.states import BatchState
from tests.flows.pipelines import Json, pipeline, stage
from tests.flows.recomputation import Level
from tests.pipelines import random_trees, support
from tests.pipelines.support import Made, World
from tests.queue.support import make_tenant

LINES: list[Json] = [{"id": f"line {n}", "list": list(range(n % 4))} for n in range(11)]
EVERYTHING = pipeline(
    stage("ask", "{{item.id}}", escalate={"model": "large", "when": "not json.sure", "most": 1.0}),
    stage("part", "{{each}} of {{item.id}}", each="json.list", max=4),
    stage("sure", "{{ask.text}} {{text}}", when="json.sure"),
    stage("whole", '{{count}} {{missing}} {{parts.text|40|"-"}}', pack={"of": "ask"}),
    stage("three", "{{parts.text}}", pack={"size": 3}),
    stage("topic", "{{parts.text}}", after="ask", pack={"by": "json.topic", "max": 2}),
    stage("last", "{{text}}", otherwise="pass", when="json.sure"),
)


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    return support.with_models(settings, tmp_path)


async def check(database: Database, made: Made) -> list[Level]:
    """Every stage has what a recomputation from its results says, and nothing waits."""
    found = await support.items(database, made)
    capped = [
        (each.number, seq)
        for each in made.flow.stages
        if each.share < 1
        for seq, (asked, *_) in found[each.number].items()
        if not asked
    ]
    levels = await support.levels(database, made, capped)
    for n, level in enumerate(levels):
        assert not level.waiting
        assert set(found[n]) == set(level.items), f"stage {n}"
        for seq, item in level.items.items():
            asked, body, ok, result = found[n][seq]
            match item.child:
                case Asked(_, _, request):
                    assert asked
                    assert orjson.loads(body) == request
                case Copied(copied_ok, copied):
                    assert (asked, ok, result) == (False, int(copied_ok), copied)
                case Refused(error):
                    assert (asked, ok, result) == (False, 0, error.body)
    counts = "select ran, passed, dropped, refused from stage where pipeline_id = %s order by n"
    async with database.relaxed() as conn:
        rows = await (await conn.execute(counts, (made.pipeline_id,))).fetchall()
        batches = await (
            await conn.execute(
                "select total, ok, failed, fed, feeds from batch where pipeline_id = %s", (made.pipeline_id,)
            )
        ).fetchall()
        [left] = await (
            await conn.execute("select (select count(*) from handoff), (select count(*) from gather where open <> 0)")
        ).fetchall()
    assert [tuple(row) for row in rows[1:]] == [(e.ran, e.passed, e.dropped, e.refused) for e in levels[1:]]
    assert all(not fed and not feeds for *_, fed, feeds in batches)
    assert sorted(total for total, *_ in batches) == sorted(len(level.items) for level in levels)
    assert left == (0, 0)
    await support.check_ledger(database)
    return levels


async def test_a_pipeline_with_everything_ends_as_a_recomputation_says(database: Database, settings: Settings) -> None:
    async with database.durable() as conn:
        tenant = await make_tenant(conn)
    made = await support.create(database, tenant, EVERYTHING, LINES)
    [ended] = await World(database, settings).finish(made)
    assert ended.state == BatchState.COMPLETED
    levels = await check(database, made)
    assert all(level.items for level in levels)


def lines(count: int) -> list[Json]:
    return [{"id": f"line {n}", "list": list(range(n % 4))} for n in range(count)]


async def grown(database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch, seed: int, trees: int) -> None:
    """Random pipelines side by side, in a world in which everything dies."""
    dice = random.Random(seed)
    async with database.durable() as conn:
        tenant = await make_tenant(conn)
    made = [
        await support.create(database, tenant, random_trees.tree(dice), lines(dice.randint(1, 9))) for _ in range(trees)
    ]
    with random_trees.mortality(monkeypatch):
        await random_trees.live(database, settings, dice, *made)
    for each in made:
        await check(database, each)


@pytest.mark.parametrize("seed", range(2))
async def test_random_pipelines_end_as_a_recomputation_says_although_everything_dies(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    await grown(database, settings, monkeypatch, seed, 3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 112))
async def test_many_random_pipelines_end_as_a_recomputation_says_although_everything_dies(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    await grown(database, settings, monkeypatch, seed, 10)
