"""Runs requests in groups: requests that arrive while one group is processed form the next group."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Request = TypeVar("Request")
Answer = TypeVar("Answer")


class Coalescer(Generic[Request, Answer]):
    """Calls `work` with up to `most` requests at a time, never twice at once. It returns the answers in the same order.

    Nothing is cached: `work` starts after a request has arrived. An error of `work` is raised for the requests of its group;
    with `fails_all`, also for all requests that wait then, because they would fail for the same reason.
    """

    def __init__(
        self, work: Callable[[list[Request]], Awaitable[Sequence[Answer]]], *, most: int, fails_all: bool = False
    ) -> None:
        self._work = work
        self._most = most
        self._fails_all = fails_all
        self._waiting: list[tuple[Request, asyncio.Future[Answer]]] = []
        self._working: asyncio.Task[None] | None = None

    async def ask(self, request: Request) -> Answer:
        """The answer to one request. Raises the errors of `work`."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answer))
        if self._working is None:
            self._working = asyncio.create_task(self._work_on())
        return await answer

    async def _work_on(self) -> None:
        try:
            while pending := [(request, answer) for request, answer in self._waiting if not answer.done()]:
                await self._work_once(pending)
        finally:
            self._waiting, self._working = [], None

    async def _work_once(self, pending: list[tuple[Request, asyncio.Future[Answer]]]) -> None:
        taken, self._waiting = pending[: self._most], pending[self._most :]
        try:
            found = await self._work([request for request, _ in taken])
        except Exception as error:
            failed = taken
            if self._fails_all:
                failed, self._waiting = taken + self._waiting, []
            for _, answer in failed:
                if not answer.done():
                    answer.set_exception(error)
            return
        for (_, answer), one in zip(taken, found, strict=True):
            if not answer.done():
                answer.set_result(one)
