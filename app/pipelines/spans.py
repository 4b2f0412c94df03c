"""Which items of a stage come from one line of the input, by their numbers. Pure."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from app.flows.counting import child_number
from app.flows.stages import BySize, ByValue, Definition, OfStage, Stage


@dataclass(frozen=True, slots=True)
class Span:
    """The numbers that the items of one line may have, in their order. `shared`: such items have parts of other lines, too."""

    ranges: Sequence[range]
    shared: bool = False

    @classmethod
    def of(cls, ranges: Iterable[range], *, shared: bool) -> "Span":
        """From ranges in their order, which may touch or overlap."""
        found: list[range] = []
        for each in ranges:
            if found and each.start <= found[-1].stop:
                found[-1] = range(found[-1].start, max(found[-1].stop, each.stop))
            else:
                found.append(each)
        return cls(found, shared)

    @property
    def stop(self) -> int:
        """One more than the largest number."""
        return self.ranges[-1].stop if self.ranges else 0

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self.ranges, number, key=lambda each: each.start)
        return place > 0 and number in self.ranges[place - 1]


def below(flow: Definition, stage: Stage, above: Mapping[int, Span]) -> Span:
    """The span of a stage. `above`: those of the stages above. Not for packs by value."""
    parent, last = above[stage.parent], stage.each.most - 1 if stage.each else 0
    numbers = (
        range(child_number(flow, stage, each.start), child_number(flow, stage, each[-1], last) + 1)
        for each in parent.ranges
    )
    match stage.pack:
        case BySize(size):
            shared = parent.shared or size > 1
        case OfStage(of):
            shared = above[of].shared
        case _:
            shared = parent.shared
    return Span.of(numbers, shared=shared)


def in_packs(pack: ByValue, packs: Iterable[Sequence[int]], parent: Span) -> Span:
    """The span of a stage that packs by value. `packs`: the parts of each. `parent`: the span of its parent."""
    mine = (number for number, parts in enumerate(packs) if any(part in parent for part in parts))
    return Span.of((range(each, each + 1) for each in mine), shared=parent.shared or pack.most > 1)
