"""The state of an engine as people are told it. Pure."""

from typing import NamedTuple, Protocol

from app.engines.adoption import DOWN
from app.states import EngineState

NO_WORKER = "no_worker"
REPORTED_SECONDS = 60.0  # so long a report holds of an engine that no worker has


class Told(NamedTuple):
    """What an engine does with batch work, for `why_text.gate`: `signal` was `value`, compared with `threshold`,
    `threshold`; so for `seconds`. `detail`: what was wrong.
    """

    code: str
    signal: str | None
    value: float | None
    threshold: float | None
    seconds: float
    detail: str | None


class Reported(Protocol):
    """An engine as its worker last reported it. `alive`: that worker's lease holds. `free`: no worker has it: it was released, or
    a worker reports it without having it. `overdue`: its worker has missed heartbeats, though its lease may still hold.
    """

    @property
    def state(self) -> str: ...
    @property
    def mode(self) -> str: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def signal(self) -> str | None: ...
    @property
    def value(self) -> float | None: ...
    @property
    def threshold(self) -> float | None: ...
    @property
    def held_seconds(self) -> float: ...
    @property
    def detail(self) -> str | None: ...
    @property
    def alive(self) -> bool: ...
    @property
    def free(self) -> bool: ...
    @property
    def silent_seconds(self) -> float: ...
    @property
    def overdue(self) -> bool: ...


def told_state(state: str, mode: str, reason: str | None, *, has_worker: bool) -> EngineState:
    """The state as people are told it: down without a worker, and starting while its worker starts an engine of its own."""
    if not has_worker:
        return EngineState.DOWN
    if (state, mode, reason) == (EngineState.DOWN, "managed", DOWN):
        return EngineState.STARTING
    return EngineState(state)


def told_code(state: str, mode: str, reason: str | None, *, reported: bool) -> str:
    """The reason code of an engine as people are told it, or one made from its state. `reported`: as `is_reported` says."""
    if not reported:
        return NO_WORKER
    told = told_state(state, mode, reason, has_worker=True)
    return f"engine_{told}" if told is EngineState.STARTING else reason or f"engine_{state}"


def is_reported(silent_seconds: float, *, alive: bool, free: bool) -> bool:
    """Whether what was last reported of an engine still holds. Nothing that a silent worker said does. As in `Reported`."""
    return alive or (free and silent_seconds < REPORTED_SECONDS)


def told(engine: Reported) -> Told:
    """What an engine does with batch work, as people are told it."""
    if not is_reported(engine.silent_seconds, alive=engine.alive, free=engine.free):
        return Told(NO_WORKER, "silent_seconds", engine.silent_seconds, None, engine.silent_seconds, None)
    code = told_code(engine.state, engine.mode, engine.reason, reported=True)
    held = max(0.0, engine.held_seconds)
    return Told(code, engine.signal, engine.value, engine.threshold, held, engine.detail)
