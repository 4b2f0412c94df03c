"""Work that takes longer the more was sent. For much of it a thread does it, so that the other requests of the process go on."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

SMALL_BYTES = 64 * 1024  # parsed in about a millisecond
SEARCHED_BYTES = 4 * 1024  # the same of what is searched for sensitive values, which a hostile text makes slow
_USUAL = frozenset({str, dict, list, int, float, bool, type(None)})  # of JSON, told apart quickly
T = TypeVar("T")


async def done(given: Any, call: Callable[..., T], *args: Any, most: int = SMALL_BYTES) -> T:
    """What `call(*args)` returns, or its error. `given`: what it reads, bytes or a value of JSON. `most`: bytes that no thread is
    needed for.

    A thread does not stop when its request is cancelled. So what it does is linear in what it reads, whose size has a limit.
    """
    return await of_size(_size(given, most), call, *args, most=most)


async def searched(given: Any, call: Callable[..., T], *args: Any) -> T:
    """The same for what searches `given` for sensitive values."""
    return await done(given, call, *args, most=SEARCHED_BYTES)


async def of_size(size: int, call: Callable[..., T], *args: Any, most: int = SMALL_BYTES) -> T:
    """The same, where the number of bytes that it reads is known."""
    if size <= most:
        return call(*args)
    return await asyncio.to_thread(call, *args)


def _size(given: Any, most: int) -> int:
    """About the bytes that something takes. What is larger than `most` is not looked at to its end."""
    size, seen = 0, [given]
    for each in seen:  # which grows meanwhile
        kind = type(each)
        if kind is str or (kind not in _USUAL and isinstance(each, str | bytes | bytearray)):
            size += len(each)
        elif kind is dict or (kind not in _USUAL and isinstance(each, Mapping)):
            size += 2 + len(each)
            if size <= most:
                seen += each.keys()
                seen += each.values()
        elif kind is list or (kind not in _USUAL and isinstance(each, list | tuple)):
            size += 2 + len(each)
            if size <= most:
                seen += each
        else:
            size += 2
        if size > most:
            break
    return size
