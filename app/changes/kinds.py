"""The kinds of changes, and what each means. Pure."""

import signal
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from app.quantities import duration


class ChangeKind(StrEnum):
    """What happened. The subject is the engine for `engine.*`, `gate.*` and `worker.*`, and the part for `part.*`."""

    ENGINE_DOWN = "engine.down"
    ENGINE_READY = "engine.ready"
    ENGINE_RELEASED = "engine.released"
    ENGINE_DRAINED = "engine.drained"
    ENGINE_UNDRAINED = "engine.undrained"
    ENGINE_VERSION = "engine.version"
    ENGINE_REPLACED = "engine.replaced"
    GATE_CLOSED = "gate.closed"
    GATE_OPENED = "gate.opened"
    WORKER_LOST = "worker.lost"
    BREAKER_OPENED = "breaker.opened"
    BREAKER_CLOSED = "breaker.closed"
    ENDPOINT_DISABLED = "endpoint.disabled"
    BUDGET_SPENT = "budget.spent"
    BUDGET_RENEWED = "budget.renewed"
    STEWARD_LEADS = "steward.leads"
    PART_STARTED = "part.started"
    PART_DIED = "part.died"
    UP_KILLED = "up.killed"
    VERSION_CHANGED = "version.changed"
    DATABASE_LOST = "database.lost"
    DATABASE_BACK = "database.back"
    DATABASE_RESTORED = "database.restored"


TROUBLE = frozenset(
    {
        ChangeKind.ENGINE_DOWN,
        ChangeKind.GATE_CLOSED,
        ChangeKind.WORKER_LOST,
        ChangeKind.BREAKER_OPENED,
        ChangeKind.ENDPOINT_DISABLED,
        ChangeKind.BUDGET_SPENT,
        ChangeKind.PART_DIED,
        ChangeKind.UP_KILLED,
        ChangeKind.DATABASE_LOST,
    }
)
"""Something stopped. The other kinds say that it goes on, or what somebody did."""

PRIVATE = ("host", "pid")
"""Facts for the operator alone: accounts do not see on which machines the parts run."""

_LAPSED = "the worker of {subject} {silence}, so its lease ended; it goes on and joins again"
_BACK = {
    0: "",
    1: "; its chunk goes back to the queue",
    2: "; its chunks go back to the queue",
}  # by their number, or more
_SENTENCES = {
    ChangeKind.ENGINE_DOWN: "{subject} does not serve any more: {reason}",
    ChangeKind.ENGINE_READY: "{subject} is ready",
    ChangeKind.ENGINE_RELEASED: "the worker of {subject} has stopped, as it was told or because its `up` was gone",
    ChangeKind.ENGINE_DRAINED: "{subject} is drained by an operator",
    ChangeKind.ENGINE_UNDRAINED: "{subject} takes new work again, by an operator",
    ChangeKind.ENGINE_VERSION: "{subject} runs vLLM {to} instead of {from}",
    ChangeKind.ENGINE_REPLACED: "{subject} is another engine now, which serves {to}",
    ChangeKind.GATE_CLOSED: "the gate of {subject} closed: {reason}",
    ChangeKind.GATE_OPENED: "the gate of {subject} opened: {reason}",
    ChangeKind.WORKER_LOST: "{worker} {silence}, so its lease ended{back}",
    ChangeKind.BREAKER_OPENED: (
        "webhook {subject} failed {failures} times in a row; deliveries stopped until {until}, then one at a time is tried"
    ),
    ChangeKind.BREAKER_CLOSED: "webhook {subject} accepts deliveries again",
    ChangeKind.ENDPOINT_DISABLED: "webhook {subject} was disabled: {reason}",
    ChangeKind.BUDGET_SPENT: "budget {subject} {spent}: {message}",
    ChangeKind.BUDGET_RENEWED: "budget {subject} is renewed",
    ChangeKind.STEWARD_LEADS: "a steward has taken the lead",
    ChangeKind.PART_STARTED: "{subject} started, version {version}",
    ChangeKind.PART_DIED: "{subject} {end}; it is started again",
    ChangeKind.UP_KILLED: "{subject} was killed, or its machine stopped; it was started again {down} later, {until}",
    ChangeKind.VERSION_CHANGED: "{subject} runs version {to} instead of {from}",
    ChangeKind.DATABASE_LOST: "the {subject} did not answer the steward any more",
    ChangeKind.DATABASE_BACK: "the {subject} answers the steward again, after {seconds} s",
    ChangeKind.DATABASE_RESTORED: "the {subject} was restored to an earlier moment; its newest batch is of {newest_batch}",
}


class _Facts(dict[str, Any]):
    """The facts of a change. A missing one is shown as not known."""

    def __missing__(self, name: str) -> str:
        return f"{name} not known"


def how_ended(code: object) -> str:
    """How a process ended. A negative exit code is the signal that it died of."""
    if not isinstance(code, int):
        return "ended by itself"
    names = {each.value: each.name for each in signal.Signals}
    return f"was killed ({names[-code]})" if -code in names else f"ended by itself with exit code {code}"


def sentence(kind: str, subject: str, data: Mapping[str, Any]) -> str:
    """The change in words. An unknown kind, which a newer version has written, is shown as it is."""
    if kind not in _SENTENCES:
        return f"{kind}: {subject}"
    known = {name: value for name, value in data.items() if value is not None}
    known["end"] = how_ended(known.get("exit_code"))
    silent = known.get("silent_seconds")
    unheard = "did not get its lease renewed in time" if known.get("lapsed") else "did not report in time"
    known["silence"] = unheard if silent is None else f"did not report for {duration(silent)}"
    known["back"] = _BACK.get(known.get("chunks", 2), _BACK[2])
    known["worker"] = f"the worker of {subject}" if known.get("engine") else f"a worker on {_machine(subject, known)}"
    known["spent"] = "has too little left" if known.get("percent", 100) < 100 else "is spent"
    lapsed = kind == ChangeKind.ENGINE_RELEASED and known.get("lapsed")
    form = _LAPSED if lapsed else _SENTENCES[ChangeKind(kind)]
    return form.format_map(_Facts(known, subject=subject))


def _machine(subject: str, known: Mapping[str, Any]) -> str:
    """The host that a change is about; an account does not see which."""
    return f"host {subject}" if subject == known.get("host") else subject
