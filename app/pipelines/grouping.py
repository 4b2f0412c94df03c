"""The packs of a stage that packs by value: a function of what its parent has stored, so they are not stored themselves.

The parent is read page by page, and of each item only the number and the value are kept.
"""

import asyncio
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from app.flows import counting, reads
from app.flows.stages import ByValue, Stage
from app.pipelines.children import value_of
from app.pipelines.reading import Item, Reader
from app.pipelines.running import Running

Member = tuple[int, Hashable]


class TooManyValues(Exception):
    """The items have more different values than they may."""


@dataclass(frozen=True, slots=True)
class Groups:
    """`packs`: of each pack the numbers of its parts, which are items of the parent. `items`: how many the parent has."""

    packs: Sequence[Sequence[int]]
    items: int

    @property
    def parts(self) -> int:
        """How many items are in packs."""
        return sum(map(len, self.packs))


async def groups(
    reader: Reader, running: Running, stage: Stage, *, below: int | None = None, most: int | None = None
) -> Groups:
    """The packs of a stage by value. `below`: only parts with smaller numbers, which other parts do not change. `most`: values.

    Raises TooManyValues, and as `Reader.items`.
    """
    assert isinstance(stage.pack, ByValue)
    wanted, high = reads.of_group(running.flow, stage), running.numbers()[stage.parent]
    members, items, values = list[Member](), 0, dict[Hashable, Hashable]()
    async for page in reader.pages(running, stage.parent, high if below is None else min(high, below), wanted):
        found = await asyncio.to_thread(_members, running, stage, page)
        members += [(seq, values.setdefault(value, value)) for seq, value in found]
        items += len(page)
        if most is not None and len(values) > most:
            raise TooManyValues
    return Groups(await asyncio.to_thread(counting.in_groups, members, stage.pack.most), items)


def _members(running: Running, stage: Stage, page: Sequence[Item]) -> list[Member]:
    values = ((item.seq, value_of(running, stage, item.lineage)) for item in page)
    return [(seq, value) for seq, value in values if value is not None]
