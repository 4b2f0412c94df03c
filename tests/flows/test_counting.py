"""Claims about numbers and counted packs: whatever the order of events, they make exactly what a recomputation says."""

import random
from collections.abc import Iterable
from typing import Any

import orjson
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from app.errors import BadInput
from app.flows import counting
from app.flows.counting import Change
from app.flows.definition import parse
from app.flows.items import Refused
from app.flows.stages import INPUT, Definition
from tests.flows.pipelines import Json, completion, flow, pipeline, stage
from tests.flows.recomputation import Item, Level, Stored, recompute
from tests.flows.runs import Run, answer

MAP_REDUCE = flow(
    stage("doc", "{{item.text}}"),
    stage("section", "{{each}}", each="json.list", max=10),
    stage("checked", when="json.sure"),
    stage("whole", "{{parts.text}}", pack={"of": "doc"}),
    stage("ten", "{{parts.text}}", pack={"size": 10}),
    stage("all", "{{parts.text}}", pack={"size": 1000}),
)


def test_a_childs_number_is_arithmetic() -> None:
    doc, section, checked, whole, ten, _ = MAP_REDUCE.stages
    assert counting.child_number(MAP_REDUCE, doc, 37) == 37
    assert counting.child_number(MAP_REDUCE, section, 37, 4) == 374
    assert counting.child_number(MAP_REDUCE, checked, 374) == 374
    assert counting.child_number(MAP_REDUCE, whole, 374) == 37
    assert counting.child_number(MAP_REDUCE, ten, 37) == 3
    assert counting.ancestor_number(MAP_REDUCE, checked.number, 374, INPUT) == 37
    assert counting.ancestor_number(MAP_REDUCE, whole.number, 37, doc.number) == 37
    assert counting.numbers(MAP_REDUCE, 95) == (95, 95, 950, 950, 95, 10, 1)
    with pytest.raises(ValueError, match="from many items"):
        counting.ancestor_number(MAP_REDUCE, ten.number, 3, INPUT)


def test_a_pack_waits_for_what_it_could_get() -> None:
    _, section, checked, whole, ten, _ = MAP_REDUCE.stages
    assert counting.beginning(whole, 37, 950) == 1
    assert [counting.beginning(ten, number, 95) for number in (0, 9)] == [10, 5]
    assert list(counting.fanned_out(MAP_REDUCE, section, 37, 4)) == [Change(whole.number, 37, 3)]
    assert list(counting.fanned_out(MAP_REDUCE, section, 37, 1)) == []
    assert list(counting.arrived(MAP_REDUCE, checked.number, 374)) == [Change(whole.number, 37, -1)]
    assert list(counting.never(MAP_REDUCE, checked.number, 374)) == [Change(whole.number, 37, -1)]
    assert list(counting.never(MAP_REDUCE, section.number, 370)) == [Change(whole.number, 37, -1)]
    assert list(counting.never(MAP_REDUCE, whole.number, 37)) == [Change(ten.number, 3, -1)]


def test_groups_are_packed_in_the_order_of_their_first_and_split() -> None:
    members = [(9, "b"), (1, "a"), (4, "b"), (2, "a"), (3, "a")]
    assert counting.in_groups(members, 2) == [[1, 2], [3], [4, 9]]


def test_a_share_is_rounded_up() -> None:
    assert [counting.allowed(share, 10) for share in (0.01, 0.2, 0.3, 1.0)] == [1, 2, 3, 10]
    assert counting.allowed(0.5, 0) == 0


@pytest.mark.parametrize(
    ("above", "every"),
    [
        ((), True),
        ((stage("x", when="json.sure", otherwise="pass"),), True),
        ((stage("x", when="true"),), True),
        ((stage("x"),), False),  # of what is ok
        ((stage("x", when="json.sure"),), False),
        ((stage("x", when="true", each="json.list"),), False),
        ((stage("x", when="true", pack={"size": 2}),), False),
    ],
)
def test_a_share_is_of_every_line_only_where_nothing_above_drops_or_multiplies(
    above: tuple[Json, ...], every: bool
) -> None:
    last = stage("z", escalate={"model": "large", "most": 0.2}, when="true")
    tree = flow(stage("a"), *above, last)
    assert counting.gets_every_line(tree, tree.stages[-1]) is every


def test_the_depth_counts_stages_above() -> None:
    assert counting.depths(flow(stage("a"), stage("b"), stage("c", after="a"))) == [0, 1, 2, 2]


@st.composite
def trees(draw: st.DrawFn) -> Definition:
    """Pipelines of up to seven stages, of which the reader accepts each."""
    stages: list[Json] = []
    for n in range(draw(st.integers(1, 7))):
        ids = ["input", *(each["id"] for each in stages)]
        after = draw(st.sampled_from(ids))
        of_parent: Json = {"id": f"s{n}", "after": after}
        kind = draw(st.sampled_from(["map", "map", "each", "size", "of", "by"]))
        shapes: dict[str, Json] = {
            "map": {},
            "each": {"each": "item.list" if after == "input" else "json.list", "max": 3},
            "size": {"pack": {"size": draw(st.integers(1, 3)), "min": 1}},
            "of": {"pack": {"of": draw(st.sampled_from(ids)), "max": draw(st.sampled_from([2, 1000]))}},
            "by": {"pack": {"by": "json.topic", "max": draw(st.integers(1, 3))}},
        }
        shape = shapes[kind]
        whens: list[Json] = [{}, {"when": "json.sure"}, {"when": "true"}]
        more = {} if after == "input" else draw(st.sampled_from(whens))
        if after != "input" and "pack" not in shape:
            more |= draw(st.sampled_from([{}, {"otherwise": "pass"}]))
        if draw(st.booleans()):
            more |= {"escalate": {"model": "large", "when": "not json.sure"}}
        text = '{{text|20|"none"}}' if after != "input" else "{{item.id}}"
        if "pack" in shape:
            text = (
                '{{count}} {{missing}} {{parts.text|9|"none"}}' if after != "input" else "{{count}} {{parts.item.id}}"
            )
        new = stage("x", text) | of_parent | shape | more
        try:
            parse(pipeline(*stages, new))
        except BadInput:
            continue
        stages.append(new)
    assume(stages)
    return parse(pipeline(*stages))


def seen(item: Item) -> Any:
    child = item.child
    return item.parents, child.error.body if isinstance(child, Refused) else child


def shown(levels: Iterable[dict[int, Item]]) -> list[dict[int, Any]]:
    return [{number: seen(item) for number, item in sorted(level.items())} for level in levels]


def lines(count: int) -> list[Json]:
    return [{"id": f"line {n}", "list": list(range(n % 4))} for n in range(count)]


NESTED = flow(
    stage("a", "{{item.id}}"),
    stage("b", each="json.list", max=3),
    stage("c"),
    stage("d", each="json.list", max=3),
    stage("e", pack={"of": "c"}),
    stage("f", pack={"of": "a"}),
    stage("g", pack={"size": 2}),
)


@given(trees() | st.just(NESTED), st.integers(0, 7), st.integers())
@example(NESTED, 7, 0)
def test_counted_packs_make_what_a_recomputation_says_in_any_order(tree: Definition, count: int, seed: int) -> None:
    run = Run(tree, lines(count), random.Random(seed))
    run.finish()
    levels = recompute(tree, run.lines, run.results)
    assert shown(run.items) == shown(level.items for level in levels)
    assert not any(level.waiting for level in levels)
    assert not any(run.open.values())
    for each in tree.stages:
        assert all(0 <= number < counting.MOST_NUMBERS for number in run.items[each.number])
        parts = [part for item in run.items[each.number].values() for part in item.parents]
        assert each.each or len(parts) == len(set(parts)), "a part is in two packs"


def test_a_fan_out_below_another_adds_to_the_packs_that_gather_it() -> None:
    b, d, e, f = (NESTED.stages[n] for n in (1, 3, 4, 5))
    assert list(counting.fanned_out(NESTED, b, 2, 3)) == [Change(f.number, 2, 2)]
    assert list(counting.fanned_out(NESTED, d, 7, 3)) == [Change(e.number, 7, 2)]


@given(trees(), st.integers(1, 6), st.integers(), st.integers(0, 40))
def test_a_recomputation_of_a_part_of_the_results_says_nothing_that_is_not_so(
    tree: Definition, count: int, seed: int, known: int
) -> None:
    run = Run(tree, lines(count), random.Random(seed))
    run.finish()
    some = dict(list(run.results.items())[:known])
    whole = shown(level.items for level in recompute(tree, run.lines, run.results))
    for early, late in zip(shown(level.items for level in recompute(tree, run.lines, some)), whole, strict=True):
        assert all(late[number] == each for number, each in early.items())


def test_a_recomputation_counts_each_stage() -> None:
    tree = flow(stage("a", "{{item.x}}"), stage("b", when="json.sure", otherwise="pass"), stage("c", when="json.sure"))
    sure, unsure = (Stored(True, orjson.dumps(completion(text))) for text in ('{"sure": true}', '{"sure": false}'))
    results = {(1, 1): sure, (1, 2): unsure, (2, 1): sure, (3, 1): sure}
    levels = recompute(tree, [{}, {"x": "1"}, {"x": "2"}], results)
    counts = [(level.ran, level.passed, level.dropped, level.refused) for level in levels[1:]]
    assert counts == [(2, 0, 0, 1), (1, 2, 0, 0), (1, 0, 2, 0)]


def test_a_recomputation_passes_on_what_the_share_did_not_allow() -> None:
    tree = flow(stage("a", "{{item.id}}", escalate={"model": "large", "when": "true", "most": 0.5}))
    results = {(1, 0): answer(1, 4), (1, 1): answer(1, 4), (2, 0): answer(1, 4)}
    level: Level = recompute(tree, lines(2), results, capped={(2, 1)})[2]
    assert (level.ran, level.passed) == (1, 1)
