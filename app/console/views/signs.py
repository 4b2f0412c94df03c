"""The shape and colour of each state, and what it is in two or three words. Pure.

Colours have meanings: sync (callers come first), harvest (batch work), warn (somebody should look), bad (broken). Waiting and
done are grey.
"""

from dataclasses import dataclass

from app.engines.told_state import NO_WORKER
from app.headroom.gate_rules import CLOSED_BY_FAILURE


@dataclass(frozen=True, slots=True)
class Sign:
    """A glyph of the sprite, and a colour of the style sheet; empty: ink."""

    glyph: str
    colour: str = ""


RUNS, DONE = Sign("run", "harvest"), Sign("ok", "harvest")
WAITS, STARTS = Sign("wait", "qq"), Sign("start", "warn")
CALLERS, PAUSED = Sign("first", "sync"), Sign("pause", "qq")
MONEY, LOOK = Sign("money", "warn"), Sign("warn", "warn")
BROKEN, AWAY = Sign("bad", "bad"), Sign("start", "bad")
QUIET, NOTE = Sign("dot", "qq"), Sign("flag", "qq")
ENDED = Sign("ok", "qq")

# What a batch waits for (codes of app.batches.why_text): its sign, the words for one batch, and those for many.
_WAITS: dict[str, tuple[Sign, str, str]] = {
    "running": (RUNS, "Runs", "With engines now"),
    "paused": (PAUSED, "Paused", "Paused by somebody"),
    "cancelling": (WAITS, "Is being cancelled", "Being cancelled"),
    "expiring": (WAITS, "Expires", "Past their deadline"),
    "settling": (RUNS, "Is being counted", "Being counted"),
    "backoff": (WAITS, "Will be tried again", "To be tried again"),
    "sealed": (LOOK, "Waits for its key", "A key that cannot be unwrapped now"),
    "budget": (MONEY, "Waits for money", "Money of a budget"),
    "dependency": (WAITS, "Waits for another stage", "Results of another stage"),
    "outside": (WAITS, "Waits for an answer", "An answer from outside"),
    "no_engine": (AWAY, "Waits for an engine", "An engine for their model"),
    "account_limit": (WAITS, "Waits for its account", "Their account's limit in flight"),
    "own_batches": (WAITS, "Waits its turn", "Earlier batches of their account"),
    "fair_share": (WAITS, "Waits for its share", "Their account's share of the engines"),
    "suspects": (WAITS, "Waits its turn", "Items that run alone after a death"),
    "allowance_spent": (WAITS, "Waits for a place", "A place; the engines have as much as fits"),
    "next": (WAITS, "Next in line", "Next in line"),
    "closed_sync_waiting": (CALLERS, "Callers first", "Synchronous requests first"),
    "yield_burst": (CALLERS, "Callers first", "Synchronous requests first"),
    "shrink_latency": (WAITS, "Waits for shorter steps", "Shorter steps of their engine"),
    "closed_slots": (CALLERS, "Waits for a slot", "A slot in a full engine"),
    "closed_kv": (WAITS, "Waits for memory", "Room in a KV cache"),
    "engine_starting": (AWAY, "Waits for an engine", "An engine that is starting"),
    "engine_down": (AWAY, "Waits for an engine", "An engine that does not answer"),
    "draining": (WAITS, "Waits for an engine", "An engine that is drained"),
}
_FAILED_GATES = {reason.value for reason in CLOSED_BY_FAILURE} | {
    "plugin_tripped",
    "model_missing",
    "key_refused",
    "engine_unusable",
}
_STATES: dict[str, tuple[Sign, str]] = {
    "completed": (ENDED, "Completed"),
    "failed": (BROKEN, "Failed"),
    "cancelled": (QUIET, "Cancelled"),
    "expired": (LOOK, "Expired"),
}


def waiting(code: str) -> tuple[Sign, str, str]:
    """Of what a batch waits for: sign, words for one batch, words for a group."""
    if code in _WAITS:
        return _WAITS[code]
    words = code.removeprefix("closed_").replace("_", " ")
    return (LOOK if code in _FAILED_GATES else WAITS), f"Waits: {words}", f"Gate closed: {words}"


def final(state: str) -> tuple[Sign, str]:
    """Of a batch that has ended: sign and word."""
    return _STATES[state]


def gate(code: str, *, ready: bool, is_open: bool) -> Sign:
    """Of an engine's gate."""
    if code in _FAILED_GATES or code in {"engine_down", NO_WORKER}:
        return BROKEN
    if code == "engine_starting" or not ready:
        return AWAY
    if code in {"closed_sync_waiting", "yield_burst", "closed_slots"}:
        return CALLERS
    return RUNS if is_open else WAITS


# What a decision about a gate has made of it.
_GATES = {
    "open": "Open",
    "ramp": "Grows",
    "hold": "Stays as it is",
    "harvest": "Shares steps",
    "deadline_ramp": "Grows for a deadline",
    "shrink_latency": "Shrinks: long steps",
    "yield_burst": "Makes room for callers",
    "full": "Full",
    "closed_sync_waiting": "Callers first",
    "closed_slots": "No free slot",
    "closed_kv": "Closed: no memory",
    "closed_asleep": "Closed: asleep",
    "closed_latency": "Closed: too slow",
    "closed_stale": "Closed: old telemetry",
    "closed_unknown": "Closed: no telemetry",
    "closed_learning": "Closed: learning",
    "closed_model_error": "Closed: forecasts are off",
    "plugin_tripped": "Closed: fault in the plug-in",
}


def gate_words(reason: str) -> str:
    """What a decision has made of a gate, in two or three words."""
    return _GATES.get(reason) or reason.replace("_", " ").capitalize()


_RIBBON = {
    "open": "r-open",
    "full": "r-open",
    "ramp": "r-open",
    "hold": "r-open",
    "harvest": "r-open",
    "deadline_ramp": "r-open",
    "shrink_latency": "r-hold",
    "closed_sync_waiting": "r-sync",
    "yield_burst": "r-sync",
    "closed_slots": "r-sync",
    "closed_latency": "r-sync",
    "engine_starting": "r-full",
    "draining": "r-full",
    "released": "r-full",
    "engine_down": "r-bad",
}


def ribbon(code: str) -> str:
    """The kind of bar in the ribbon of a gate."""
    return _RIBBON.get(code) or ("r-warn" if code in _FAILED_GATES else "r-full")


# In which lane below the progress of a batch a reason is shown, in their order.
LANES = ("With engines", "Callers first", "Paused", "Money", "No engine", "Engine away", "Engine fault", "In line")
_LANES = {
    "running": ("With engines", "r-open"),
    "settling": ("With engines", "r-open"),
    "paused": ("Paused", "r-warn"),
    "budget": ("Money", "r-warn"),
    "no_engine": ("No engine", "r-full"),
    "engine_down": ("Engine away", "r-bad"),
    "engine_starting": ("Engine away", "r-bad"),
    "draining": ("Engine away", "r-full"),
    "closed_sync_waiting": ("Callers first", "r-sync"),
    "yield_burst": ("Callers first", "r-sync"),
    "closed_slots": ("Callers first", "r-sync"),
    "closed_latency": ("Callers first", "r-sync"),
}


def lane(code: str) -> tuple[str, str]:
    """The lane of a reason, and the kind of its bar."""
    if code in _LANES:
        return _LANES[code]
    return ("Engine fault", "r-bad") if code in _FAILED_GATES else ("In line", "r-full")
