"""The changes to batch requests inside vLLM's scheduler: freeze for a step, evict, hide for a call.

Only this module and vLLM change the queues; workers.engine.scheduler decides when.
"""

from dataclasses import dataclass
from itertools import chain, takewhile
from typing import TYPE_CHECKING, Any

from vllm.v1.core.sched.request_queue import create_request_queue
from vllm.v1.core.sched.scheduler import Scheduler

from app import clock
from app.engines.requests import BATCH_PRIORITY
from workers.engine.control_page import Commands, Report

if TYPE_CHECKING:  # for the type checker the mixin is a scheduler
    Base = Scheduler
else:
    Base = object

FROZEN_SECONDS = 30.0  # while memory is short, a request that is frozen for longer is evicted
MAX_EVICTIONS = 3  # after so many evictions a request waits until there is no synchronous request


@dataclass(slots=True)
class Load:
    """The requests in the scheduler, by class and by the work they need; oldest first."""

    sync: list[Any]
    decodes: list[Any]
    prefills: list[Any]
    waiting: list[Any]  # synchronous and ready to run
    present: bool  # whether there is any synchronous request, even a blocked one


class Preemption(Base):
    """A mixin before a scheduler class."""

    report: Report

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._frozen: dict[Any, float] = {}  # the second since which each request is frozen
        self._worn: set[Any] = set()  # requests that were evicted MAX_EVICTIONS times

    def _waiting_sync(self) -> list[Any]:
        """Synchronous requests that are not running. They come first, because the queues are ordered by priority."""
        first = (
            takewhile(lambda r: r.priority < BATCH_PRIORITY, q) for q in (self.kv_holding_waiting, self.waiting) if q
        )
        return list(chain.from_iterable(first))

    def _want(self, r: Any) -> int:
        """Tokens that vLLM would give the request in this step. Outputs in flight count as computed."""
        return int(max(1, r.num_tokens_with_spec + r.num_output_placeholders - r.num_computed_tokens))

    def _freeze(self, requests: list[Any], now: float) -> None:
        """Leave them out of the next call. vLLM uses the same field for pipelines, so it is raised and never lowered."""
        step = self.current_step + 2
        for r in requests:
            if r.next_decode_eligible_step < step:  # noqa: PLR1730  # max() costs twice the time, 256 times a step
                r.next_decode_eligible_step = step
        since = self._frozen
        self._frozen = {r: since.get(r, now) for r in requests}
        self.report.freezes += len(requests)

    def _stuck(self, frozen: list[Any], commands: Commands, now: float) -> list[Any]:
        """The request to evict while memory is short: of those frozen for long, the one with the fewest computed tokens."""
        if self.kv_cache_manager.usage <= 1 - commands.kv_reserve:
            return []
        since = self._frozen
        old = [r for r in frozen if now - since.get(r, now) > FROZEN_SECONDS and self._request_blocks_can_be_freed(r)]
        return [min(old, key=lambda r: r.num_computed_tokens)] if old else []

    def _victims(self, load: Load) -> list[Any]:
        """The fewest batch requests, those with few computed tokens first, that make room for the waiting synchronous ones."""
        pool = self.kv_cache_manager.block_pool
        free_blocks = pool.get_num_free_blocks() - self.kv_cache_manager.watermark_blocks
        running = len(load.sync) + len(load.decodes) + len(load.prefills)
        free_slots = self.max_num_active_reqs - running - self.num_waiting_for_streaming_input
        spare = [r for r in load.decodes + load.prefills if self._request_blocks_can_be_freed(r)]
        spare.sort(key=lambda r: (r.num_preemptions >= MAX_EVICTIONS, r.num_computed_tokens))
        victims: list[Any] = []
        slots = blocks = tokens = 0
        for r in load.waiting:
            if tokens >= self.max_num_scheduled_tokens:
                break  # not in this step
            slots, blocks, tokens = slots + 1, blocks + self._request_remaining_blocks(r), tokens + self._want(r)
            taken = len(victims)
            while (slots > free_slots or blocks > free_blocks) and taken < len(spare):
                free_slots, free_blocks = (
                    free_slots + 1,
                    free_blocks + spare[taken].num_computed_tokens // self.block_size,
                )
                taken += 1
            if slots > free_slots or blocks > free_blocks:
                break  # it would not fit even then
            victims = spare[:taken]
        return victims

    def _evict(self, victims: list[Any]) -> None:
        gone = set(victims)
        self.running = [r for r in self.running if r not in gone]
        for r in victims:
            self._preempt_request(r, clock.monotonic())
            if r.num_preemptions >= MAX_EVICTIONS:
                self._worn.add(r)
        self.report.evictions += len(victims)

    def _hide(self) -> None:
        """Leave only synchronous requests in the waiting queues, during this call."""
        self.waiting = self._sync_part(self.waiting)
        self.kv_holding_waiting = self._sync_part(self.kv_holding_waiting)

    def _sync_part(self, queue: Any) -> Any:
        part = create_request_queue(self.policy)
        while queue and queue.peek_request().priority < BATCH_PRIORITY:
            part.add_request(queue.pop_request())
        return part

    def _hide_worn(self) -> None:
        self._worn = {r for r in self._worn if r.request_id in self.requests}
        whole = self.waiting
        self.waiting = create_request_queue(self.policy)
        for r in whole:
            if r not in self._worn:
                self.waiting.add_request(r)
        whole.remove_requests(set(self.waiting))

    def _show(self, queues: tuple[Any, Any]) -> None:
        """Put the hidden requests back: what is left in the visible queue returns to the original one."""
        waiting, holding = queues
        if self.waiting is not waiting:
            waiting.prepend_requests(self.waiting)
            self.waiting = waiting
        if self.kv_holding_waiting is not holding:
            holding.prepend_requests(self.kv_holding_waiting)
            self.kv_holding_waiting = holding
