"""Notifies who wants to know that chunks of a model are ready, after the commit that made them so.

As with spans, the listeners are those of the process. A wake is only a hint: whoever misses it finds the chunks by itself.
So nobody is notified of chunks that the steward makes ready, as those that it funds: heartbeats say that work waits.
"""

from collections.abc import Callable, Mapping

Listener = Callable[[str, int], None]  # gets the model as engines serve it, and how many chunks; it must not wait


class _Process:
    listeners: tuple[Listener, ...] = ()


def listen(listener: Listener) -> None:
    """Notify this listener from now on."""
    _Process.listeners += (listener,)


def forget(listener: Listener) -> None:
    """Notify this listener no more."""
    _Process.listeners = tuple(each for each in _Process.listeners if each != listener)


def notify(chunks: Mapping[str, int]) -> None:
    """So many chunks of these models may be claimed now. Call after the commit."""
    for model, count in chunks.items():
        for listener in _Process.listeners:
            listener(model, count)
