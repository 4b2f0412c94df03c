"""DNS lookups in which a name whose servers do not answer delays no other name.

`getaddrinfo` has no deadline and cannot be cancelled, so a thread that hangs in it is blocked until it returns. Each name of an
owner therefore has at most one thread, which ends with the process. Further requests of this owner for the name wait for the
same answer.
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
"""Lookups at once. A waiting thread costs little more than its stack."""
MOST_OF_ONE = 16
"""Lookups at once for one owner, so that the names of one account delay only its own webhooks."""

T = TypeVar("T")


class NameResolver(Generic[T]):
    """Runs lookups by key. All calls come from one event loop."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(MOST)
        self._running: dict[tuple[Hashable, Hashable], asyncio.Task[T]] = {}
        self._slots: dict[Hashable, asyncio.Semaphore] = {}
        self._lookups: Counter[Hashable] = Counter()  # for each owner, with those that wait for a slot

    async def get(self, key: Hashable, look: Callable[[], T], owner: Hashable = None) -> T:
        """Return or raise what `look` does for this key. Raises gaierror if it takes longer than `SECONDS`.

        Owners do not share a lookup, because it may wait for a slot of the owner that began it.
        """
        task = self._running.get((owner, key))
        if task is None:
            task = self._running[owner, key] = asyncio.create_task(self._look(look, owner))
            self._lookups[owner] += 1
            task.add_done_callback(lambda done: self._ended(owner, key, done))
        await asyncio.wait({task}, timeout=SECONDS)  # cancels nothing: others may wait too
        if not task.done():
            raise socket.gaierror(socket.EAI_AGAIN, f"no answer within {SECONDS:g} s")
        return task.result()

    def close(self) -> None:
        """Stop waiting for lookups that still run."""
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
            task.exception()  # marks the error as read; nobody may be waiting any more


async def _in_a_thread(look: Callable[[], T]) -> T:
    """Like `asyncio.to_thread`, but in a daemon thread, so that the process does not wait for it at its end."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def resolve(deliver: Callable[[T], None] | Callable[[BaseException], None], value: object) -> None:
        if not result.done():
            deliver(value)  # type: ignore[arg-type]

    def run() -> None:
        try:
            outcome = (result.set_result, look())
        except Exception as error:
            outcome = (result.set_exception, error)  # type: ignore[assignment]
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(resolve, *outcome)

    threading.Thread(target=run, name="lookup", daemon=True).start()
    return await result
