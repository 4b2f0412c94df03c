"""Whether the harvest scheduler may run in this vLLM: a tested version with every attribute that the scheduler uses."""

from collections.abc import Iterable

import vllm
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.request_queue import SchedulingPolicy
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

TESTED = frozenset({"0.32.0"})

_SCHEDULER = (
    "_is_blocked_waiting_status",
    "_preempt_request",
    "_request_blocks_can_be_freed",
    "_request_remaining_blocks",
    "block_size",
    "current_step",
    "kv_cache_manager.block_pool.get_num_free_blocks",
    "kv_cache_manager.usage",
    "kv_cache_manager.watermark_blocks",
    "kv_holding_waiting",
    "max_num_active_reqs",
    "max_num_scheduled_tokens",
    "num_spec_tokens",
    "num_waiting_for_streaming_input",
    "parallel_config.data_parallel_index",
    "policy",
    "requests",
    "running",
    "waiting",
)
_REQUEST = (
    "is_prefill_chunk",
    "next_decode_eligible_step",
    "num_computed_tokens",
    "num_output_placeholders",
    "num_preemptions",
    "num_tokens",
    "num_tokens_with_spec",
    "priority",
    "request_id",
    "status",
)


def objections(scheduler: Scheduler, version: str | None = None) -> list[str]:
    """Why vLLM must schedule alone; empty if the harvest scheduler may run."""
    version = version or vllm.__version__
    request = Request("probe", [1], SamplingParams(), None)
    found = [] if version in TESTED else [f"vLLM {version} is none of {sorted(TESTED)}"]
    found += [f"no {name}" for name in (*_missing(scheduler, _SCHEDULER), *_missing(request, _REQUEST))]
    if getattr(scheduler, "policy", None) is not SchedulingPolicy.PRIORITY:
        found.append("the scheduling policy is not priority")
    return found


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
