"""A whole pipeline computed anew from its input and its results: which items every stage has, and what each comes from. Pure.

It works stage by stage, and knows nothing of markers, transactions or counted packs. So it says what they must have made.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.flows import rendering
from app.flows.answers import Answer
from app.flows.counting import child_number, in_groups
from app.flows.items import Asked, Child, Copied, Lineage, Parked, Refused
from app.flows.stages import INPUT, ByValue, Definition, OfStage, Stage

Place = tuple[int, int]  # the number of a stage, and of an item in it


@dataclass(frozen=True, slots=True)
class Stored:
    """The stored result of an item that ran, was parked, or (in an input with answers) had run: its answer or its error."""

    ok: bool
    body: bytes


@dataclass(frozen=True, slots=True)
class Item:
    """An item. `parents`: the numbers of the parent's items that it was made of. `child`: what was made. `lineage`: what its own
    children come from, so with its answer; None: it has no result yet.
    """

    parents: tuple[int, ...]
    child: Child | None
    lineage: Lineage | None


@dataclass(slots=True)
class Level:
    """The items of a stage by their numbers. `dropped`: items of the parent that made none here. `waiting`: numbers of which
    it is not known yet whether they come, or what comes of them; -1: any number.
    """

    items: dict[int, Item] = field(default_factory=dict)
    dropped: int = 0
    waiting: set[int] = field(default_factory=set)

    @property
    def ran(self) -> int:
        """How many are requests, or were parked."""
        return sum(isinstance(each.child, (Asked, Parked)) for each in self.items.values())

    @property
    def passed(self) -> int:
        """How many have a result without a request."""
        return sum(isinstance(each.child, Copied) for each in self.items.values())

    @property
    def refused(self) -> int:
        """How many were errors from the beginning."""
        return sum(isinstance(each.child, Refused) for each in self.items.values())


def recompute(
    flow: Definition,
    lines: Sequence[Mapping[str, Any]],
    results: Mapping[Place, Stored],
    capped: Collection[Place] = (),
) -> list[Level]:
    """Every stage of a pipeline, the input first. `lines`: of the input. `capped`: items that were passed on because the share of
    their stage was used up, which depends on the order of events.
    """
    levels = [_input(flow, lines, results)]
    for stage in flow.stages:
        make = _packs if stage.pack else _singles
        levels.append(make(flow, stage, levels, results, capped))
    return levels


def _input(flow: Definition, lines: Sequence[Mapping[str, Any]], results: Mapping[Place, Stored]) -> Level:
    level = Level()
    for number, line in enumerate(lines):
        stored = results.get((INPUT, number))
        if not flow.input.answers:
            level.items[number] = Item((), None, Lineage(line))
        elif stored:
            answer = rendering.answer_of(flow, INPUT, ok=stored.ok, body=stored.body)
            level.items[number] = Item((), None, Lineage(line, {INPUT: answer}))
        else:
            level.items[number] = Item((), None, None)
            level.waiting.add(number)
    return level


def _singles(
    flow: Definition,
    stage: Stage,
    levels: Sequence[Level],
    results: Mapping[Place, Stored],
    capped: Collection[Place],
) -> Level:
    """The items of a map or a fan-out."""
    parent, level = levels[stage.parent], Level()
    level.waiting = {child_number(flow, stage, number) for number in parent.waiting}
    for number, item in parent.items.items():
        if item.lineage is None:
            continue
        may_run = (stage.number, child_number(flow, stage, number)) not in capped
        made = rendering.children(flow, stage, item.lineage, may_run=may_run)
        level.dropped += not made
        for k, child in enumerate(made):
            _add(flow, stage, level, results, child_number(flow, stage, number, k), (number,), child, item.lineage)
    return level


def _packs(
    flow: Definition,
    stage: Stage,
    levels: Sequence[Level],
    results: Mapping[Place, Stored],
    _capped: Collection[Place],
) -> Level:
    """The packs of a stage that wait for nothing more."""
    parent, level = levels[stage.parent], Level()
    known = {number: item.lineage for number, item in parent.items.items() if item.lineage}
    parts = {number for number, lineage in known.items() if rendering.is_part(flow, stage, lineage)}
    level.dropped = len(known) - len(parts)
    if isinstance(stage.pack, ByValue):
        level.waiting = {-1} if parent.waiting else set()
    else:
        level.waiting = {child_number(flow, stage, number) for number in parent.waiting}
    for pack, members in _members(flow, stage, known, parts):
        if pack in level.waiting or -1 in level.waiting:
            continue
        inside = tuple(number for number in members if number in parts)
        common = levels[stage.pack.stage].items[pack].lineage if isinstance(stage.pack, OfStage) else None
        missing = len(members) - len(inside)
        child = rendering.packed(flow, stage, [known[number] for number in inside], missing, common)
        if child:
            _add(flow, stage, level, results, pack, inside, child, common or Lineage())
    return level


def _members(
    flow: Definition, stage: Stage, known: Mapping[int, Lineage], parts: Collection[int]
) -> Iterator[tuple[int, list[int]]]:
    """The number of each pack, and the parent's items that belong to it."""
    if isinstance(stage.pack, ByValue):
        values = [(number, rendering.group(flow, stage, known[number])) for number in parts]
        yield from enumerate(in_groups(values, stage.pack.most))
        return
    packs = defaultdict(list)
    for number in sorted(known):
        packs[child_number(flow, stage, number)].append(number)
    yield from packs.items()


def _add(
    flow: Definition,
    stage: Stage,
    level: Level,
    results: Mapping[Place, Stored],
    number: int,
    parents: tuple[int, ...],
    child: Child,
    above: Lineage,
) -> None:
    """Add an item, with its result if it has one."""
    match child:
        case Copied(ok, body):
            stored: Stored | None = Stored(ok, body)
        case Refused(error):
            stored = Stored(ok=False, body=error.body)
        case _:
            stored = results.get((stage.number, number))
    if stored is None:
        level.waiting.add(number)
        level.items[number] = Item(parents, child, None)
    else:
        answer = rendering.answer_of(flow, stage.number, ok=stored.ok, body=stored.body)
        level.items[number] = Item(parents, child, _below(stage, above, child, answer))


def _below(stage: Stage, above: Lineage, child: Child, answer: Answer) -> Lineage:
    """What children of this item come from."""
    requests = {**above.requests, stage.number: child.body} if isinstance(child, Asked) else above.requests
    return Lineage(above.line, {**above.answers, stage.number: answer}, requests)
