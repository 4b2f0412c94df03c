"""Ends the connection of a client that does not read its answer."""

import asyncio


class UnreadAnswer:
    """Ends a connection whose client reads nothing of a pending answer for `timeout` to twice `timeout` seconds.

    It compares the size of the write buffer only while it can merely shrink: nothing is written while the protocol is paused or
    the connection is being closed.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, timeout: float) -> None:
        self._transport, self._loop, self._timeout = transport, loop, timeout
        self._timer: asyncio.TimerHandle | None = None
        self._paused = self._resumed = False
        self._left = 0

    def pause(self) -> None:
        """The write buffer is full."""
        self._paused = True
        self.watch()

    def resume(self) -> None:
        """The client has read most of the write buffer."""
        self._paused, self._resumed = False, True

    def watch(self) -> None:
        """Start to check whether the client reads the rest of the write buffer, unless it is empty."""
        left = self._transport.get_write_buffer_size()
        if self._timer is None and left:
            self._left, self._resumed = left, False
            self._timer = self._loop.call_later(self._timeout, self._check)

    def forget(self) -> None:
        """The connection is lost."""
        if self._timer:
            self._timer.cancel()

    def _check(self) -> None:
        self._timer = None
        if not self._paused and not self._transport.is_closing():
            return
        if self._resumed or self._transport.get_write_buffer_size() < self._left:
            self.watch()
        else:
            self._transport.abort()
