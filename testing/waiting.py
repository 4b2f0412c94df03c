"""How tests and benchmarks wait: for a condition, for as long as the machine needs. The limit only ends what would hang."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

import httpx
import psycopg

T = TypeVar("T")
LIMIT_SECONDS = 300.0
LOADING_SECONDS = 900.0  # of a real engine on a busy machine; the first start also fetches and converts the model
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.02, 0.1  # what is asked costs too, of those who wait long
_AWAY = (psycopg.OperationalError, httpx.TransportError, OSError)  # what is asked may not answer yet


def wait_for(
    get: Callable[[], T], what: str = "", *, until: Callable[[T], object] = bool, seconds: float = LIMIT_SECONDS
) -> T:
    """The first value of `get` with which `until` is content. Errors of a connection count as no value. A `get` that asserts ends
    the wait. Raises AssertionError at the limit, with `what` was waited for and the last value.
    """
    end, pause = time.monotonic() + seconds, _PAUSE_SECONDS
    while True:
        last: T | Exception
        try:
            if until(last := get()):
                return last
        except _AWAY as error:
            last = error
        assert time.monotonic() < end, _failure(what, seconds, last)
        time.sleep(pause)
        pause = min(1.1 * pause, _LONGEST_PAUSE_SECONDS)


@overload
async def eventually(
    get: Callable[[], Awaitable[T]], what: str = "", *, until: Callable[[T], object] = bool, seconds: float = ...
) -> T: ...


@overload
async def eventually(
    get: Callable[[], T], what: str = "", *, until: Callable[[T], object] = bool, seconds: float = ...
) -> T: ...


async def eventually(
    get: Callable[[], Any],
    what: str = "",
    *,
    until: Callable[[Any], object] = bool,
    seconds: float = LIMIT_SECONDS,
) -> Any:
    """As `wait_for`. `get` may also be a coroutine function, which may hang."""
    end, pause = time.monotonic() + seconds, _PAUSE_SECONDS
    while True:
        last: Any
        try:
            async with asyncio.timeout(max(0.0, end - time.monotonic())):
                found = get()
                last = await found if inspect.isawaitable(found) else found
            if until(last):
                return last
        except _AWAY as error:
            last = error
        assert time.monotonic() < end, _failure(what, seconds, last)
        await asyncio.sleep(pause)
        pause = min(1.1 * pause, _LONGEST_PAUSE_SECONDS)


def in_time() -> asyncio.Timeout:
    """Ends a block that hangs: TimeoutError at the limit."""
    return asyncio.timeout(LIMIT_SECONDS)


def is_ok(answer: httpx.Response) -> bool:
    """What most answers are waited for: a status of 200."""
    return answer.status_code == 200


def _failure(what: str, seconds: float, last: object) -> str:
    return f"not within {seconds:g} s: {what or 'what was waited for'}; last: {last!r}"
