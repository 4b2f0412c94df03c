"""Waiting requests are served in the order of their arrival, or not at all."""

import asyncio

from app.gateway.wait_queue import Patience, WaitQueue


def seconds(number: float) -> Patience:
    """A patience of this length."""

    async def patience() -> float:
        return number

    return patience


class Places:
    """A number of places at one engine."""

    def __init__(self, free: int) -> None:
        self.free = free

    async def find(self) -> list[str]:
        await asyncio.sleep(0)
        return ["engine"] if self.free > 0 else []


async def caller(line: WaitQueue, places: Places, patience: float, served: list[int], number: int) -> bool:
    found = await line.wait("m", places.find, seconds(patience))
    if found:
        places.free -= 1
        served.append(number)
    return bool(found)


async def test_whoever_finds_a_place_does_not_wait() -> None:
    assert await WaitQueue().wait("m", Places(1).find, seconds(0)) == ["engine"]


async def test_without_patience_nobody_waits() -> None:
    assert await WaitQueue().wait("m", Places(0).find, seconds(0)) == ()


async def test_those_who_wait_are_served_in_order_one_for_each_place() -> None:
    line, places, served = WaitQueue(), Places(0), list[int]()
    tasks = [asyncio.create_task(caller(line, places, 30, served, n)) for n in range(4)]
    await asyncio.sleep(0.01)
    for expected in ([0], [0, 1], [0, 1, 2]):
        places.free += 1
        line.wake("m")
        await asyncio.sleep(0.05)
        assert served == expected
    late = asyncio.create_task(caller(line, places, 30, served, 4))
    places.free += 2
    line.wake("m")
    await asyncio.gather(*tasks, late)
    assert served == [0, 1, 2, 3, 4]


async def test_who_gives_up_or_runs_out_of_patience_makes_room_in_the_line() -> None:
    line, places, served = WaitQueue(), Places(0), list[int]()
    first = asyncio.create_task(caller(line, places, 30, served, 0))
    second = asyncio.create_task(caller(line, places, 0.05, served, 1))
    third = asyncio.create_task(caller(line, places, 30, served, 2))
    await asyncio.sleep(0.01)
    first.cancel()
    assert await second is False
    places.free = 1
    line.wake("m")
    assert await third
    assert served == [2]


async def test_an_engine_that_comes_up_is_found_without_being_told() -> None:
    line, places = WaitQueue(), Places(0)
    waiting = asyncio.create_task(line.wait("m", places.find, seconds(30)))
    await asyncio.sleep(0.01)
    places.free = 1
    assert await waiting == ["engine"]
