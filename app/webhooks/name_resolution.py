"""Looking names up so that one whose servers keep silent holds up nobody else.

`getaddrinfo` knows no deadline and cannot be cancelled: a thread that hangs in it is lost for as long as it likes. So each name
of an owner has one thread at most, which ends with the process, and whoever of them wants it meanwhile waits for the same answer.
"""

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Generic, TypeVar

SECONDS = 5.0
MOST = 512
"""Names at once; a thread that waits costs little but its stack."""
MOST_OF_ONE = 16
"""Of them, of one owner, so that the names of one account hold up its own webhooks only."""

T = TypeVar("T")


class NameResolver(Generic[T]):
    """Lookups by key, all from one event loop."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(MOST)
        self._running: dict[tuple[Hashable, Hashable], asyncio.Task[T]] = {}
        self._slots: dict[Hashable, asyncio.Semaphore] = {}
        self._lookups: Counter[Hashable] = Counter()  # of each owner, waiting ones included

    async def get(self, key: Hashable, look: Callable[[], T], owner: Hashable = None) -> T:
        """What `look` returns, or raises, for this key. Raises gaierror if it does not come in `SECONDS`.

        No owner waits for a name of another one, which may wait for a slot of its own owner.
        """
        task = self._running.get((owner, key))
        if task is None:
            task = self._running[owner, key] = asyncio.create_task(self._look(look, owner))
            self._lookups[owner] += 1
            task.add_done_callback(lambda done: self._ended(owner, key, done))
        await asyncio.wait({task}, timeout=SECONDS)  # cancels nothing, since others may wait too
        if not task.done():
            raise socket.gaierror(socket.EAI_AGAIN, f"no answer within {SECONDS:g} s")
        return task.result()

    def close(self) -> None:
        """Wait for nothing that is still running."""
        for task in self._running.values():
            task.cancel()

    async def _look(self, look: Callable[[], T], owner: Hashable) -> T:
        async with self._slots.setdefault(owner, asyncio.Semaphore(MOST_OF_ONE)), self._free:
            return await _in_a_thread(look)

    def _ended(self, owner: Hashable, key: Hashable, task: asyncio.Task[T]) -> None:
        del self._running[owner, key]
        self._lookups[owner] -= 1
        if not self._lookups[owner]:
            del self._lookups[owner]
            self._slots.pop(owner, None)
        if not task.cancelled():
            task.exception()  # perhaps nobody waits for it any more: then its failure is nobody's


async def _in_a_thread(look: Callable[[], T]) -> T:
    """As `asyncio.to_thread`, in a thread of its own for which the end of the process does not wait."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[T] = loop.create_future()

    def tell(deliver: Callable[[T], None] | Callable[[BaseException], None], value: object) -> None:
        if not found.done():
            deliver(value)  # type: ignore[arg-type]

    def run() -> None:
        try:
            told = (found.set_result, look())
        except Exception as error:
            told = (found.set_exception, error)  # type: ignore[assignment]
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(tell, *told)

    threading.Thread(target=run, name="lookup", daemon=True).start()
    return await found
