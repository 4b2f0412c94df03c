"""The changes to running batch requests inside vLLM's scheduler: freeze for a step, evict.

Only this module, `hiding` and vLLM change the queues; `scheduler` decides when.
"""

from collections import Counter
from dataclasses import dataclass
from time import monotonic
from typing import Any

from vllm.v1.core.sched.interface import PauseState
from vllm.v1.request import RequestStatus

from .control_page import Commands, Report
from .hiding import Hiding
from .lora_places import LoraPlaces
from .request_class import BATCH_PRIORITY

FROZEN_SECONDS = 30.0  # while memory is short, a request that is frozen for longer is evicted
MAX_EVICTIONS = 3  # after so many evictions a request waits until there is no synchronous request


@dataclass(slots=True)
class Load:
    """The requests in the scheduler, by class and by the work they need; oldest first."""

    sync: list[Any]
    decodes: list[Any]
    prefills: list[Any]
    waiting: list[Any]  # synchronous and ready to run
    blocked: list[Any]  # synchronous and not ready: a grammar is compiled, a KV cache is loaded, input is awaited

    @property
    def present(self) -> bool:
        """Whether there is any synchronous request."""
        return bool(self.sync or self.waiting or self.blocked)

    @property
    def encoding(self) -> bool:
        """Whether a synchronous request may need the encoder, as images do."""
        return any(r.has_encoder_inputs for r in self.waiting) or any(
            r.has_encoder_inputs and r.is_prefill_chunk for r in self.sync
        )


class Preemption(Hiding):
    """A mixin before a scheduler class."""

    report: Report

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._frozen: dict[Any, float] = {}  # the second since which each request is frozen
        self._worn: set[Any] = set()  # requests that were evicted MAX_EVICTIONS times

    def _classified(self) -> Load:
        sync, decodes, prefills = [], [], []
        for r in self.running:
            if r.priority < BATCH_PRIORITY:
                sync.append(r)
            elif r.is_prefill_chunk:
                prefills.append(r)
            else:
                decodes.append(r)
        ready: list[Any] = []
        blocked: list[Any] = []
        for r in self._waiting_sync():
            (ready if self._is_ready(r) else blocked).append(r)
        return Load(sync, decodes, prefills, ready, blocked)

    def _is_ready(self, r: Any) -> bool:
        """Whether vLLM would admit the waiting request if it had room. vLLM itself asks only when a slot is free."""
        if self._pause_state is not PauseState.UNPAUSED:
            return False
        if r.status == RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR:
            return r.structured_output_request is not None and r.structured_output_request.grammar is not None
        if r.status == RequestStatus.WAITING_FOR_REMOTE_KVS:
            return r.request_id in self.finished_recving_kv_req_ids
        return not self._is_blocked_waiting_status(r.status)

    def _want(self, r: Any) -> int:
        """Tokens that vLLM would give the request in this step. Outputs in flight count as computed."""
        return int(max(1, r.num_tokens_with_spec + r.num_output_placeholders - r.num_computed_tokens))

    # Freeze

    def _freeze(self, requests: list[Any], now: float) -> None:
        """Leave them out of the next call. vLLM uses the same field for pipelines, so it is raised and never lowered."""
        step = self.current_step + 2
        for r in requests:
            if r.next_decode_eligible_step < step:  # noqa: PLR1730  # max() costs twice the time, 256 times a step
                r.next_decode_eligible_step = step
        if self.num_spec_tokens:
            self._forget_drafts(requests)
        since = self._frozen
        self._frozen = {r: since.get(r, now) for r in requests}
        self.report.freezes += len(requests)

    def _forget_drafts(self, requests: list[Any]) -> None:
        """Asynchronous scheduling marks drafts by -1, and the model runner keeps the drafts themselves for one step only.

        After a step without the request it would compute the -1.
        """
        for r in requests:
            if r.spec_token_ids and r.spec_token_ids[0] < 0:
                r.spec_token_ids = []

    # Evict

    def _freeable(self, r: Any) -> bool:
        """Whether the blocks of the request are free at once; a KV connector may still write to them."""
        return not self.vllm.tells_freeable or self._request_blocks_can_be_freed(r)

    def _stuck(self, frozen: list[Any], commands: Commands, now: float) -> list[Any]:
        """The request to evict while memory is short: of those frozen for long, the one with the fewest computed tokens."""
        if self.kv_cache_manager.usage <= 1 - commands.kv_reserve:
            return []
        since = self._frozen
        old = [r for r in frozen if now - since.get(r, now) > FROZEN_SECONDS and self._freeable(r)]
        return [min(old, key=lambda r: r.num_computed_tokens)] if old else []

    def _victims(self, load: Load) -> tuple[list[Any], bool, list[Any]]:
        """Which batch requests to evict for the waiting synchronous ones, and whether the first of these will fit then.

        They are the fewest that make room, those with few computed tokens first. The third list has the requests to freeze
        because room is still missing: their blocks can be freed once the steps in flight have ended, and not before.
        """
        batch = load.decodes + load.prefills
        victims, misplaced = self._misplaced(load)
        free_slots = getattr(self, self.vllm.slots) - len(load.sync) - len(batch) - self.num_waiting_for_streaming_input
        free_blocks = self.kv_cache_manager.block_pool.get_num_free_blocks() - self.kv_cache_manager.watermark_blocks
        shared: Counter[int] = Counter()
        free_slots, free_blocks = free_slots + len(victims), free_blocks + sum(self._freed(r, shared) for r in victims)
        gone = {*victims, *misplaced}
        rest = sorted(
            (r for r in batch if r not in gone),
            key=lambda r: (r.num_preemptions >= MAX_EVICTIONS, r.num_computed_tokens),
        )
        spare = [r for r in rest if self._freeable(r)]
        slots = blocks = tokens = taken = 0
        for r in load.waiting:
            if tokens >= self.max_num_scheduled_tokens:
                break  # not in this step
            slots, tokens = slots + 1, tokens + self._want(r)
            blocks += self._blocks_needed(r, free_blocks - blocks)
            more = taken
            while (slots > free_slots or blocks > free_blocks) and more < len(spare):
                free_slots, free_blocks = free_slots + 1, free_blocks + self._freed(spare[more], shared)
                more += 1
            if slots > free_slots or blocks > free_blocks:  # this one would not fit even then
                short = slots - free_slots, blocks - free_blocks
                return victims + spare[:taken], slots > 1, misplaced + self._awaited(rest, short, shared)
            taken = more
        return victims + spare[:taken], True, misplaced

    def _awaited(self, batch: list[Any], short: tuple[int, int], shared: Counter[int]) -> list[Any]:
        """The first requests whose slots and blocks would be enough if they could be freed; none if all are not enough."""
        found: list[Any] = []
        slots, blocks = short
        for r in batch:
            if self._freeable(r):
                continue
            found.append(r)
            slots, blocks = slots - 1, blocks - self._freed(r, shared)
            if slots <= 0 and blocks <= 0:
                return found
        return []

    def _misplaced(self, load: Load) -> tuple[list[Any], list[Any]]:
        """Batch requests that hold what a synchronous one needs and cannot get otherwise: a LoRA's place, the encoder cache.

        The second list has those to freeze: they can be evicted once the steps in flight have ended.
        """
        places = self._lora_places(load)
        found = [r for r in load.decodes + load.prefills if not places.admitted(r)] if places else []
        if load.encoding:
            found += [r for r in load.prefills if r.has_encoder_inputs and r not in found]
        now = [r for r in found if self._freeable(r)]
        return now, [r for r in found if r not in now]

    def _lora_places(self, load: Load) -> LoraPlaces | None:
        if self.lora_config is None:
            return None
        return LoraPlaces(self.lora_config.max_loras, load.sync + load.waiting + load.blocked)

    def _blocks_needed(self, r: Any, free: int) -> int:
        """KV blocks that the waiting request needs. If they are more than `free`, those are left out that others already use."""
        needed = self._request_remaining_blocks(r)
        manager = self.kv_cache_manager
        if needed <= free or r.num_computed_tokens or not manager.enable_caching or r.skip_reading_prefix_cache:
            return int(needed)
        hit = manager.coordinator.find_longest_cache_hit(r.block_hashes, r.num_tokens - 1)[0]
        return int(needed) - sum(block.ref_cnt > 0 and not block.is_null for group in hit for block in group)

    def _freed(self, r: Any, shared: Counter[int]) -> int:
        """KV blocks that are free once the request is evicted. `shared`: how many victims use each block so far."""
        freed = 0
        for group in self.kv_cache_manager.get_blocks(r.request_id).blocks:
            for block in group:
                shared[block.block_id] += 1
                freed += shared[block.block_id] == block.ref_cnt and not block.is_null
        return freed

    def _evict(self, victims: list[Any]) -> None:
        gone = set(victims)
        self.running = [r for r in self.running if r not in gone]
        for r in victims:
            if self.vllm.marks_stale_output:
                self._preempt_request(r, monotonic(), drop_stale_output=self.requires_kv_delivery)
            else:
                self._preempt_request(r, monotonic())
            if r.num_preemptions >= MAX_EVICTIONS:
                self._worn.add(r)
        self.report.evictions += len(victims)

    # Hide

    def _hide_unfit(self, load: Load) -> None:
        """Hide the batch requests that must not start beside the present synchronous ones, or that have no LoRA place."""
        self._worn = {r for r in self._worn if r.request_id in self.requests}
        places, beside = self._lora_places(load), load.present
        if places:
            for r in self.running:
                places.admitted(r)
        elif not beside or not (self._worn or self.max_num_encoder_input_tokens):
            return
        worn = self._worn
        self._hide_some(
            lambda r: (
                (beside and (r in worn or r.has_encoder_inputs)) or (places is not None and not places.admitted(r))
            )
        )
