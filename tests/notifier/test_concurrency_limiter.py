"""Claims about the limit on attempts in flight."""

import asyncio

import pytest

from testing.waiting import LIMIT_SECONDS
from workers.notifier import concurrency_limiter
from workers.notifier.concurrency_limiter import PARKED, ConcurrencyLimiter


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency_limiter, "SLOW_SECONDS", 0.02)


async def hang(of: ConcurrencyLimiter, count: int) -> list[asyncio.Task[None]]:
    """Start so many attempts whose receivers never respond."""

    async def attempt() -> None:
        with of.taken():
            await asyncio.Event().wait()

    of.take(count)
    tasks = [asyncio.create_task(attempt()) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


async def test_an_attempt_that_waits_long_for_its_receiver_frees_its_place() -> None:
    room = ConcurrencyLimiter(2)
    tasks = await hang(room, 2)
    waiting = asyncio.create_task(room.free())
    await asyncio.sleep(0.005)
    assert not waiting.done()
    assert await asyncio.wait_for(waiting, LIMIT_SECONDS) >= 1
    await asyncio.sleep(0.05)
    assert await room.free() == 2
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert await room.free() == 2


async def test_the_number_of_parked_attempts_is_limited() -> None:
    room, tasks = ConcurrencyLimiter(1), []
    for _ in range(PARKED):
        tasks += await hang(room, 1)
        await asyncio.wait_for(room.free(), LIMIT_SECONDS)
    last = await hang(room, 1)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(room.free(), 0.1)
    last[0].cancel()
    assert await asyncio.wait_for(room.free(), LIMIT_SECONDS) == 1
    for task in tasks:
        task.cancel()
    await asyncio.wait([*tasks, *last])
    assert await room.free() == 1
