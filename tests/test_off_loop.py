"""Where work is done that takes longer the more was sent."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from app import off_loop
from testing.waiting import LIMIT_SECONDS

LARGE = "a" * (off_loop.SMALL_BYTES + 1)


@pytest.mark.parametrize(
    ("given", "in_thread"),
    [
        ("a", False),
        (b"a", False),
        ({"a": [1, None, ("b",)]}, False),
        ({"a": LARGE}, True),
        ({LARGE: 1}, True),
        (LARGE.encode(), True),
        ([[1, ("a", {})]] * off_loop.SMALL_BYTES, True),
    ],
)
async def test_what_is_large_is_done_in_a_thread_and_other_work_goes_on(given: Any, in_thread: bool) -> None:
    go_on = threading.Event()

    def work(loop_thread: int) -> bool:
        return threading.get_ident() != loop_thread and go_on.wait(LIMIT_SECONDS)

    async def other() -> None:
        go_on.set()

    task = asyncio.create_task(other())
    assert await off_loop.done(given, work, threading.get_ident()) is in_thread
    await task


class Huge(list[Any]):
    def __len__(self) -> int:
        return off_loop.SMALL_BYTES + 1

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("it was looked at")


async def test_what_is_large_is_not_looked_at() -> None:
    assert await off_loop.done({"a": Huge()}, threading.get_ident) != threading.get_ident()


async def test_a_search_for_sensitive_values_is_done_in_a_thread_sooner() -> None:
    text = "a" * (off_loop.SEARCHED_BYTES + 1)
    assert await off_loop.done(text, threading.get_ident) == threading.get_ident()
    assert await off_loop.searched([text], threading.get_ident) != threading.get_ident()


async def test_an_error_in_a_thread_is_that_of_the_call() -> None:
    with pytest.raises(ZeroDivisionError):
        await off_loop.done(LARGE, lambda: 1 / 0)
