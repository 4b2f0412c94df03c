"""The two sizes of the GPU track: an 8B model on a GPU, and the same script on a CPU to try it out.

Lengths and rates are those of llm-d/llm-d-batch-gateway#491, as far as they are known.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from benchmarks.colocation.workloads import Arrival

NUMBER_DIGITS = 7  # of the number that a prompt begins with; each digit is a token


@dataclass(frozen=True, slots=True)
class GpuSize:
    """`shape`: of the model, as in its config.json. Lengths are tokens, rates requests per second.

    A cycle is one turn of `turn_seconds` at `rates[0]`, and one at `rates[1]`.
    """

    name: str
    shape: dict[str, Any]
    slots: int
    step_tokens: int
    flags: tuple[str, ...]
    env: dict[str, str]
    sync_prompt: int
    sync_output: int
    rates: tuple[float, float]
    turn_seconds: float
    warm_seconds: float
    batch_prompt: int
    batch_mean: float
    batch_spread: float
    batch_longest: int
    batch_items: int
    context: int

    def phases(self) -> Iterator[tuple[str, float, float]]:
        """(workload, begin, end) of each turn, and of the whole cycle."""
        yield "burst", 0.0, self.turn_seconds
        yield "calm", self.turn_seconds, 2 * self.turn_seconds
        yield "cycle", 0.0, 2 * self.turn_seconds

    def arrivals(self, cycle: int) -> list[Arrival]:
        """The arrivals of a cycle, a Poisson process in each turn; the same for every arm."""
        chance, listed = Random(f"turns {cycle}"), []
        for turn, rate in enumerate(self.rates):
            at = chance.expovariate(rate)
            while at < self.turn_seconds:
                words = max(1, self.sync_prompt - NUMBER_DIGITS)
                listed.append(Arrival(turn * self.turn_seconds + at, words, self.sync_output))
                at += chance.expovariate(rate)
        return listed

    def batch_lengths(self, cycle: int) -> list[int]:
        """The output lengths of the batch requests of a cycle: lognormal, cut at the longest."""
        variance = math.log(1 + (self.batch_spread / self.batch_mean) ** 2)
        middle = math.log(self.batch_mean) - variance / 2
        chance = Random(f"batch {cycle}")
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
SIZES = {
    "8b": GpuSize(
        name="8b",
        shape=LLAMA_3_8B,
        slots=1024,
        step_tokens=8192,  # vLLM's own default for a server on a GPU of 70 GiB or more
        flags=("--dtype", "bfloat16", "--gpu-memory-utilization", "0.9"),
        env={},
        sync_prompt=512,
        sync_output=128,
        rates=(15.0, 1.0),
        turn_seconds=20.0,
        warm_seconds=8.0,
        batch_prompt=512,
        batch_mean=500.0,
        batch_spread=400.0,
        batch_longest=2048,
        batch_items=4000,
        context=4096,
    ),
    "small": GpuSize(
        name="small",
        shape=SMOLLM2_135M,
        slots=32,
        step_tokens=256,
        flags=("--dtype", "{cpu_dtype}", "--enforce-eager"),
        env={"VLLM_CPU_KVCACHE_SPACE": "2"},
        sync_prompt=24,
        sync_output=8,
        rates=(3.0, 0.5),
        turn_seconds=8.0,
        warm_seconds=4.0,
        batch_prompt=40,
        batch_mean=40.0,
        batch_spread=32.0,
        batch_longest=160,
        batch_items=800,
        context=1024,
    ),
}


def differences(size: GpuSize, cycles: dict[str, int]) -> list[str]:
    """How a run differs from llm-d-batch-gateway#491, one sentence each."""
    counted = ", ".join(f"{arm} {count}" for arm, count in cycles.items()) or "none"
    listed = [
        f"Turns of {size.turn_seconds:.0f} s instead of 90 s.",
        f"Cycles per arm: {counted}; the original has 10, of which 2 warm up.",
        f"Each visit of an arm warms up for {size.warm_seconds:.0f} s, which are not counted.",
        "One engine on one machine, with weights that are not trained (`--load-format dummy`) and another model.",
        "Arrivals are Poisson; the original does not say how its requests are spread.",
        f"The backlog ({size.batch_items} batch requests per cycle) does not run dry; the original has 3 batches of 1,000.",
        "Batch throughput is that of the engine's own counter, without the tokens of synchronous requests.",
    ]
    if size.name != "8b":
        lengths = f"{size.sync_prompt} in and {size.sync_output} out, batch {size.batch_prompt} in and {size.batch_mean:.0f} out"
        listed.append(
            f"Reduced size, to try the script out: {lengths}, rates {size.rates}, {size.slots} slots, on a CPU."
        )
    return listed
