"""Claims about the lineage of a line: the items that come from it, also through packs, and what became of them."""

from pathlib import Path

import pytest

from app.db.pool import Database
from app.flows.stages import INPUT, BySize, ByValue, Definition
from app.pipelines import lineage, reading, reads, spans
from app.pipelines.lineage import Trace
from app.pipelines.spans import Span
from app.settings import Settings
from app.tenants.service import Tenant
from tests.flows.pipelines import flow, pipeline, stage
from tests.flows.recomputation import Level
from tests.pipelines import support
from tests.pipelines.support import Made, World
from tests.pipelines.test_trees import EVERYTHING, LINES, check


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    return support.with_models(settings, tmp_path)


async def traces(database: Database, settings: Settings, made: Made, line: int) -> list[Trace]:
    sight = await reads.get(database, settings, Tenant(made.tenant, "acme"), made.request_id)
    return await lineage.trace(database, settings, sight, f"line-{line}")


def arithmetic(tree: Definition, line: int) -> list[Span]:
    """The spans of a line, stage by stage."""
    found = {INPUT: Span([range(line, line + 1)])}
    for each in tree.stages:
        found[each.number] = spans.below(tree, each, found)
    return [found[each.number] for each in tree.stages]


@pytest.mark.parametrize("line", [0, 7])
@pytest.mark.parametrize(("size", "shared"), [(1, False), (50, True)])
def test_a_pack_by_size_is_shared_unless_it_has_one_part(line: int, size: int, shared: bool) -> None:
    tree = flow(stage("a"), stage("b", pack={"size": size}), stage("c"))
    assert arithmetic(tree, line)[1:] == [Span([range(line // size, line // size + 1)], shared)] * 2


@pytest.mark.parametrize("line", [0, 7])
def test_a_pack_of_a_stage_is_shared_as_that_stage_is(line: int) -> None:
    fans = [stage("a", each="item.list", max=3), stage("b", each="json.list", max=2)]
    of_one = arithmetic(flow(*fans, stage("c", pack={"of": "a"}), stage("d", pack={"of": "input"})), line)
    assert of_one[2:] == [Span([range(line * 3, line * 3 + 3)]), Span([range(line, line + 1)])]
    many = flow(stage("p", pack={"size": 4}), *fans[1:], stage("c", pack={"of": "p"}))
    assert arithmetic(many, line)[2] == Span([range(line // 4, line // 4 + 1)], shared=True)


def test_a_pack_by_value_is_one_of_those_in_which_the_line_has_parts() -> None:
    parent = Span([range(2, 4), range(8, 9)])
    assert spans.in_packs(ByValue(None, 2), [[0, 2], [1], [3, 4], [5, 6], [8]], parent) == Span(  # type: ignore[arg-type]
        [range(1), range(2, 3), range(4, 5)], shared=True
    )


def descendants(tree: Definition, levels: list[Level], line: int) -> list[set[int]]:
    """By stage, the items that a recomputation makes of this line."""
    found = [{line}]
    for each in tree.stages:
        made = levels[each.number].items.items()
        found.append({number for number, item in made if found[each.parent] & set(item.parents)})
    return found


async def test_the_items_of_a_line_are_those_that_a_recomputation_makes_of_it(
    database: Database, settings: Settings, tenant: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_PAGE", 3)
    made = await support.create(database, tenant, EVERYTHING, LINES)
    before = await traces(database, settings, made, 0)
    assert [each.state for each in before] == ["done", *["to_come"] * len(made.flow.stages)]
    await World(database, settings).finish(made)
    levels = await check(database, made)
    by_size = next(each.number for each in made.flow.stages if isinstance(each.pack, BySize))
    by_value = next(each.number for each in made.flow.stages if isinstance(each.pack, ByValue))
    in_packs = 0
    for line in range(len(LINES)):
        found = await traces(database, settings, made, line)
        items = [{each.seq for each in of.items} for of in found]
        mine = descendants(made.flow, levels, line)
        in_packs += len(items[by_value])
        assert items.pop(by_size) >= mine.pop(by_size)  # its neighbours may be there without it
        assert items == mine
        assert [each.stage.row.n for each in found if each.shared] == [by_size, by_value, by_value + 1]
    assert in_packs > len(levels[by_value].items)


async def test_the_state_of_a_line_is_that_of_all_its_items_although_some_are_not_shown(
    database: Database, settings: Settings, tenant: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineage, "MOST_SHOWN", 2)
    fan = stage("a", each="item.list", max=5)
    made = await support.create(database, tenant, pipeline(fan), [{"list": [1, 2, 3]}, {"list": [1, 2]}])
    world = World(database, settings)
    world.failing = {(1, 2)}
    await world.feed()
    assert (await traces(database, settings, made, 0))[1].state == "waiting"
    await world.finish(made)
    long, short = [(await traces(database, settings, made, line))[1] for line in (0, 1)]
    assert ([each.seq for each in long.items], long.truncated, long.state) == ([0, 1], True, "failed")
    assert ([each.seq for each in short.items], short.truncated, short.state) == ([5, 6], False, "done")
