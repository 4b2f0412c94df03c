"""The sentences of `slackwater why`: what the codes of a batch and of an engine's gate mean, with numbers and units. Pure.

`why_chain` decides which codes hold. Only the signals that close the gate have their sentences elsewhere, beside their
thresholds: in app.headroom.gate_rules.

The end of a signal's name is its unit: `_seconds`, `_tokens`, `_usage` and `_share` (of one); others are counts. The message of
an unknown code or signal contains its name.
"""

from app.engines import told_state
from app.engines.told_state import NO_WORKER, Reported
from app.headroom.gate_rules import CLOSING_SIGNALS
from app.quantities import duration, many
from app.queue.estimate import Missing
from app.queue.item_counts import NONE_LEFT

_BATCH = {
    "paused": "the batch is paused; resume it to go on",
    "cancelling": "the batch is being cancelled; its items in an engine are being stopped",
    "expiring": "the batch has expired; its items in an engine are being stopped",
    "dependency": "waits for results of the stage before it",
    "after": "it starts when {batches}",
    "settling": "every item is done; the batch is being settled",
    "running": "{places}",
    "backoff": "{delayed} will be tried again, the next in {pause}",
    "sealed": "{delayed} cannot be decrypted: {failure}; the next is tried again in {pause}",
    "budget": "budget {name} has {taken}; {items} for it{until}",
    "no_engine": "no engine serves {model} now; the batch is kept until one does",
    "engines": "{count} {serves} {model}{but}",
    "account_limit": "the account has {inflight} in flight, the limit is {limit}",
    "own_batches": "behind {batches} of its account",
    "fair_share": "{accounts} at work, this one's share is {share}{behind}",
    "suspects": "items that were in an engine or a worker that died run one at a time first",
    "allowance_spent": "every place for batch work is taken, {places} in all",
    "no_limit": "{items} no max_tokens and may run to the model's limit of {window}",
    "next": "next in line",
    "eta": "done in about {eta}, at {pace} a second (confidence: {confidence})",
    "eta_unknown": "no estimate: {reason}",
}

_NO_ETA = {
    Missing.STATE: "the batch is {state}",
    Missing.ENGINE: "no engine serves {model} now",
    Missing.PACE: "the pace of {model} was not measured in the last hour",
    Missing.STILL: "no item of {model} has ended in the last {still}, so its pace is not known",
    Missing.MONEY: "its budget {money}",
}

_GATES = {signal.reason.value: signal.meaning for signal in CLOSING_SIGNALS} | {
    "open": "takes batch work",
    "ramp": "takes more batch work step by step",
    "hold": "keeps its amount of batch work for now",
    "harvest": "gives batch work what synchronous requests leave of every step",
    "deadline_ramp": "takes more batch work because a deadline is near",
    "shrink_latency": "keeps its steps short",
    "yield_burst": "makes room for a burst of synchronous requests",
    "closed_sync_waiting": "serves synchronous requests first",
    "full": "has as much work as fits",
    "closed_slots": "is full",
    "closed_latency": "answers too slowly to get more batch work",
    "closed_stale": "sends no fresh telemetry",
    "closed_unknown": "sends no telemetry that can be read",
    "closed_learning": "is still learning how long its steps take",
    "closed_model_error": "has step times that do not fit their predictions",
    "probe": "is tested with one small request after its telemetry failed",
    "plugin_tripped": "met a fault in its scheduler plug-in",
    "engine_starting": "is starting",
    "engine_down": "does not answer",
    "no_worker": "has no worker",
    "model_missing": "runs, but without this model",
    "draining": "has been drained by an operator (`slackwater engine undrain` ends it)",
    "window_too_small": "runs, but with a smaller context window than the model is promised with",
    "key_refused": "refuses Slackwater's key",
    "engine_unusable": "runs, but answers no request",
    "window_unknown": "runs, but does not report its context window",
    "not_vllm": "answers, but not as an engine does",
    "released": "is being handed over to another worker",
}

_SIGNALS = {signal.name: signal.comparison for signal in CLOSING_SIGNALS} | {
    "age_seconds": "last seen {value} ago, limit {threshold}",
    "silent_seconds": "the last report of one was {value} ago",
    "still_seconds": "the engine's counters have not changed for {value}, limit {threshold}",
    "step_seconds": "step time {value}, the aim is at most {threshold}",
    "quiet_seconds": "no caller for {value}",  # the longer steps that this allows delay nobody
    "stuck_seconds": "synchronous requests have waited {value}, limit {threshold}",
    "first_token_seconds": "a first token has taken {value}, limit {threshold}",
    "hold_seconds": "{value} left",
    "sync_waiting": "{value} waiting",
    "sync_requests": "{value} of {threshold} usable slots taken by synchronous requests",
    "sync_prompt_tokens": "{value} of synchronous prompts uncomputed, limit {threshold}",
    "context_tokens": "batch holds {value} of context, limit {threshold}",
    "gpu_memory_usage": "GPU memory {value} used, limit {threshold}",
    "load": "{value} requests in it, {threshold} usable slots",
    "window_tokens": "{value}, promised {threshold}",
    "unknown_steps": "steps beside synchronous requests are not measured yet",
    "model_samples": "{value} of {threshold} steps seen",
    "model_error": "the predictions are off by {value}, limit {threshold}",
    "static_cap": "{value} batch requests in flight, fixed limit {threshold}",
    "faults": "{value} counted",
    "controller": "Slackwater's own controller failed; see the log of the GPU worker",
    "telemetry": "",
}
_LASTS = frozenset(
    {"age_seconds", "silent_seconds", "still_seconds", "quiet_seconds", "stuck_seconds", "hold_seconds"}
)  # values that are times

_LATELY = " if it takes as long as lately"  # one start or outage, or a few: too little to call it usual

GATE_CODES = frozenset(_GATES)
ENDS = ("completed", "failed", "cancelled", "expired", "refused")  # states in which a batch waits for nothing


def no_eta(missing: Missing, model: str, *, state: str = "", still: float | None = None, money: str = "") -> str:
    """Why a batch of this model has no ETA. `state`: as callers read it; `still`: for how many seconds no item has ended;
    `money`: when its budget has some.
    """
    return _NO_ETA[missing].format(state=state, model=model, still=duration(still or 0.0), money=money)


def headline(status: str, waiting: str | None, places: str) -> str:
    """The first sentence about a batch. `status`: as callers read it; `waiting`: the message of what it waits for, if it does;
    `places`: where its items are.
    """
    if status in ENDS:
        return f"The batch is {status}; it waits for nothing."
    if waiting:
        return f"Waiting: {waiting}"
    return "Every item has its result." if places == NONE_LEFT else f"The batch runs: {places}."


def batch_message(code: str, **facts: object) -> str:
    """The sentence of a code about a batch or its place in the order. Raises KeyError if a fact is missing."""
    return _BATCH[code].format(**facts)


def gate(
    engine: str,
    code: str,
    signal: str | None,
    value: float | None,
    threshold: float | None,
    seconds: float | None,
    *,
    detail: str | None = None,
    expected: float | None = None,
    usual: float | None = None,
) -> str:
    """What an engine does with batch work, why, and for how many seconds: "engine-0 is full: 62 of 62 … taken, for 40 s". Where
    the comparison itself says for how long something lasts, that is the only time.

    `detail`: the error text of the telemetry, or how its process ended; `expected`: seconds until the engine should answer
    again; `usual`: after how many seconds it did lately.
    """
    if detail and code == "engine_starting":
        code, detail = "engine_down", f"{detail}, and is started again"
    meaning = f"{engine} {_GATES.get(code, 'reports ' + _spaced(code))}"
    why = because(signal, value, threshold, detail)
    compared = measure(signal, value, threshold) if signal else ""
    held = f"for {duration(seconds)}" if seconds is not None and not (why and signal in _LASTS) else ""
    soon = ""
    if usual is not None and seconds is not None and seconds > usual:  # nobody knows how much later it will be
        held += f", longer than the {duration(usual)} that it took lately"
    elif expected is not None:
        soon = "back " + (f"in about {duration(expected)}" if expected >= 1 else "at any moment") + _LATELY
    if compared:
        return f"{meaning}: " + ", ".join(part for part in (why, held, soon) if part)
    told = ", ".join(filter(None, (meaning, held))) + (f": {why}" if why else "")
    return f"{told}, {soon}" if soon else told


def engine(name: str, engine: Reported, *, usual: float | None = None) -> str:
    """What an engine does with batch work and why, as far as its worker has said it; once that misses reports, how old it is."""
    told = told_state.told(engine)
    said = gate(name, *told[:-1], detail=told.detail, usual=None if told.code == NO_WORKER else usual)
    late = engine.alive and engine.overdue
    return f"{said}; last report {duration(engine.silent_seconds)} ago" if late else said


def because(signal: str | None, value: float | None, threshold: float | None, detail: str | None) -> str:
    """The comparison that decided, and the error: "last seen 2 s ago, limit 1.5 s, GET … is answered with 500"."""
    compared = measure(signal, value, threshold) if signal else ""
    return ", ".join(part for part in (compared, detail) if part)


def decided(code: str, signal: str | None, value: float | None, threshold: float | None, detail: str | None) -> str:
    """Why a decision was made: the comparison behind it; without one, what the engine does from then on."""
    return because(signal, value, threshold, detail) or f"it {gate('', code, None, None, None, None).strip()}"


def measure(signal: str, value: float | None, threshold: float | None) -> str:
    """The comparison that decided: "step time 31 ms, the aim is at most 25 ms"."""
    if value is None or (signal == "step_seconds" and not (value and threshold)):  # no step was taken yet
        return ""
    known = _SIGNALS.get(signal, _spaced(signal) + " {value}" + ("" if threshold is None else ", limit {threshold}"))
    said, limit = amount(signal, value), amount(signal, threshold)
    if said == limit and said.endswith("%") and threshold is not None and value != threshold:
        said, limit = (f"{100 * each:.3g}%" for each in (value, threshold))
    return known.format(value=said, threshold=limit)


def amount(signal: str, value: float | None) -> str:
    """The value of a signal, with its unit."""
    if value is None:
        return "unknown"
    if signal.endswith("_seconds"):
        return duration(value)
    if signal.endswith(("_usage", "_share")) or signal == "model_error":
        return f"{value:.0%}"
    if signal.endswith("_tokens"):
        return many(value, "token")
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


def _spaced(name: str) -> str:
    for unit in ("_seconds", "_tokens", "_usage", "_share"):
        name = name.removesuffix(unit)
    return name.replace("_", " ")
