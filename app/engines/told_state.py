"""The state of an engine as people are told it. Pure."""

from app.engines.adoption import DOWN
from app.states import EngineState


def told_state(state: str, mode: str, reason: str | None, *, has_worker: bool) -> EngineState:
    """The state as people are told it: down without a worker, and starting while its worker starts an engine of its own."""
    if not has_worker:
        return EngineState.DOWN
    if (state, mode, reason) == (EngineState.DOWN, "managed", DOWN):
        return EngineState.STARTING
    return EngineState(state)


def told_code(state: str, mode: str, reason: str | None, *, has_worker: bool) -> str:
    """The reason code of an engine as people are told it, or one made from its state."""
    told = told_state(state, mode, reason, has_worker=has_worker)
    return f"engine_{told}" if told is EngineState.STARTING else reason or f"engine_{state}"
