"""Who acts at this moment. A shell says so once for each request or command; whatever is then recorded names them."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts, and as what. `session_id`: of the console. `correlation`: the id of the request or the command.
    `reason`: what they gave as the reason.
    """

    who: str
    role: str
    session_id: int | None = None
    correlation: str | None = None
    reason: str | None = None


SYSTEM = Actor("slackwater", "system")
UNKNOWN = "unknown caller"
_current: ContextVar[Actor] = ContextVar("actor", default=SYSTEM)


def stranger(correlation: str | None) -> Actor:
    """Somebody of whom nothing is known yet."""
    return Actor(UNKNOWN, "none", correlation=correlation)


def current() -> Actor:
    """Who acts now; SYSTEM: nobody, but a part by itself."""
    return _current.get()


def enter(actor: Actor) -> None:
    """From here on, this task acts for `actor`."""
    _current.set(actor)


@contextmanager
def acting(actor: Actor) -> Iterator[None]:
    """Within the block, `actor` acts."""
    before = _current.set(actor)
    try:
        yield
    finally:
        _current.reset(before)
