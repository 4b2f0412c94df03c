"""What a verb says of a batch or a pipeline that is already as it would make it. Pure."""

_ENDED = ("completed", "failed", "cancelled", "expired")


def unchanged(name: str, verb: str, state: str, ended: str | None) -> str:
    """The sentence about `name`, which was in `state` before a verb that was accepted; empty if the verb had something to do."""
    if verb == "cancel" and state in _ENDED:
        return f"{name} had ended before{f', at {ended}' if ended else ''}: it is {state}. Nothing has changed."
    if verb == "cancel" and state == "cancelling":
        return f"{name} is being cancelled already."
    if verb == "resume" and state in ("queued", "running", "in_progress"):
        return f"{name} was not paused: it is {state.replace('in_progress', 'in progress')}."
    return ""
