"""Runs a pipeline item by item in any order, with counted packs as the steward counts them."""

import random
from collections import Counter
from collections.abc import Iterable

import orjson

from app.flows import counting, rendering
from app.flows.counting import Change
from app.flows.items import Asked, Child, Copied, Lineage, Refused
from app.flows.stages import INPUT, ByValue, Definition, OfStage, Stage
from tests.flows.pipelines import Json, completion
from tests.flows.recomputation import Item, Place, Stored


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
