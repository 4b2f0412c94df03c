"""Work that takes longer the more was sent. For much of it a thread does it, so that the other requests of the process go on."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import orjson

SMALL_BYTES = 64 * 1024  # read faster than a thread starts
T = TypeVar("T")


async def done(given: Any, call: Callable[..., T], *args: Any) -> T:
    """What `call(*args)` returns, or its error. `given`: what it reads, bytes or a value of JSON.

    A thread does not stop when its request is cancelled. So what it does is linear in what it reads, whose size has a limit.
    """
    if _size(given) <= SMALL_BYTES:
        return call(*args)
    return await asyncio.to_thread(call, *args)


def _size(given: Any) -> int:
    return len(given if isinstance(given, bytes | bytearray) else orjson.dumps(given))
