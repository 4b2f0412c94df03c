"""The simulator's step times, fitted to the steps of a real engine, and how wrong they are.

A step is what vLLM's server sees of it: when it ended, the tokens that it computed, and the context that its requests held.
Prompts count with the step that completes them, so a prompt that was split over steps counts late.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.colocation.engine_profiles import EngineProfile
from workers.engine.step_stats_receiver import StepStats

Array = NDArray[np.float64]
LONGEST_SECONDS = 2.0  # a longer pause between two steps is no step
LEAST = 50  # steps of a fit
_KNEES = np.geomspace(16, 1024, 19)  # tokens whose arithmetic takes as long as reading the weights
_OVERLAPS = (0.0, 0.15, 0.3, 0.6, 1.0)
_CLIP = 0.5  # of a relative error: the pauses of a busy server are no trend


class Steps:
    """Tokens, context before the step, and seconds of each step that began on a busy engine. `decode`: without prompts."""

    def __init__(self, seen: Sequence[StepStats], kv_capacity: int) -> None:
        pairs = [
            (before, after)
            for before, after in pairwise(seen)
            if before.running and 0 < after.at - before.at < LONGEST_SECONDS and _tokens(after)
        ]
        self.tokens: Array = np.array([_tokens(after) for _, after in pairs], dtype=float)
        held = np.array([after.kv_usage * kv_capacity for _, after in pairs], dtype=float)
        self.context: Array = np.maximum(0.0, held - self.tokens)
        self.seconds: Array = np.array([after.at - before.at for before, after in pairs], dtype=float)
        self.decode: NDArray[np.bool_] = np.array([not after.prompt_tokens for _, after in pairs], dtype=bool)

    def __len__(self) -> int:
        return len(self.seconds)


def _tokens(step: StepStats) -> int:
    return step.prompt_tokens + step.generation_tokens


def predicted(profile: EngineProfile, steps: Steps) -> Array:
    """The seconds of each step by a profile."""
    compute = steps.tokens * profile.per_token
    read = profile.read_weights
    roof = np.maximum(read, compute) + profile.overlap * np.minimum(read, compute)
    found: Array = profile.overhead + roof + steps.context * profile.per_context
    return found


def fitted(steps: Steps, like: EngineProfile) -> EngineProfile | None:
    """The profile with the least relative errors; sizes are those of `like`. None: too few steps.

    For each point of a grid of knees and overlaps the others are linear: least squares without negative ones, in which a step
    that is far off weighs less.
    """
    if len(steps) < LEAST:
        return None
    best, lowest = like, np.inf
    for knee in _KNEES:
        for overlap in _OVERLAPS:
            roof = np.maximum(knee, steps.tokens) + overlap * np.minimum(knee, steps.tokens)
            columns = np.stack([np.ones(len(steps)), roof, steps.context]) / steps.seconds
            weights = np.ones(len(steps))
            for _ in range(3):
                base, token, context = _non_negative(columns * weights, weights)
                errors = np.abs(np.array([base, token, context]) @ columns - 1)
                weights = np.sqrt(np.minimum(1.0, 0.1 / np.maximum(errors, 1e-9)))
            if (loss := float(np.minimum(errors, _CLIP).mean())) < lowest:
                lowest = loss
                best = replace(
                    like,
                    overhead=base,
                    read_weights=knee * token,
                    per_token=token,
                    overlap=overlap,
                    per_context=context,
                )
    return best


def _non_negative(columns: Array, wanted: Array) -> list[float]:
    """Least squares; the most negative coefficient is held at 0 until none is left."""
    used = list(range(len(columns)))
    while used:
        scale = np.linalg.norm(columns[used], axis=1)
        scale[scale == 0] = 1.0
        found = np.linalg.lstsq((columns[used].T / scale), wanted, rcond=None)[0] / scale
        if found.min() >= 0:
            whole = np.zeros(len(columns))
            whole[used] = found
            return [float(value) for value in whole]
        del used[int(np.argmin(found))]
    return [0.0] * len(columns)


def errors(profile: EngineProfile, steps: Steps) -> dict[str, Any]:
    """How wrong a profile is on these steps: percent of the measured time of a step, and of all steps together."""
    rows: dict[str, Any] = {}
    for name, mask in (
        ("all", np.ones(len(steps), dtype=bool)),
        ("decode", steps.decode),
        ("with_prompts", ~steps.decode),
    ):
        if not mask.any():
            continue
        found, seen = predicted(profile, steps)[mask], steps.seconds[mask]
        relative = 100 * np.abs(found - seen) / seen
        rows[name] = {
            "steps": int(mask.sum()),
            "mean_ms": round(1e3 * float(seen.mean()), 2),
            "error_p50_percent": round(float(np.percentile(relative, 50)), 1),
            "error_p90_percent": round(float(np.percentile(relative, 90)), 1),
            "total_percent": round(100 * float(found.sum() / seen.sum() - 1), 1),
        }
    return rows


def described(profile: EngineProfile) -> dict[str, Any]:
    """The profile for a result: times in milliseconds, microseconds per token, and nanoseconds per token of context."""
    values = asdict(profile)
    return {
        "overhead_ms": round(1e3 * values["overhead"], 3),
        "read_weights_ms": round(1e3 * values["read_weights"], 3),
        "us_per_token": round(1e6 * values["per_token"], 3),
        "overlap": values["overlap"],
        "ns_per_context_token": round(1e9 * values["per_context"], 3),
    }


def joined(listed: Sequence[Steps]) -> Steps:
    """The steps of several pieces."""
    whole = Steps([], 0)
    for name in ("tokens", "context", "seconds", "decode"):
        setattr(whole, name, np.concatenate([getattr(steps, name) for steps in listed]))
    return whole
