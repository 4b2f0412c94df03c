"""Claims about work that is done together."""

import asyncio

import pytest

from app.coalescing import Coalescer


class Work:
    """Squares, one call at a time; `gate` holds it up."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.gate = asyncio.Event()

    async def __call__(self, asked: list[int]) -> list[int]:
        self.calls.append(asked)
        await self.gate.wait()
        if -1 in asked:
            raise ValueError
        return [each**2 for each in asked]


async def begun(together: Coalescer[int, int], *asked: int) -> list[asyncio.Task[int]]:
    tasks = [asyncio.create_task(together.ask(each)) for each in asked]
    await asyncio.sleep(0.01)
    return tasks


async def test_what_comes_while_work_is_under_way_is_done_next_in_one_go() -> None:
    work = Work()
    together = Coalescer(work, most=3)
    tasks = await begun(together, 1) + await begun(together, 2, 3, 4, 5)
    work.gate.set()
    assert await asyncio.gather(*tasks) == [1, 4, 9, 16, 25]
    assert work.calls == [[1], [2, 3, 4], [5]]


async def test_who_gave_up_is_not_worked_for() -> None:
    work = Work()
    together = Coalescer(work, most=9)
    tasks = await begun(together, 1) + await begun(together, 2, 3)
    tasks[1].cancel()
    work.gate.set()
    assert await tasks[2] == 9
    assert work.calls == [[1], [3]]


@pytest.mark.parametrize(("fails_all", "calls"), [(False, [[-1], [2, 3]]), (True, [[-1]])])
async def test_a_failure_is_told_to_its_own_or_to_all_who_wait(fails_all: bool, calls: list[list[int]]) -> None:
    work = Work()
    together = Coalescer(work, most=9, fails_all=fails_all)
    tasks = await begun(together, -1) + await begun(together, 2, 3)
    work.gate.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(found[0], ValueError)
    assert all(isinstance(each, ValueError) == fails_all for each in found[1:])
    assert work.calls == calls
    assert await together.ask(5) == 25
