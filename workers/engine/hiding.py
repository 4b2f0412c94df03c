"""Waiting batch requests that may not join a step are removed from vLLM's queues during the call.

vLLM has two waiting queues: `waiting`, and a second one whose name and meaning depend on the version. Both are ordered by
priority, so the synchronous requests come first.
"""

from collections.abc import Callable
from itertools import chain, takewhile
from typing import TYPE_CHECKING, Any

from vllm.v1.core.sched.request_queue import create_request_queue
from vllm.v1.core.sched.scheduler import Scheduler

from .request_class import BATCH_PRIORITY
from .vllm_support import differences

if TYPE_CHECKING:  # for the type checker the mixin is a scheduler
    Base = Scheduler
else:
    Base = object


class Hiding(Base):
    """A mixin before a scheduler class."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.vllm = differences()

    @property
    def second_queue(self) -> Any:
        """vLLM's waiting queue beside `waiting`."""
        return getattr(self, self.vllm.second_queue)

    @second_queue.setter
    def second_queue(self, queue: Any) -> None:
        setattr(self, self.vllm.second_queue, queue)

    def _waiting_sync(self) -> list[Any]:
        """Synchronous requests that are not running."""
        first = (takewhile(lambda r: r.priority < BATCH_PRIORITY, q) for q in (self.second_queue, self.waiting) if q)
        return list(chain.from_iterable(first))

    def _hide(self, *, loading: bool = True) -> None:
        """Leave only synchronous requests in the queues. `loading` False: batch requests that hold blocks stay."""
        self.waiting = self._sync_part(self.waiting)
        if loading or not self.vllm.second_queue_holds_blocks:
            self.second_queue = self._sync_part(self.second_queue)

    def _sync_part(self, queue: Any) -> Any:
        part = create_request_queue(self.policy)
        while queue and queue.peek_request().priority < BATCH_PRIORITY:
            part.add_request(queue.pop_request())
        return part

    def _hide_some(self, hidden: Callable[[Any], bool]) -> None:
        """Leave out the batch requests for which `hidden` is true. It is asked in the order of the queues."""
        self.second_queue = self._shown_part(self.second_queue, hidden)
        self.waiting = self._shown_part(self.waiting, hidden)

    def _shown_part(self, queue: Any, hidden: Callable[[Any], bool]) -> Any:
        part = create_request_queue(self.policy)
        for r in queue:
            if r.priority < BATCH_PRIORITY or not hidden(r):
                part.add_request(r)
        queue.remove_requests(set(part))
        return part

    def _show(self, queues: tuple[Any, Any]) -> None:
        """Put the hidden requests back: what is left in a visible queue returns to the original one."""
        waiting, second = queues
        if self.waiting is not waiting:
            waiting.prepend_requests(self.waiting)
            self.waiting = waiting
        if self.second_queue is not second:
            second.prepend_requests(self.second_queue)
            self.second_queue = second
