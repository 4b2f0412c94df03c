"""How tests and benchmarks wait: for a condition, for as long as the machine needs. The limit only ends what would hang."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import httpx
import psycopg

T = TypeVar("T")
LIMIT_SECONDS = 300.0
LOADING_SECONDS = 900.0  # of a real engine on a busy machine; the first start also fetches and converts the model
PAUSE_SECONDS = 0.02
AWAY = (psycopg.OperationalError, httpx.TransportError, OSError)  # what is waited for may not answer yet


def wait_for(get: Callable[[], T], what: object = "", *, seconds: float = LIMIT_SECONDS) -> T:
    """The first truthy value of `get`. Errors of a connection count as none. Raises AssertionError at the limit, with `what` and
    the last value. A `get` that asserts ends the wait at once.
    """
    end = time.monotonic() + seconds
    while True:
        last: object
        try:
            if last := get():
                return last
        except AWAY as error:
            last = error
        assert time.monotonic() < end, _failure(seconds, what, last)
        time.sleep(PAUSE_SECONDS)


async def eventually(get: Callable[[], T | Awaitable[T]], what: object = "", *, seconds: float = LIMIT_SECONDS) -> T:
    """As `wait_for`, for a plain function or a coroutine function."""
    end = time.monotonic() + seconds
    while True:
        last: object
        try:
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + max(0.0, end - time.monotonic())):
                found = get()
                last = await found if inspect.isawaitable(found) else found
            if last:
                return last  # type: ignore[return-value]
        except AWAY as error:
            last = error
        assert time.monotonic() < end, _failure(seconds, what, last)
        await asyncio.sleep(PAUSE_SECONDS)


def in_time() -> asyncio.Timeout:
    """Ends the block with TimeoutError when what it awaits seems to hang."""
    return asyncio.timeout(LIMIT_SECONDS)


def _failure(seconds: float, what: object, last: object) -> str:
    return f"not within {seconds:g} s: {what or 'the condition'}; last: {last!r}"
