"""Work that writes to the database again and again, beside a process's other work."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from app.causes import cause
from app.db.transient_errors import TRANSIENT


@asynccontextmanager
async def repeated(work: Callable[[], Awaitable[None]], seconds: float, log: Any, failed: str) -> AsyncIterator[None]:
    """Do it each so many seconds while the block runs, and once more at its end. What fails is logged as the event `failed`."""

    async def attempt() -> None:
        try:
            await work()
        except (TimeoutError, *TRANSIENT) as error:
            log.warning(failed, error=cause(error))
        except Exception:  # it is tried again; the loop has to go on
            log.exception(failed)

    async def repeat() -> None:
        while True:
            await asyncio.sleep(seconds)
            await attempt()

    task = asyncio.create_task(repeat())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        await attempt()
