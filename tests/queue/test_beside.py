"""A claim about the steward's work beside its rounds."""

import asyncio

import pytest

from testing.waiting import in_time
from workers.steward import beside


async def test_work_beside_the_rounds_that_fails_begins_again_and_ends_with_the_lead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(beside, "PAUSE_SECONDS", 0.01)
    failed, ended, again = 0, asyncio.Event(), asyncio.Event()

    async def work() -> None:
        nonlocal failed
        if failed < 2:
            failed += 1
            raise ValueError("a row that nobody expected")
        again.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with beside.beside(work), in_time():
        await again.wait()
    async with in_time():
        await ended.wait()
