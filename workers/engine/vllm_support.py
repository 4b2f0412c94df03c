"""Whether the harvest scheduler may run in this vLLM: a supported version with every attribute that the scheduler uses."""

from collections.abc import Iterable

import vllm
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.request_queue import SchedulingPolicy
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from .vllm_versions import NEWEST, SUPPORTED, Differences, public

_SCHEDULER = (
    "_is_blocked_waiting_status",
    "_pause_state",
    "_preempt_request",
    "_request_remaining_blocks",
    "block_size",
    "current_step",
    "finished_recving_kv_req_ids",
    "kv_cache_manager.block_pool.get_num_free_blocks",
    "kv_cache_manager.coordinator.find_longest_cache_hit",
    "kv_cache_manager.enable_caching",
    "kv_cache_manager.get_blocks",
    "kv_cache_manager.usage",
    "kv_cache_manager.watermark_blocks",
    "lora_config",
    "max_num_scheduled_tokens",
    "need_mamba_block_aligned_split",
    "num_spec_tokens",
    "num_waiting_for_streaming_input",
    "parallel_config.data_parallel_index",
    "policy",
    "requests",
    "running",
    "waiting",
)
_REQUEST = (
    "has_encoder_inputs",
    "is_prefill_chunk",
    "lora_request",
    "next_decode_eligible_step",
    "num_computed_tokens",
    "num_output_placeholders",
    "num_preemptions",
    "num_prompt_tokens",
    "num_tokens",
    "num_tokens_with_spec",
    "priority",
    "request_id",
    "spec_token_ids",
    "status",
    "structured_output_request",
)


def differences(version: str | None = None) -> Differences:
    """What is different in this vLLM; of an unsupported version, the newest's."""
    return SUPPORTED.get(public(version or vllm.__version__), NEWEST)


def objections(scheduler: Scheduler, version: str | None = None) -> list[str]:
    """Why vLLM must schedule alone; empty if the harvest scheduler may run."""
    version = public(version or vllm.__version__)
    if version not in SUPPORTED:
        return [f"vLLM {version} is none of {', '.join(SUPPORTED)}"]
    names = SUPPORTED[version]
    used = [*_SCHEDULER, names.second_queue, names.slots]
    if names.tells_freeable:
        used.append("_request_blocks_can_be_freed")
    request = Request("probe", [1], SamplingParams(), None)
    found = [f"no {name}" for name in (*_missing(scheduler, used), *_missing(request, _REQUEST))]
    return found or _settings(scheduler, names)


def _settings(scheduler: Scheduler, names: Differences) -> list[str]:
    """Settings of the engine beside which the harvest scheduler must not run."""
    config, parallel = scheduler.scheduler_config, scheduler.parallel_config
    refused = {
        "the scheduling policy is not priority": scheduler.policy is not SchedulingPolicy.PRIORITY,
        "chunked prefill is off": not config.enable_chunked_prefill,
        "prefill_schedule_interval is above 1": config.prefill_schedule_interval > 1,
        # It ends prefill chunks at block boundaries that depend on the step's token budget, which the harvest lowers.
        "a Mamba cache in mode align was not tested": scheduler.need_mamba_block_aligned_split,
        # Before 0.31 a request whose KV cache is loading could wait for ever behind one that waits for its memory.
        "KV connectors need vLLM 0.31": scheduler.connector is not None and not names.connectors,
        # With more than two steps in flight, an evicted request could compute a token twice.
        "pipeline parallelism needs vLLM 0.27": parallel.pipeline_parallel_size > 1 and not names.marks_stale_output,
    }
    return [text for text, refuse in refused.items() if refuse]


def _missing(owner: object, paths: Iterable[str]) -> list[str]:
    missing = []
    for path in paths:
        value = owner
        for name in path.split("."):
            if not hasattr(value, name):
                missing.append(path)
                break
            value = getattr(value, name)
    return missing
