"""Work that takes longer the more was sent. For much of it a thread does it, so that the other requests of the process go on."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

SMALL_BYTES = 64 * 1024  # read faster than a thread starts
_PLAIN = (int, float, list, tuple, type(None))  # told apart from mappings quickly
T = TypeVar("T")


async def done(given: Any, call: Callable[..., T], *args: Any) -> T:
    """What `call(*args)` returns, or its error. `given`: what it reads, bytes or a value of JSON.

    A thread does not stop when its request is cancelled. So what it does is linear in what it reads, whose size has a limit.
    """
    return await of_size(_size(given), call, *args)


async def of_size(size: int, call: Callable[..., T], *args: Any) -> T:
    """The same, where the number of bytes that it reads is known."""
    if size <= SMALL_BYTES:
        return call(*args)
    return await asyncio.to_thread(call, *args)


def _size(given: Any) -> int:
    """About the bytes that something takes. What is large is not looked at to its end."""
    size, waiting = 0, [given]
    while waiting and size <= SMALL_BYTES:
        each = waiting.pop()
        if isinstance(each, str | bytes | bytearray):
            size += len(each)
            continue
        size += 2
        if isinstance(each, dict) or (not isinstance(each, _PLAIN) and isinstance(each, Mapping)):
            size += len(each)
            if size <= SMALL_BYTES:
                waiting += each.keys()
                waiting += each.values()
        elif isinstance(each, list | tuple):
            size += len(each)
            if size <= SMALL_BYTES:
                waiting += each
    return size
