"""Work beside the rounds, for as long as this steward leads."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import structlog

PAUSE_SECONDS = 1.0  # after an error

log = structlog.get_logger("steward")


@asynccontextmanager
async def beside(*works: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Do these works while the block runs. None of them ends by itself; one that fails is logged and begins again."""
    tasks = [asyncio.create_task(_keep(work)) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()


async def _keep(work: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await work()
        except Exception:
            log.exception("steward.work_failed", work=getattr(work, "__qualname__", ""))
        await asyncio.sleep(PAUSE_SECONDS)
