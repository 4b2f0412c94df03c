"""Claims about numbers and counted packs: whatever the order of events, they make exactly what a recomputation says."""

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import orjson
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.errors import BadInput
from app.flows import counting, rendering
from app.flows.counting import Change
from app.flows.definition import parse
from app.flows.items import Asked, Child, Copied, Lineage, Refused
from app.flows.recomputation import Item, Level, Place, Stored, recompute
from app.flows.stages import INPUT, ByValue, Definition, OfStage, Stage
from tests.flows.pipelines import Json, completion, flow, pipeline, stage

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


def test_the_depth_counts_stages_above() -> None:
    assert counting.depths(flow(stage("a"), stage("b"), stage("c", after="a"))) == [0, 1, 2, 2]


class Run:
    """A pipeline that is run item by item in any order, with counted packs as the steward counts them."""

    def __init__(self, flow: Definition, lines: list[Json], order: random.Random) -> None:
        self.flow, self.order = flow, order
        self.items = [dict[int, Item]() for _ in range(len(flow.stages) + 1)]
        self.results: dict[Place, Stored] = {}
        self.open: dict[Place, int] = {}
        self.packs: dict[int, int] = {}  # how many packs by value each stage made
        self.marked: list[Place] = []
        self.lines = lines
        for number, line in enumerate(lines):
            self.items[INPUT][number] = Item((), None, Lineage(line))
            self.marked.append((INPUT, number))

    def finish(self) -> None:
        while self._step() or self._next_by_value():
            pass

    def _step(self) -> bool:
        running = [
            (stage, number)
            for stage, items in enumerate(self.items)
            for number, item in items.items()
            if item.lineage is None
        ]
        if not running and not self.marked:
            return False
        if self.marked and (not running or self.order.random() < 0.5):
            self._hand_off(self.marked.pop(self.order.randrange(len(self.marked))))
        else:
            self._answer(self.order.choice(running))
        return True

    def _answer(self, place: Place) -> None:
        stage, number = place
        item = self.items[stage][number]
        self.results[place] = stored = answer(stage, number)
        del self.items[stage][number]
        self._add(self.flow.stage(stage), number, item.parents, item.child, self._above(stage, item), stored)

    def _above(self, stage: int, item: Item) -> Lineage:
        found = self.flow.stage(stage)
        if isinstance(found.pack, OfStage):
            number = counting.ancestor_number(self.flow, found.parent, item.parents[0], found.pack.stage)
            return self._lineage(found.pack.stage, number)
        return Lineage() if found.pack else self._lineage(found.parent, item.parents[0])

    def _lineage(self, stage: int, number: int) -> Lineage:
        lineage = self.items[stage][number].lineage
        assert lineage
        return lineage

    def _hand_off(self, place: Place) -> None:
        """One transaction of the steward: the children of one result."""
        changes = list(counting.arrived(self.flow, *place))
        for child in self.flow.children(place[0]):
            if child.pack is None:
                changes += self._children(child, place[1])
        self._count(changes)

    def _children(self, stage: Stage, parent: int) -> Iterable[Change]:
        lineage = self._lineage(stage.parent, parent)
        made = rendering.children(self.flow, stage, lineage)
        for k, child in enumerate(made):
            self._add(stage, counting.child_number(self.flow, stage, parent, k), (parent,), child, lineage)
        if not made:
            return counting.never(self.flow, stage.number, counting.child_number(self.flow, stage, parent))
        return counting.fanned_out(self.flow, stage, parent, len(made)) if stage.each else ()

    def _add(
        self,
        stage: Stage,
        number: int,
        parents: tuple[int, ...],
        child: Child | None,
        above: Lineage,
        stored: Stored | None = None,
    ) -> None:
        assert number not in self.items[stage.number], "an item was made twice"
        if isinstance(child, Copied):
            stored = Stored(child.ok, child.body)
        elif isinstance(child, Refused):
            stored = Stored(ok=False, body=child.error.body)
        lineage = None
        if stored:
            found = rendering.answer_of(self.flow, stage.number, ok=stored.ok, body=stored.body)
            asked = {stage.number: child.body} if isinstance(child, Asked) else {}
            lineage = Lineage(above.line, {**above.answers, stage.number: found}, {**above.requests, **asked})
            self.marked.append((stage.number, number))
        self.items[stage.number][number] = Item(parents, child, lineage)

    def _count(self, changes: Iterable[Change]) -> None:
        deltas = Counter[Place]()
        for change in changes:
            deltas[change.stage, change.number] += change.delta
        for (number, pack), delta in deltas.items():
            stage = self.flow.stage(number)
            parents = counting.numbers(self.flow, len(self.lines), self.packs)[stage.parent]
            before = self.open.get((number, pack), counting.beginning(stage, pack, parents))
            assert before > 0, "a pack that was made gets one more"
            self.open[number, pack] = before + delta
            assert before + delta >= 0
            if before + delta == 0:
                self._pack(stage, pack)

    def _pack(self, stage: Stage, pack: int) -> None:
        members = [
            number
            for number, item in sorted(self.items[stage.parent].items())
            if item.lineage and counting.child_number(self.flow, stage, number) == pack
        ]
        if not self._made(stage, pack, members):
            self._count(counting.never(self.flow, stage.number, pack))

    def _made(self, stage: Stage, pack: int, members: list[int]) -> bool:
        lineages = {number: self._lineage(stage.parent, number) for number in members}
        parts = [number for number in members if rendering.is_part(self.flow, stage, lineages[number])]
        common = self._lineage(stage.pack.stage, pack) if parts and isinstance(stage.pack, OfStage) else None
        inside = [lineages[number] for number in parts]
        child = rendering.packed(self.flow, stage, inside, len(members) - len(parts), common)
        if child:
            self._add(stage, pack, tuple(parts), child, common or Lineage())
        return child is not None

    def _next_by_value(self) -> bool:
        """Make the packs of the first stage by value that has none; everything above it is final."""
        for found in self.flow.stages:
            if isinstance(found.pack, ByValue) and found.number not in self.packs:
                values = [
                    (number, rendering.group(self.flow, found, lineage))
                    for number in self.items[found.parent]
                    if rendering.is_part(self.flow, found, lineage := self._lineage(found.parent, number))
                ]
                packs = counting.in_groups(values, found.pack.most)
                self.packs[found.number] = len(packs)
                for pack, members in enumerate(packs):
                    assert self._made(found, pack, members)
                return True
        return False


def answer(stage: int, number: int) -> Stored:
    """The same answer whenever this item is asked."""
    dice = random.Random(stage * 1_000_003 + number)
    if dice.random() < 0.15:
        return Stored(ok=False, body=b'{"code":5001,"message":"the engine failed"}')
    text = orjson.dumps(
        {
            "list": list(range(dice.randrange(5))) if dice.random() < 0.9 else None,
            "sure": dice.random() < 0.6,
            "topic": dice.choice(["a", "b", "c", None, 1]),
        }
    ).decode()
    return Stored(ok=True, body=orjson.dumps(completion(text if dice.random() < 0.9 else "no JSON")))


@st.composite
def trees(draw: st.DrawFn) -> Definition:
    """Pipelines of up to seven stages, of which the reader accepts each."""
    stages: list[Json] = []
    for n in range(draw(st.integers(1, 7))):
        ids = ["input", *(each["id"] for each in stages)]
        after = draw(st.sampled_from(ids))
        of_parent: Json = {"id": f"s{n}", "after": after}
        kind = draw(st.sampled_from(["map", "map", "each", "size", "of", "by"]))
        shape: Json = {
            "map": {},
            "each": {"each": "item.list" if after == "input" else "json.list", "max": 3},
            "size": {"pack": {"size": draw(st.integers(1, 3)), "min": 1}},
            "of": {"pack": {"of": draw(st.sampled_from(ids)), "max": draw(st.sampled_from([2, 1000]))}},
            "by": {"pack": {"by": "json.topic", "max": draw(st.integers(1, 3))}},
        }[kind]
        text = '{{parts.ok|"none"}}{{count}}{{missing}}' if "pack" in shape else '{{text|20|"none"}}'
        more: Json = {} if after == "input" else draw(st.sampled_from([{}, {"when": "json.sure"}, {"when": "true"}]))
        if after != "input" and "pack" not in shape:
            more |= draw(st.sampled_from([{}, {"otherwise": "pass"}]))
        if draw(st.booleans()):
            more |= {"escalate": {"model": "large", "when": "not json.sure"}}
        new = stage("x", "{{item.id}}" if after == "input" and "pack" not in shape else text) | of_parent | shape | more
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


@given(trees(), st.integers(0, 7), st.integers())
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
