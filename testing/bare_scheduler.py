"""vLLM's own scheduler without an engine: no weights, no worker, no clock.

The caller takes the part of the model runner. With the synchronous class it finishes a step before it schedules the next
one. With `AsyncScheduler` it schedules step N + 1 before it finishes step N, as the engine does.
"""

import functools
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.pooling_params import PoolingParams
from vllm.sampling_params import SamplingParams, StructuredOutputsParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from workers.engine.request_class import BATCH_PRIORITY, SYNC_PRIORITY

SYNC, BATCH = SYNC_PRIORITY, BATCH_PRIORITY
BLOCK = 16  # tokens in a KV block
MAX_LEN = 16_384
TOKEN = 5  # every output token is this one

TINY_LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 32_000,
    "max_position_embeddings": MAX_LEN,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10_000.0,
    "torch_dtype": "float16",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}


@functools.cache
def _tiny_model() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="tiny-llama-")  # removed at exit
    Path(folder.name, "config.json").write_text(json.dumps(TINY_LLAMA))
    return folder


def tiny_model_dir() -> str:
    """A folder with nothing but a config.json: enough for the scheduler and for `load_format="dummy"`."""
    return _tiny_model().name


def _model_config() -> ModelConfig:
    model = tiny_model_dir()
    return ModelConfig(
        model=model,
        tokenizer=model,
        skip_tokenizer_init=True,
        dtype="float16",
        max_model_len=MAX_LEN,
        enforce_eager=True,
    )


def build(
    cls: type[Scheduler] = Scheduler,
    *,
    policy: Literal["fcfs", "priority"] = "priority",
    kv_blocks: int = 25_000,
    max_seqs: int = 256,
    step_tokens: int = 2048,
    long_prefill: int = 0,
    prefix_cache: bool = False,
    watermark: float = 0.0,
    chunked_prefill: bool = True,
    prefill_interval: int = 1,
    asynchronous: bool | None = None,
    **features: Any,
) -> Scheduler:
    """A scheduler of class `cls`. Scheduling is asynchronous if `cls` is an AsyncScheduler, unless `asynchronous` is given.

    `features`: more parts of the engine's configuration, for example a `lora_config`.
    """
    cache = CacheConfig(block_size=BLOCK, gpu_memory_utilization=0.9, enable_prefix_caching=prefix_cache)
    scheduling = SchedulerConfig(
        max_num_seqs=max_seqs,
        max_num_batched_tokens=step_tokens,
        max_model_len=MAX_LEN,
        enable_chunked_prefill=chunked_prefill,
        prefill_schedule_interval=prefill_interval,
        policy=policy,
        long_prefill_token_threshold=long_prefill,
        is_encoder_decoder=False,
        watermark=watermark,
    )
    config = VllmConfig(
        model_config=_model_config(),
        scheduler_config=scheduling,
        cache_config=cache,
        device_config=DeviceConfig(device="cpu"),
        **features,
    )
    # vLLM switches it off on a CPU.
    scheduling.async_scheduling = issubclass(cls, AsyncScheduler) if asynchronous is None else asynchronous
    return _with_blocks(cls, config, kv_blocks)


@functools.cache
def _block_hasher() -> Any:
    init_none_hash(sha256)
    return get_request_block_hasher(BLOCK, sha256)


def _with_blocks(cls: type[Scheduler], config: VllmConfig, kv_blocks: int) -> Scheduler:
    """A scheduler whose KV cache has so many blocks."""
    layer = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=16, dtype=torch.float16)
    kv = KVCacheConfig(num_blocks=kv_blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], layer)])
    config.cache_config.num_gpu_blocks = kv_blocks
    return cls(
        vllm_config=config,
        kv_cache_config=kv,
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK,
        log_stats=False,
    )


def request(
    rid: str,
    prompt: int | Sequence[int],
    output: int,
    priority: int,
    arrival: float,
    *,
    prefix_cache: bool = False,
    pooling: PoolingParams | None = None,
    structured: StructuredOutputsParams | None = None,
    **fields: Any,
) -> Request:
    """A request that will produce exactly `output` tokens, or with `pooling` one vector.

    `prompt`: a number of tokens, or the tokens. If the scheduler was built with `prefix_cache`, set it here too, and give each
    request different tokens. `fields`: more arguments of vLLM's Request.
    """
    sampling = SamplingParams(max_tokens=output, ignore_eos=True, structured_outputs=structured)
    return Request(
        rid,
        [1] * prompt if isinstance(prompt, int) else list(prompt),
        None if pooling else sampling,
        pooling,
        arrival_time=arrival,
        priority=priority,
        block_hasher=_block_hasher() if prefix_cache else None,
        **fields,
    )


def finish_step(scheduler: Scheduler, out: SchedulerOutput, loaded: KVConnectorOutput | None = None) -> list[str]:
    """Give the result of step `out` to the scheduler, as a model runner does. Returns the ids that got a token.

    All drafts of a speculative step are accepted. `loaded`: what a KV connector reports.
    """
    computed = {new.req_id: new.num_computed_tokens for new in out.scheduled_new_reqs}
    cached = out.scheduled_cached_reqs
    computed.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    ids = list(out.num_scheduled_tokens)
    live = [scheduler.requests.get(i) for i in ids]
    done = [
        r is not None and computed[i] + out.num_scheduled_tokens[i] >= r.num_tokens
        for i, r in zip(ids, live, strict=True)
    ]
    drafts = out.scheduled_spec_decode_tokens
    pooled = [bool(r and r.pooling_params) for r in live]
    scheduler.update_from_output(
        out,
        ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={rid: index for index, rid in enumerate(ids)},
            sampled_token_ids=[
                [TOKEN] * (1 + len(drafts.get(i, ()))) if d and not p else []
                for i, d, p in zip(ids, done, pooled, strict=True)
            ],
            pooler_output=[torch.zeros(1) if d and p else None for d, p in zip(done, pooled, strict=True)],
            kv_connector_output=loaded,
        ),
    )
    return [i for i, d in zip(ids, done, strict=True) if d]
