"""The simulator's step times, fitted to the steps of a real engine, and how wrong they are.

A step is what vLLM's server sees of it: when it ended, the tokens that it computed, and the context that its requests held. A
busy server sees some steps late and several at once. So times are compared over stretches of a few steps. Prompts count with the
step that completes them, so a prompt that was split over steps counts late.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.colocation.engine_profiles import EngineProfile
from workers.engine.step_stats_receiver import StepStats

Array = NDArray[np.float64]
STRETCH = 8  # steps; their number must not depend on their times, as late steps would choose it
LEAST = 8  # stretches of a fit
_KNEES = np.geomspace(16, 1024, 19)  # tokens whose arithmetic takes as long as reading the weights
_OVERLAPS = (0.0, 0.15, 0.3, 0.6, 1.0)
_CLIP = 0.5  # of a relative error: the pauses of a busy server are no trend


class Steps:
    """Steps that began on a busy engine: tokens and context before the step; and seconds of each stretch of consecutive ones.

    `begins`: the first step of each stretch. `decode`: whether a stretch has no prompts.
    """

    def __init__(self, pieces: Sequence[tuple[Sequence[StepStats], int]]) -> None:
        """`pieces`: steps in order, each list with the engine's KV capacity in tokens."""
        rows: list[tuple[float, float, bool]] = []  # tokens, context, prompts
        begins: list[int] = []
        seconds: list[float] = []
        for seen, capacity in pieces:
            for stretch in _stretches(seen):
                begins.append(len(rows))
                seconds.append(stretch[-1].at - stretch[0].at)
                for step in stretch[1:]:
                    tokens = _tokens(step)
                    rows.append((tokens, max(0.0, step.kv_usage * capacity - tokens), bool(step.prompt_tokens)))
        self.tokens: Array = np.array([tokens for tokens, *_ in rows], dtype=float)
        self.context: Array = np.array([context for _, context, _ in rows], dtype=float)
        self.begins = np.array(begins, dtype=int)
        self.seconds: Array = np.array(seconds, dtype=float)
        self.decode: NDArray[np.bool_] = self.summed(np.array([prompts for *_, prompts in rows], dtype=float)) == 0

    def __len__(self) -> int:
        return len(self.seconds)

    def summed(self, of_steps: Array) -> Array:
        """The sum over the steps of each stretch."""
        if not len(self.begins):
            return np.zeros(0)
        found: Array = np.add.reduceat(of_steps, self.begins)
        return found


def _stretches(seen: Sequence[StepStats]) -> list[list[StepStats]]:
    """`STRETCH` consecutive steps each, after one that is the beginning of the first. The rest of a busy time is left out."""
    listed: list[list[StepStats]] = []
    stretch: list[StepStats] = []
    for step in seen:
        before = stretch[-1] if stretch else None
        if before and before.running and step.at >= before.at and _tokens(step):
            stretch.append(step)
            if len(stretch) > STRETCH:
                listed.append(stretch)
                stretch = [step]
        else:
            stretch = [step]
    return listed


def _tokens(step: StepStats) -> int:
    return step.prompt_tokens + step.generation_tokens


def predicted(profile: EngineProfile, steps: Steps) -> Array:
    """The seconds of each stretch by a profile."""
    compute, read = steps.tokens * profile.per_token, profile.read_weights
    roof = np.maximum(read, compute) + profile.overlap * np.minimum(read, compute)
    return steps.summed(profile.overhead + roof + steps.context * profile.per_context)


def fitted(steps: Steps, like: EngineProfile) -> EngineProfile | None:
    """The profile with the least relative errors; sizes are those of `like`. None: too few steps.

    For each point of a grid of knees and overlaps the others are linear: least squares without negative ones. A stretch weighs as
    one over its predicted time, and less if it is far off.
    """
    if len(steps) < LEAST:
        return None
    best, lowest = like, np.inf
    usual = float(np.median(steps.seconds))
    ones, context = np.ones(len(steps.tokens)), steps.summed(steps.context)
    for knee in _KNEES:
        for overlap in _OVERLAPS:
            roof = steps.summed(np.maximum(knee, steps.tokens) + overlap * np.minimum(knee, steps.tokens))
            columns = np.stack([steps.summed(ones), roof, context])
            weights = np.full(len(steps), 1 / usual)
            for _ in range(4):
                base, token, per_context = _non_negative(columns * weights, steps.seconds * weights)
                found = np.array([base, token, per_context]) @ columns
                errors = _relative(found, steps.seconds)
                weights = np.sqrt(np.minimum(1.0, 0.1 / np.maximum(errors, 1e-9))) / np.maximum(found, usual / 5)
            if (loss := float(np.minimum(errors, _CLIP).mean())) < lowest:
                lowest = loss
                best = replace(
                    like,
                    overhead=base,
                    read_weights=knee * token,
                    per_token=token,
                    overlap=overlap,
                    per_context=per_context,
                )
    return best


def _relative(found: Array, seen: Array) -> Array:
    """The difference as a share of the larger value: to predict nothing is as wrong as to predict without limit."""
    share: Array = np.abs(found - seen) / np.maximum(np.maximum(found, seen), 1e-9)
    return share


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
    """How wrong a profile is: percent of the larger of the measured and the predicted time of a stretch, and of all together."""
    rows: dict[str, Any] = {}
    found, counts = predicted(profile, steps), steps.summed(np.ones(len(steps.tokens)))
    for name, mask in (
        ("all", np.ones(len(steps), dtype=bool)),
        ("decode", steps.decode),
        ("with_prompts", ~steps.decode),
    ):
        if not mask.any():
            continue
        relative = 100 * _relative(found[mask], steps.seconds[mask])
        rows[name] = {
            "steps": int(counts[mask].sum()),
            "stretches": int(mask.sum()),
            "mean_ms": round(1e3 * float(steps.seconds[mask].sum() / counts[mask].sum()), 2),
            "error_p50_percent": round(float(np.percentile(relative, 50)), 1),
            "error_p90_percent": round(float(np.percentile(relative, 90)), 1),
            "total_percent": round(100 * float(found[mask].sum() / steps.seconds[mask].sum() - 1), 1),
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
