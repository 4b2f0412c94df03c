"""Which batch work joins the next engine step. Pure: numbers in, numbers out.

    allowed seconds   max(idle_cap, idle_stretch * a step of one token)   no synchronous request is here
                      max(itl, stretch * the synchronous decodes alone,
                          (1 + tolerance) * all synchronous work alone)   otherwise; 0 where the model cannot be trusted

Synchronous work is counted first and never limited. Batch decodes join oldest first while the step stays within the
allowed seconds; the first that does not fit and all after it are frozen. Then batch prefill takes the tokens that
still fit, at most `chunk` of them beside synchronous decodes and none while a synchronous request waits. The step
time is piecewise linear and convex, so the sums run along and the chunk has a closed form.

Without synchronous work at least one batch request advances, whatever the model says: else it could never learn.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from app.headroom.step_model import WARM, StepModel

MIN_CHUNK = 16  # of prefill in a step that has nothing else to do
COLD_TOKENS = 256  # batch tokens a step while the model has seen too little


@dataclass(frozen=True)  # no slots: its defaults are read from the class
class Budgets:
    """What a step may cost. Seconds, tokens, shares.

    `itl`: length of a step beside synchronous work, or `stretch` times what its decodes take alone, whichever is more;
    `idle_cap`, or `idle_stretch` times the shortest step: without any, which is how long the next arrival may find the
    engine busy; `tolerance`: over the step that synchronous work takes alone, if that is more; `chunk`: batch prefill
    beside synchronous work; `kv_reserve`: share of the KV cache that new batch leaves free; `error`: model error
    beyond which batch stands aside.
    """

    itl: float = 0.025
    idle_cap: float = 0.05
    tolerance: float = 0.05
    stretch: float = 1.1
    idle_stretch: float = 1.5
    chunk: int = 512
    kv_reserve: float = 0.1
    error: float = 0.3


@dataclass(frozen=True, slots=True)
class Sync:
    """Synchronous work of the step: tokens wanted (at most a step's), context, decoding and waiting requests."""

    tokens: int = 0
    context: int = 0
    decoding: int = 0
    decode_context: int = 0
    waiting: int = 0
    present: bool = False


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The first `decodes` of the batch decodes run; `chunks[i]` tokens of batch prefill i; the rest is frozen.

    `room`: tokens left for batch requests that are not in the engine yet. `tokens`, `seconds`: the planned step
    without `room`. `allowed`: the seconds it was fitted into. `trusted`: whether the model's error is within bounds.
    """

    decodes: int
    chunks: list[int]
    room: int
    tokens: int
    seconds: float
    allowed: float
    trusted: bool


def allowed_seconds(model: StepModel, sync: Sync, budgets: Budgets) -> float:
    """How long the step may take with batch in it."""
    if not sync.present:
        return max(budgets.idle_cap, budgets.idle_stretch * model.predict(1, 0))
    itl = max(budgets.itl, budgets.stretch * model.predict(sync.decoding, sync.decode_context))
    return max(itl, (1 + budgets.tolerance) * model.predict(sync.tokens, sync.context))


def trusted(model: StepModel, budgets: Budgets) -> bool:
    """Whether the model has seen enough steps and predicts them well enough to share one with synchronous work."""
    return model.samples >= WARM and model.error <= budgets.error


def plan(
    model: StepModel,
    sync: Sync,
    decodes: Sequence[int],
    prefills: Sequence[tuple[int, int]],
    cap: int,
    budgets: Budgets,
    each: int = 1,
) -> StepPlan:
    """The batch share of one step of at most `cap` tokens.

    `decodes`: context tokens of each batch request that wants a token, `each` with its speculative ones; `prefills`: (tokens
    wanted, context) of each that is still in its prompt; both oldest first.
    """
    sure = trusted(model, budgets)
    allowed = allowed_seconds(model, sync, budgets)
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
    most = 0 if sync.waiting else min(cap - tokens, budgets.chunk if sync.present else cap)
    chunks, alone = [], not sync.present and not run
    for want, context in prefills:
        spare = allowed - seconds - per_context * context
        chunk = min(want, most, _fitting(spare, tokens, below, above, knee))
        if alone:  # nothing else would move
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
    return int(cheap + (spare - cheap * below) / above) if above else 1 << 30
