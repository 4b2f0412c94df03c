"""The simulated engines: their sizes, and how long their steps take. Controllers have to learn the latter."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """An engine with `slots`, steps of at most `step_tokens`, and `kv_blocks` of KV cache. Times are in seconds.

    A step takes `overhead`, the roofline of reading the weights and of `per_token` arithmetic, which overlap but for a part,
    and `per_context` for each token computed before.
    """

    slots: int
    step_tokens: int
    kv_blocks: int
    overhead: float
    read_weights: float
    per_token: float
    overlap: float
    per_context: float

    def seconds(self, tokens: int, context: int) -> float:
        """Seconds of a step of `tokens` new tokens, with `context` tokens computed before."""
        compute = tokens * self.per_token
        roof = max(self.read_weights, compute) + self.overlap * min(self.read_weights, compute)
        return self.overhead + roof + context * self.per_context


# An 8B model in bf16 on one H100-class GPU, by roofline.
GPU = EngineProfile(256, 2048, 25_000, 3e-3, 6.4e-3, 32e-6, 0.15, 52e-9)

# By the name of a device: the same arithmetic, and an H200 reads memory 1.43 times as fast and has room for twice the context.
DEVICES = {"H100": GPU, "H200": replace(GPU, kv_blocks=51_000, read_weights=4.5e-3, per_context=36e-9)}


def of_device(name: str) -> EngineProfile:
    """The assumed profile of the device that NVML calls so; that of an H100 for others."""
    return next((profile for device, profile in DEVICES.items() if device in name), GPU)


# SmolLM2-135M on two cores, fitted to the figures of the engine track: a token takes 40 ms, 32 decodes and the prompts that
# they need take 80 ms.
SLOW = EngineProfile(32, 256, 6_000, 39.5e-3, 0.0, 0.55e-3, 0.0, 0.3e-6)
