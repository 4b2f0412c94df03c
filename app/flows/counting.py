"""The numbers of a pipeline's items, and which packs are complete. Pure.

A number is arithmetic, so an item that is made twice would be the same row, and lineage needs no table:

    map                  the parent's number
    fan-out of `most`    the parent's number * most + k
    pack by size         the parent's number div size
    pack of a stage      the number of that stage's item
    pack by value        the place of its group, when the whole parent is final

**Packs count.** A pack begins with the inputs that it could get: `size` neighbours (the last pack may have fewer), or one for a
pack of a stage. A fan-out to k items adds k-1. An input that arrives, or that will never come, subtracts one. At 0 the pack is
made; without any part, it never comes itself.
"""

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from app.errors import BadInput
from app.flows.language import Literal
from app.flows.stages import INPUT, BySize, ByValue, Definition, OfStage, Stage

MOST_NUMBERS = 2**31


class Change(NamedTuple):
    """How many more inputs (`delta`, which may be below 0) pack `number` of stage `stage` waits for."""

    stage: int
    number: int
    delta: int


def child_number(flow: Definition, stage: Stage, parent: int, k: int = 0) -> int:
    """The number of the item of this stage that comes from item `parent` of its parent. `k`: which element of a fan-out.

    Not for packs by value.
    """
    match stage.pack:
        case BySize(size):
            return parent // size
        case OfStage(of):
            return ancestor_number(flow, stage.parent, parent, of)
        case ByValue():
            raise ValueError(f"stage {stage.name} packs by value; its numbers are not arithmetic")
    return parent * stage.each.most + k if stage.each else parent


def ancestor_number(flow: Definition, stage: int, number: int, ancestor: int) -> int:
    """The number of the one item of `ancestor` that belongs to item `number` of `stage`."""
    while stage != ancestor:
        found = flow.stage(stage)
        if found.pack and not isinstance(found.pack, OfStage):
            raise ValueError(f"an item of stage {found.name} comes from many items of stage {ancestor}")
        if isinstance(found.pack, OfStage):
            stage = found.pack.stage
        else:
            number, stage = (number // found.each.most if found.each else number), found.parent
    return number


def width(flow: Definition, stage: Stage) -> int:
    """How many numbers of its parent's items belong to one pack of this stage. Not for packs by value."""
    if isinstance(stage.pack, BySize):
        return stage.pack.size
    assert isinstance(stage.pack, OfStage)
    above, found = stage.parent, 1
    while above not in (stage.pack.stage, INPUT):
        each = flow.stage(above)
        if isinstance(each.pack, OfStage):
            above = each.pack.stage
        else:
            found, above = found * (each.each.most if each.each else 1), each.parent
    return found


def numbers(flow: Definition, inputs: int, made: Mapping[int, int] | None = None) -> tuple[int, ...]:
    """For each stage, the input first, one more than the largest number that an item can have. `inputs`: lines of the input.
    `made`: how many packs the stages that pack by value have made, if that is known.
    """
    found = [inputs]
    for stage in flow.stages:
        above = found[stage.parent]
        match stage.pack:
            case ByValue() if made is not None and stage.number in made:
                found.append(made[stage.number])
            case BySize(size):
                found.append(-(-above // size))
            case OfStage(of):
                found.append(found[of])
            case _:
                found.append(above * stage.each.most if stage.each else above)
    return tuple(found)


def check_numbers(flow: Definition, inputs: int, place: str = "stages") -> None:
    """Raise BadInput if the numbers of a stage could leave their range. `place`: the field that lists the stages."""
    for stage, most in zip(flow.stages, numbers(flow, inputs)[1:], strict=True):
        if most > MOST_NUMBERS:
            param = f"{place}[{listed(flow, stage)}].max"
            message = f"allows {most:,} items for {inputs:,} lines; the most is {MOST_NUMBERS:,}. Set a smaller max"
            raise BadInput(f"{param} of stage {stage.name!r} {message}", param=param)


def listed(flow: Definition, stage: Stage) -> int:
    """The place of a stage in its definition, where re-asks and escalations are no stages."""
    return sum("." not in each.name for each in flow.stages[: stage.number]) - 1


def beginning(stage: Stage, number: int, parents: int) -> int:
    """How many inputs a pack begins with. `parents`: how many numbers its parent's items can have, by `numbers`."""
    if isinstance(stage.pack, BySize):
        return min(stage.pack.size, parents - number * stage.pack.size)
    return 1


def fanned_out(flow: Definition, stage: Stage, parent: int, items: int) -> Iterator[Change]:
    """What packs below wait for when item `parent` became `items` items (1 or more) of this stage, a fan-out."""
    assert stage.each
    if items != 1:
        yield from _more(flow, stage, stage.parent, parent, items - 1)


def _more(flow: Definition, fan_out: Stage, stage: int, number: int, delta: int) -> Iterator[Change]:
    """The packs of what comes from the item `number` of the fan-out's parent.

    Below the fan-out there are more stages and packs. Those that gather less than the whole of it multiply with it, and those
    that gather it wait for more.
    """
    collapsed: list[Stage] = [fan_out]
    while collapsed:
        above = collapsed.pop()
        for child in flow.children(above.number):
            match child.pack:
                case None:
                    collapsed.append(child)
                case OfStage(of) if _is_above(flow, of, fan_out):
                    yield Change(child.number, ancestor_number(flow, stage, number, of), delta)
                case OfStage():
                    collapsed.append(child)


def _is_above(flow: Definition, ancestor: int, stage: Stage) -> bool:
    """Whether one item of `ancestor` belongs to each item of `stage`, and is not an item of it."""
    return ancestor == INPUT or ancestor in stage.single.names.values()


def arrived(flow: Definition, stage: int, number: int) -> Iterator[Change]:
    """What packs of this stage's items wait for once this item has its result."""
    for child in flow.children(stage):
        if child.pack and not isinstance(child.pack, ByValue):
            yield Change(child.number, child_number(flow, child, number), -1)


def never(flow: Definition, stage: int, number: int) -> Iterator[Change]:
    """What packs below wait for once it is known that this item will never exist.

    `stage` may be a fan-out that made nothing of its parent's item: then `number` is that of its first element.
    """
    gone = [(stage, number)]
    while gone:
        stage, number = gone.pop()
        yield from arrived(flow, stage, number)
        gone += [
            (child.number, child_number(flow, child, number)) for child in flow.children(stage) if child.pack is None
        ]


def in_groups(members: Iterable[tuple[int, Hashable]], most: int) -> list[list[int]]:
    """The packs of a pack by value: the numbers of its parts, by the order of their first. `members`: each number with its
    value. A group of more than `most` is several packs.
    """
    groups: dict[Hashable, list[list[int]]] = {}
    for number, value in sorted(members, key=lambda member: member[0]):
        packs = groups.setdefault(value, [])
        if not packs or len(packs[-1]) == most:
            packs.append([])
        packs[-1].append(number)
    return sorted(pack for packs in groups.values() for pack in packs)


def gets_every_line(flow: Definition, stage: Stage) -> bool:
    """Whether each line of the input becomes one item of this stage's parent: nothing above drops, fans out or packs."""
    above = stage.parent
    while above != INPUT:
        found = flow.stage(above)
        drops = found.otherwise == "drop" and found.when != Literal(value=True)
        if drops or found.each or found.pack:
            return False
        above = found.parent
    return True


def allowed(share: float, inputs: int) -> int:
    """How many items of a stage may run if at most this share of `inputs` may, rounded up."""
    return min(inputs, math.ceil(round(share * inputs, 6)))


def depths(flow: Definition) -> Sequence[int]:
    """How many stages are above each stage; that of the input is 0."""
    found = [0]
    for stage in flow.stages:
        found.append(found[stage.parent] + 1)
    return found
