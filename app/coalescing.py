"""Work that is cheaper done together: what is asked for while some of it is under way is done next, in one go."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class Coalescer(Generic[Asked, Answer]):
    """One `work` at a time, on up to `most` of what was asked for; it answers in the order of its argument.

    Nothing is kept: every answer was begun after its question had come. What `work` raises is told to those it worked for;
    with `fails_all`, to everybody who waits by then, who would only wait for the same.
    """

    def __init__(
        self, work: Callable[[list[Asked]], Awaitable[Sequence[Answer]]], *, most: int, fails_all: bool = False
    ) -> None:
        self._work = work
        self._most = most
        self._fails_all = fails_all
        self._waiting: list[tuple[Asked, asyncio.Future[Answer]]] = []
        self._working: asyncio.Task[None] | None = None

    async def ask(self, asked: Asked) -> Answer:
        """The answer to one question. Raises as `work` does."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, answer))
        if self._working is None:
            self._working = asyncio.create_task(self._work_on())
        return await answer

    async def _work_on(self) -> None:
        try:
            while there := [(asked, answer) for asked, answer in self._waiting if not answer.done()]:
                await self._work_once(there)
        finally:
            self._waiting, self._working = [], None

    async def _work_once(self, there: list[tuple[Asked, asyncio.Future[Answer]]]) -> None:
        taken, self._waiting = there[: self._most], there[self._most :]
        try:
            found = await self._work([asked for asked, _ in taken])
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
