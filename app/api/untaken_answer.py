"""A client that does not read: how long an answer may wait for it."""

import asyncio


class UntakenAnswer:
    """Ends a connection whose client takes nothing of a waiting answer for `patience` to twice `patience` seconds.

    Only what can merely shrink is compared: while the protocol is paused, or the connection is being closed, nothing is added.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, patience: float) -> None:
        self._transport, self._loop, self._patience = transport, loop, patience
        self._timer: asyncio.TimerHandle | None = None
        self._paused = self._resumed = False
        self._left = 0

    def pause(self) -> None:
        """The transport has taken all it wants to hold."""
        self._paused = True
        self.watch()

    def resume(self) -> None:
        """The client has taken most of it."""
        self._paused, self._resumed = False, True

    def watch(self) -> None:
        """Look from now on whether the client takes what is left, if anything is."""
        left = self._transport.get_write_buffer_size()
        if self._timer is None and left:
            self._left, self._resumed = left, False
            self._timer = self._loop.call_later(self._patience, self._look)

    def forget(self) -> None:
        """The connection is lost."""
        if self._timer:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        if not self._paused and not self._transport.is_closing():
            return
        if self._resumed or self._transport.get_write_buffer_size() < self._left:
            self.watch()
        else:
            self._transport.abort()
