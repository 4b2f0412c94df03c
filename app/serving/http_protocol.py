"""uvicorn's HTTP protocols with limits that apply before the API key is known.

- The size of data that completes no head and no part of a body (headers, URL, trailers, chunk extensions) is limited: 431.
- A head must be complete within `header_seconds`, and a body may pause for `body_seconds`: 408.
- A client that reads nothing of an answer for `body_seconds` loses its connection.
- The number of connections is limited: see app.serving.connection_limits.

app.serving.request_limits has the exact limits of a complete head.
"""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

from app.serving.connection_limits import ConnectionEntry, ConnectionLimits
from app.serving.request_limits import HEAD_BYTES, HEADERS
from app.serving.unread_answer import UnreadAnswer

_STEP_BYTES = 16 * 1024  # a head is parsed in steps of this size
_LINGER_SECONDS = 2.0
_CROWDED = "Too many connections are open. Close idle ones, or try again in a few seconds."


# What a client reads that is refused before its request is known: media type and body, by status and message.
Refusal = Callable[[int, str], tuple[str, bytes]]


def plain(status: int, message: str) -> tuple[str, bytes]:
    """A refusal as text, for browsers."""
    return "text/plain; charset=utf-8", f"{message}\n".encode()


@dataclass(frozen=True)
class ClientTimeouts:
    """Timeouts in seconds: for a complete head, and between two bytes of a body, whether the client sends or reads them."""

    head: float
    body: float


class _Transport:
    """A transport whose `close` lets the last answer arrive. Closing a connection with unread data sends a reset, and the client
    loses the answer. So further data is read and discarded for a moment.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        unread: Callable[[], bool],
        resumed: Callable[[], None],
        closed: Callable[[], None],
    ) -> None:
        self._transport, self._unread, self._resumed, self._closed = transport, unread, resumed, closed
        self._lingering = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._lingering or self._transport.is_closing()

    def resume_reading(self) -> None:
        self._transport.resume_reading()
        self._resumed()

    def close(self) -> None:
        if self.is_closing():
            return
        if not self._unread():
            self._transport.close()
            self._closed()
            return
        self._lingering = True
        self._transport.resume_reading()
        self._transport.write_eof()
        asyncio.get_running_loop().call_later(_LINGER_SECONDS, self._transport.abort)

    def forget(self) -> None:
        """The connection is lost: let go of its protocol, so that both are freed at once, with the bytes of the last request."""
        self._unread, self._resumed = bool, _nothing


def _nothing() -> None:
    pass


_Base: Any = object  # one of uvicorn's protocols is the next base class


class LimitedProtocol(_Base):  # type: ignore[misc]
    """A mixin that adds the limits to one of uvicorn's protocols."""

    connection_limits: ConnectionLimits
    client_timeouts: ClientTimeouts
    refusal: Refusal
    app_state: dict[str, Any]

    # head: begun; body: incomplete; answer: the request is complete; idle: no request;
    # queued: the request is answered only after the client has read the answers before it
    _phase = ""
    _timer: asyncio.TimerHandle | None = None
    _unread_answer: UnreadAnswer
    _is_behind = False  # when the request began, the client had not read the answers before it
    _data_at = 0.0
    _refused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        raw = cast(asyncio.Transport, transport)
        self._unread_answer = UnreadAnswer(raw, self.loop, self.client_timeouts.body)
        super().connection_made(
            cast(asyncio.Transport, _Transport(raw, self._unread, self._note_data, self._unread_answer.watch))
        )
        entry = self.connection_limits.enter(self, self.client[0] if self.client else "")
        if entry is ConnectionEntry.REFUSED:
            self._refuse(503, _CROWDED)
            return
        self.app_state = {**self.app_state, "abort": raw.abort}
        if entry is ConnectionEntry.RESERVE:
            self.app_state["crowded"] = _CROWDED
        self._enter_phase("head")

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_timer(None)
        self._unread_answer.forget()
        self.connection_limits.leave(self)
        for cycle in self._unanswered():
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)
        self.transport.forget()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread_answer.pause()
        self._update_phase(self._phase)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unread_answer.resume()
        self._is_behind = False
        self._update_phase(self._phase)

    def data_received(self, data: bytes) -> None:
        self._note_data()
        if self._phase in ("head", "idle"):
            self._is_behind = self.transport.get_write_buffer_size() > 0
        while data and not self.transport.is_closing():
            step = len(data) if self._phase == "body" else _STEP_BYTES
            self._feed(data[:step])
            data = data[step:]
            if not self.transport.is_closing():
                self._update_phase("head")

    def _feed(self, data: bytes) -> None:
        super().data_received(data)

    def on_response_complete(self) -> None:
        self._is_behind = self.transport.get_write_buffer_size() > 0
        super().on_response_complete()
        if not self.transport.is_closing():
            self._update_phase("idle")

    def send_400_response(self, msg: str) -> None:
        """uvicorn calls this for data that is not HTTP."""
        too_large = getattr(sys.exc_info()[1], "error_status_hint", 400) == 431
        if too_large:
            self.refuse_head()
        else:
            self._refuse(400, "This is not an HTTP request: one of its lines, or its framing, is malformed.")

    def refuse_head(self) -> None:
        """Answer that the head, or a trailer, is too long."""
        most = f"{HEADERS} headers, with the URL {HEAD_BYTES} bytes"
        self._refuse(431, f"The request's headers are too long: at most {most} are accepted. Remove some.")

    def drop(self) -> None:
        """Close the connection at once, without an answer."""
        self.transport.abort()

    def _update_phase(self, otherwise: str) -> None:
        cycle = self.cycle
        busy = cycle is not None and not cycle.response_complete
        if busy and self._is_behind and self.flow.write_paused:
            self._enter_phase("queued")
        else:
            self._enter_phase(("body" if cycle.more_body else "answer") if busy else otherwise)

    def _enter_phase(self, phase: str) -> None:
        if phase == self._phase:
            return
        self._phase = phase
        (self.connection_limits.work if phase in ("body", "answer") else self.connection_limits.rest)(self)
        self._set_timer({"head": self.client_timeouts.head, "body": self.client_timeouts.body}.get(phase))

    def _set_timer(self, seconds: float | None) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, self._timed_out) if seconds is not None else None

    def _timed_out(self) -> None:
        if self._phase == "head":
            self._refuse(408, f"The request's headers were not complete within {self.client_timeouts.head:g} seconds.")
            return
        if self.flow.read_paused or self.cycle.waiting_for_100_continue:
            self._note_data()  # the server, not the client, causes the pause
        rest = self._data_at + self.client_timeouts.body - self.loop.time()
        if rest > 0:
            self._set_timer(rest)
        else:
            self._refuse(
                408, f"Nothing of the request's body came for {self.client_timeouts.body:g} seconds. Send it again."
            )

    def _unanswered(self) -> list[Any]:
        """The requests that have no complete answer yet."""
        return [] if self.cycle is None or self.cycle.response_complete else [self.cycle]

    def _note_data(self) -> None:
        self._data_at = self.loop.time()

    def _unread(self) -> bool:
        return self._refused or (self.cycle is not None and self.cycle.more_body)

    def _refuse(self, status: int, message: str) -> None:
        """Answer without the application, and close the connection."""
        self._refused = True
        self._set_timer(None)
        self._unset_keepalive_if_required()
        cycle = self.cycle
        busy = cycle is not None and not cycle.response_complete
        if busy:
            cycle.disconnected = True
            cycle.message_event.set()
        if busy and (cycle.response_started or getattr(self, "pipeline", None) or not cycle.more_body):
            self.transport.abort()  # two answers must not be mixed
            return
        kind, body = self.refusal(status, message)
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: {kind}\r\n"
            f"content-length: {len(body)}\r\nx-should-retry: {'true' if status in (408, 503) else 'false'}\r\n"
            "connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


class LimitedH11(LimitedProtocol, H11Protocol):
    """With h11, which limits the size of incomplete data itself."""


def parsers() -> list[type[LimitedProtocol]]:
    """The protocols that are installed, fastest first."""
    try:
        from app.serving.http_protocol_httptools import LimitedHttpTools
    except ImportError:
        return [LimitedH11]
    return [LimitedHttpTools, LimitedH11]


def limited(
    base: type[LimitedProtocol], connections: ConnectionLimits, timeouts: ClientTimeouts, refusal: Refusal
) -> type[asyncio.Protocol]:
    """The protocol class with these limits."""
    known = {"connection_limits": connections, "client_timeouts": timeouts, "refusal": staticmethod(refusal)}
    return type("Limited", (base,), known)
