"""Which batch work joins the next engine step. Pure: numbers in, numbers out.

Synchronous work is counted first and never limited. Batch decodes join in order of age while the step stays within the seconds
that the step budget allows (`step_budget`). The first decode that does not fit and all later ones are frozen.
Batch prefill takes the tokens that still fit: at most `chunk` of them beside synchronous decodes, and none while a
synchronous request waits. The step time is piecewise linear and convex, so the planner keeps running sums, and the size of
the chunk has a closed form. A model that cannot be trusted allows no batch work beside synchronous work.

Without synchronous work at least one batch request advances, whatever the model predicts; otherwise the model could not learn.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from .step_budget import UNLIMITED_TOKENS, StepBudget
from .step_model import WARM, StepModel

MIN_CHUNK = 16  # tokens of prefill in a step without other work
COLD_TOKENS = 256  # batch tokens per step until the model is warm


@dataclass(frozen=True, slots=True)
class PlanLimits(StepBudget):
    """The step budget, and the other limits of a step.

    `urgency`: of the nearest deadline, 0..1. `chunk`: tokens of batch prefill beside synchronous work. `kv_reserve`: share of
    the KV cache that new batch requests leave free. `error`: the model error above which no batch work runs beside
    synchronous work.
    """

    urgency: float = 0.0
    chunk: int = 512
    kv_reserve: float = 0.1
    error: float = 0.3


@dataclass(frozen=True, slots=True)
class Sync:
    """Synchronous work of the step. `tokens`: as many as it needs, at most a step's. `decoding`, `waiting`: requests.

    `quiet`: seconds that a step without such work may take because callers have been away for long.
    """

    tokens: int = 0
    context: int = 0
    decoding: int = 0
    decode_context: int = 0
    waiting: int = 0
    present: bool = False
    quiet: float = 0.0


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The first `decodes` batch decodes run, and `chunks[i]` tokens of batch prefill i; all others are frozen.

    `room`: tokens left for batch requests that are not running yet. `tokens`, `seconds`: the planned step without `room`.
    `allowed`: seconds by the step budget. `trusted`: whether the model's error is within its limit.
    """

    decodes: int
    chunks: list[int]
    room: int
    tokens: int
    seconds: float
    allowed: float
    trusted: bool


def allowed_seconds(model: StepModel, sync: Sync, limits: PlanLimits) -> float:
    """Seconds that the step budget allows, by the predictions of the model."""
    decode = model.predict(sync.decoding, sync.decode_context)
    alone = model.predict(sync.tokens, sync.context)
    return limits.allowed(decode, alone, model.predict(1, 0), limits.urgency, sync=sync.present, quiet=sync.quiet)


def trusted(model: StepModel, limits: PlanLimits) -> bool:
    """Whether the model has seen enough steps, and predicts them well enough for batch work beside synchronous work."""
    return model.samples >= WARM and model.error <= limits.error


def plan(
    model: StepModel,
    sync: Sync,
    decodes: Sequence[int],
    prefills: Sequence[tuple[int, int]],
    cap: int,
    limits: PlanLimits,
    each: int = 1,
) -> StepPlan:
    """The batch share of one step of at most `cap` tokens.

    `decodes`: context tokens of each decoding batch request, which needs `each` tokens (its speculative ones included).
    `prefills`: (tokens needed, context) of each batch request in its prompt. Both begin with the oldest request.
    """
    sure = trusted(model, limits)
    allowed = allowed_seconds(model, sync, limits)
    if sync.present and not sure:
        return StepPlan(
            0, [0] * len(prefills), 0, sync.tokens, model.predict(sync.tokens, sync.context), 0.0, trusted=False
        )
    if model.samples < WARM:
        cap = min(cap, COLD_TOKENS)
    below, above, per_context, knee = model.slope_below, model.slope_above, model.per_context, model.knee
    tokens, seconds, run = sync.tokens, model.predict(sync.tokens, sync.context), 0
    for context in decodes:
        longer = seconds + (below if tokens < knee else above) * each + per_context * context
        if (longer > allowed and (sync.present or run)) or tokens + each > cap:
            break
        seconds, tokens, run = longer, tokens + each, run + 1
    most = 0 if sync.waiting else min(cap - tokens, limits.chunk if sync.present else cap)
    chunks, alone = [], not sync.present and not run
    for want, context in prefills:
        spare = allowed - seconds - per_context * context
        chunk = min(want, most, _fitting(spare, tokens, below, above, knee))
        if alone:  # otherwise nothing would advance
            chunk, alone = max(chunk, min(want, most, MIN_CHUNK)), False
        chunks.append(chunk)
        if chunk:
            seconds += _cost(chunk, tokens, below, above, knee) + per_context * context
            tokens, most = tokens + chunk, most - chunk
    room = max(0, min(most, _fitting(allowed - seconds, tokens, below, above, knee)))
    if alone:
        room = max(room, min(most, MIN_CHUNK))
    return StepPlan(run, chunks, room, tokens, seconds, allowed, trusted=sure)


def _cost(more: int, tokens: int, below: float, above: float, knee: float) -> float:
    """Seconds that `more` tokens add to a step of `tokens`."""
    cheap = min(more, max(0.0, knee - tokens))
    return cheap * below + (more - cheap) * above


def _fitting(spare: float, tokens: int, below: float, above: float, knee: float) -> int:
    """The most tokens that a step of `tokens` can take in `spare` more seconds."""
    if spare < 0:
        return 0
    cheap = max(0.0, knee - tokens)
    if spare < cheap * below:
        return int(spare / below)
    return int(cheap + (spare - cheap * below) / above) if above else UNLIMITED_TOKENS
