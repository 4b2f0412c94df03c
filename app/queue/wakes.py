"""Notifies who wants to know that work has come, after the commit that brought it.

As with spans, the listeners are those of the process. A wake is only a hint: whoever misses it finds the work by itself, a second
later at most.
"""

from collections.abc import Callable, Mapping

from app.db.durability import RELAXED
from app.db.pool import Connection

# Gets how many chunks of which models, as engines serve them, may be claimed now. Others may wait for money. It must not wait.
Listener = Callable[[Mapping[str, int]], None]

CHANNEL = "slackwater_steward"
_CALL = f"select pg_notify('{CHANNEL}', '') where {RELAXED}"


class _Process:
    listeners: tuple[Listener, ...] = ()


def listen(listener: Listener) -> None:
    """Notify this listener from now on."""
    _Process.listeners += (listener,)


def forget(listener: Listener) -> None:
    """Notify this listener no more."""
    _Process.listeners = tuple(each for each in _Process.listeners if each != listener)


def notify(chunks: Mapping[str, int]) -> None:
    """Work has come, and so many chunks of these models may be claimed now. Call after the commit."""
    for listener in _Process.listeners:
        listener(chunks)


async def call_steward(conn: Connection) -> None:
    """Wake the leading steward, which looks only once a second while nothing waits. Not in the transaction that brought the work:
    the server commits those with a notification one after the other.
    """
    await conn.execute(_CALL)
