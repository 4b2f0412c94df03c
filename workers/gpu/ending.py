"""How a worker is told to end, and how it waits for that."""

import asyncio
from collections.abc import Awaitable


class Ending:
    """`finishing` is set when running requests are to come to their end; `returning` when they are to be handed back at once."""

    def __init__(self) -> None:
        self.finishing = asyncio.Event()
        self.returning = asyncio.Event()

    def finish(self) -> None:
        """Take nothing more, and end what runs."""
        self.finishing.set()

    def hand_back(self) -> None:
        """Take nothing more, and hand back what runs."""
        self.returning.set()
        self.finishing.set()

    def signal(self) -> None:
        """A signal has come: the first one finishes, a second one hands back."""
        if self.finishing.is_set():
            self.hand_back()
        else:
            self.finish()


async def first_of(*waits: Awaitable[object], seconds: float | None = None) -> None:
    """Return when one of these is done, or after that time. The others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
