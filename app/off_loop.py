"""Work that takes longer the more was sent. For much of it a thread does it, so that the other requests of the process go on."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

SMALL_BYTES = 64 * 1024  # read faster than a thread starts
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
    size, waiting = 0, [iter((given,))]
    while waiting and size <= SMALL_BYTES:
        for each in waiting[-1]:
            size += len(each) if isinstance(each, str | bytes | bytearray) else 2
            if (inner := _inner(each)) is not None:
                waiting.append(inner)
                break
            if size > SMALL_BYTES:
                break
        else:
            waiting.pop()
    return size


def _inner(value: Any) -> Iterator[Any] | None:
    if isinstance(value, Mapping):
        return iter(_of_fields(value))
    return iter(value) if isinstance(value, list | tuple) else None


def _of_fields(value: Mapping[str, Any]) -> Iterable[Any]:
    for name, each in value.items():
        yield name
        yield each
