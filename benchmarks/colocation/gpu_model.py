"""The two sizes of the GPU track, and their model without weights, which is made on the spot: it needs no hub.

`8b` is for one H100 or H200; `small` is for a CPU, to try the same script out. Lengths are those of
llm-d/llm-d-batch-gateway#491, as far as they are known. Each word of a benchmark prompt and each digit is one token, and every
token of the model has a text.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.prompts import WORDS

MODEL = "dummy-llama"
_SPECIAL = ("<unk>", "<s>", "</s>")
_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


@dataclass(frozen=True, slots=True)
class GpuSize:
    """`shape`: of the model, as in its config.json. Lengths are tokens. `*_seconds` are those of a piece, without its warm-up."""

    name: str
    shape: dict[str, Any]
    slots: int
    step_tokens: int
    context: int
    flags: tuple[str, ...]
    env: dict[str, str]
    sync_prompt: int
    sync_output: int
    batch_prompt: int
    batch_mean: float
    batch_spread: float
    batch_longest: int
    batch_items: int
    steps_seconds: float
    ramp_seconds: float
    turn_seconds: float
    warm_seconds: float

    def batch_lengths(self, seed: str) -> list[int]:
        """The output lengths of batch requests: lognormal, cut at the longest."""
        variance = math.log(1 + (self.batch_spread / self.batch_mean) ** 2)
        middle = math.log(self.batch_mean) - variance / 2
        chance = Random(f"batch {seed}")
        drawn = (chance.lognormvariate(middle, math.sqrt(variance)) for _ in range(self.batch_items))
        return [min(self.batch_longest, max(1, round(length))) for length in drawn]


LLAMA_3_8B = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
}
SMOLLM2_135M = {
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "rope_theta": 100000.0,
    "tie_word_embeddings": True,
}
# Nothing is compiled by Inductor, which takes minutes. Graphs of decode steps take seconds; without them the CPU that launches
# kernels would be what is measured, as 32 layers take longer to launch than to compute. Steps with prompts have no graph.
_COMPILATION = {
    "mode": 0,
    "cudagraph_mode": "FULL_DECODE_ONLY",
    "cudagraph_capture_sizes": [1, 2, 4, *range(8, 64, 8), *range(64, 256, 16), *range(256, 1025, 64)],
}
_ATTENTION = {"backend": "FLASH_ATTN", "flash_attn_version": 3}  # the kit has no FlashAttention 2
SIZES = {
    "8b": GpuSize(
        name="8b",
        shape=LLAMA_3_8B,
        slots=1024,
        step_tokens=8192,  # vLLM's own default for a server on a GPU of 70 GiB or more
        context=4096,
        flags=(
            *("--dtype", "bfloat16", "--gpu-memory-utilization", "0.9"),
            *("--compilation-config", json.dumps(_COMPILATION)),
            *("--attention-config", json.dumps(_ATTENTION)),
        ),
        # FlashInfer would compile its sampler, and the second model runner its Triton kernels.
        env={"VLLM_USE_FLASHINFER_SAMPLER": "0", "VLLM_USE_V2_MODEL_RUNNER": "0", "VLLM_USE_DEEP_GEMM": "0"},
        sync_prompt=512,
        sync_output=128,
        batch_prompt=512,
        batch_mean=500.0,
        batch_spread=400.0,
        batch_longest=2048,
        batch_items=3000,
        steps_seconds=30.0,
        ramp_seconds=45.0,
        turn_seconds=30.0,
        warm_seconds=8.0,
    ),
    "small": GpuSize(
        name="small",
        shape=SMOLLM2_135M,
        slots=32,
        step_tokens=256,
        context=1024,
        flags=("--dtype", "{cpu_dtype}", "--enforce-eager"),
        env={"VLLM_CPU_KVCACHE_SPACE": "2"},
        sync_prompt=24,
        sync_output=8,
        batch_prompt=40,
        batch_mean=40.0,
        batch_spread=32.0,
        batch_longest=160,
        batch_items=600,
        steps_seconds=16.0,
        ramp_seconds=18.0,
        turn_seconds=8.0,
        warm_seconds=3.0,
    ),
}


def make(folder: Path, size: GpuSize) -> Path:
    """Write the model's folder and a catalogue with `MODEL`. Returns the catalogue."""
    model = folder / MODEL
    model.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "max_position_embeddings": max(8192, size.context),
        "rms_norm_eps": 1e-5,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "bfloat16",
        **size.shape,
    }
    (model / "config.json").write_text(json.dumps(config, indent=1))
    _tokenizer(model, size.shape["vocab_size"], size.context)
    catalogue = folder / "models.toml"
    catalogue.write_text(_catalogue(model, size))
    return catalogue


def vocabulary(count: int) -> dict[str, int]:
    """`count` words and their ids."""
    words = [*_SPECIAL, *"0123456789", *sorted(WORDS)]
    return {word: number for number, word in enumerate([*words, *(f"t{n}" for n in range(len(words), count))])}


def _tokenizer(folder: Path, count: int, context: int) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel(vocabulary(count), unk_token=_SPECIAL[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits(individual_digits=True)]
    )
    tokenizer.add_special_tokens(list(_SPECIAL))
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": _SPECIAL[0],
        "bos_token": _SPECIAL[1],
        "eos_token": _SPECIAL[2],
        "model_max_length": context,
        "chat_template": _TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))


def _catalogue(model: Path, size: GpuSize) -> str:
    flags = ["--load-format", "dummy", *size.flags]
    env = {"HF_HUB_OFFLINE": "1", **size.env}
    pairs = ", ".join(f"{name} = {json.dumps(value)}" for name, value in env.items())
    return f"""[models."{MODEL}"]
context_window = {size.context}
capabilities = ["async_queue"]

[models."{MODEL}".launch]
model_path = {json.dumps(str(model.resolve()))}
max_num_seqs = {size.slots}
max_num_batched_tokens = {size.step_tokens}
flags = {json.dumps(flags)}
env = {{ {pairs} }}
"""
