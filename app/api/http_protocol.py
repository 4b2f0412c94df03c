"""uvicorn's HTTP protocols with bounds on what a client may send, and on how slowly, before any key of its is known.

- What comes without completing a head or a part of a body (headers, a URL, trailers, extensions of a chunk) is bounded: 431.
- A head must be complete within `header_seconds`, and a body may pause for `body_seconds`: 408.
- An answer of which the client takes nothing for `body_seconds` ends its connection.
- Connections are bounded: see connection_limits.py.

Exact bounds of a complete head are app.api.request_limits's, which has it parsed.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

from app.api.connection_limits import Admission, ConnectionLimits
from app.api.envelope import refusal
from app.api.request_limits import HEAD_BYTES, HEADERS
from app.api.untaken_answer import UntakenAnswer

_STEP_BYTES = 16 * 1024  # of a head, at a time
_LINGER_SECONDS = 2.0
_CROWDED = "Too many connections are open. Close idle ones, or try again in a few seconds."


@dataclass(frozen=True)
class ClientTimeouts:
    """How long is waited, in seconds: for a complete head, and between two bytes of a body, sent or taken by the client."""

    head: float
    body: float


class _Transport:
    """A transport whose `close` lets the last answer arrive: one that is closed with something unread tells the client of a
    reset, and what was written before it is lost. So what still comes is thrown away for a moment.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        unread: Callable[[], bool],
        resumed: Callable[[], None],
        closed: Callable[[], None],
    ) -> None:
        self._transport, self._unread, self._resumed, self._closed = transport, unread, resumed, closed
        self._lingers = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._lingers or self._transport.is_closing()

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
        self._lingers = True
        self._transport.resume_reading()
        self._transport.write_eof()
        asyncio.get_running_loop().call_later(_LINGER_SECONDS, self._transport.abort)


_Base: Any = object  # one of uvicorn's protocols follows it among the bases


class Guarded(_Base):  # type: ignore[misc]
    """In front of one of uvicorn's protocols."""

    room: ConnectionLimits
    patience: ClientTimeouts
    app_state: dict[str, Any]

    # head: it has begun; body: it is incomplete; answer: nothing is to come; idle: nothing has begun;
    # queued: the request's turn comes once the client takes the answers before it
    _phase = ""
    _timer: asyncio.TimerHandle | None = None
    _untaken: UntakenAnswer
    _is_behind = False  # when the request began, answers before it had not been taken
    _fed_at = 0.0
    _refused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        raw = cast(asyncio.Transport, transport)
        self._untaken = UntakenAnswer(raw, self.loop, self.patience.body)
        super().connection_made(
            cast(asyncio.Transport, _Transport(raw, self._unread, self._touch, self._untaken.watch))
        )
        entry = self.room.enter(self, self.client[0] if self.client else "")
        if entry is Admission.REFUSED:
            self._refuse(503, _CROWDED)
            return
        if entry is Admission.RESERVE:
            self.app_state = {**self.app_state, "crowded": _CROWDED}
        self._turn("head")

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait(None)
        self._untaken.forget()
        self.room.leave(self)
        for cycle in self._unanswered():
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._untaken.pause()
        self._settle(self._phase)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._untaken.resume()
        self._is_behind = False
        self._settle(self._phase)

    def data_received(self, data: bytes) -> None:
        self._touch()
        if self._phase in ("head", "idle"):
            self._is_behind = self.transport.get_write_buffer_size() > 0
        while data and not self.transport.is_closing():
            step = len(data) if self._phase == "body" else _STEP_BYTES
            self._feed(data[:step])
            data = data[step:]
            if not self.transport.is_closing():
                self._settle("head")

    def _feed(self, data: bytes) -> None:
        super().data_received(data)

    def on_response_complete(self) -> None:
        self._is_behind = self.transport.get_write_buffer_size() > 0
        super().on_response_complete()
        if not self.transport.is_closing():
            self._settle("idle")

    def send_400_response(self, msg: str) -> None:
        """What uvicorn calls for what is no HTTP."""
        too_large = getattr(sys.exc_info()[1], "error_status_hint", 400) == 431
        if too_large:
            self.refuse_head()
        else:
            self._refuse(400, "This is no HTTP request: a line of it, or its framing, is malformed.")

    def refuse_head(self) -> None:
        """Answer that the head, or what else describes the request, is too long."""
        most = f"{HEADERS} headers, with the URL {HEAD_BYTES} bytes"
        self._refuse(431, f"The request's headers are too long: at most {most} are taken. Leave some out.")

    def drop(self) -> None:
        """Close it at once, without a word."""
        self.transport.abort()

    def _settle(self, otherwise: str) -> None:
        cycle = self.cycle
        busy = cycle is not None and not cycle.response_complete
        if busy and self._is_behind and self.flow.write_paused:
            self._turn("queued")
        else:
            self._turn(("body" if cycle.more_body else "answer") if busy else otherwise)

    def _turn(self, phase: str) -> None:
        if phase == self._phase:
            return
        self._phase = phase
        (self.room.work if phase in ("body", "answer") else self.room.rest)(self)
        self._wait({"head": self.patience.head, "body": self.patience.body}.get(phase))

    def _wait(self, seconds: float | None) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, self._late) if seconds is not None else None

    def _late(self) -> None:
        if self._phase == "head":
            self._refuse(408, f"The request's headers were not complete within {self.patience.head:g} seconds.")
            return
        if self.flow.read_paused or self.cycle.waiting_for_100_continue:
            self._touch()  # it is our turn
        rest = self._fed_at + self.patience.body - self.loop.time()
        if rest > 0:
            self._wait(rest)
        else:
            self._refuse(408, f"Nothing of the request's body came for {self.patience.body:g} seconds. Send it again.")

    def _unanswered(self) -> list[Any]:
        """The requests that have no complete answer yet."""
        return [] if self.cycle is None or self.cycle.response_complete else [self.cycle]

    def _touch(self) -> None:
        self._fed_at = self.loop.time()

    def _unread(self) -> bool:
        return self._refused or (self.cycle is not None and self.cycle.more_body)

    def _refuse(self, status: int, message: str) -> None:
        """Answer on our own, and close."""
        self._refused = True
        self._wait(None)
        self._unset_keepalive_if_required()
        cycle = self.cycle
        busy = cycle is not None and not cycle.response_complete
        if busy:
            cycle.disconnected = True
            cycle.message_event.set()
        if busy and (cycle.response_started or getattr(self, "pipeline", None) or not cycle.more_body):
            self.transport.abort()  # another answer is on its way, and may not be mixed with this one
            return
        body = json.dumps(refusal(status, message)).encode()
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nx-should-retry: {'true' if status in (408, 503) else 'false'}\r\n"
            "connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


class GuardedH11(Guarded, H11Protocol):
    """With h11, which bounds by itself what is incomplete."""


def parsers() -> list[type[Guarded]]:
    """uvicorn's protocols that can be used here, the fastest first."""
    try:
        from app.api.http_protocol_httptools import GuardedHttpTools
    except ImportError:
        return [GuardedH11]
    return [GuardedHttpTools, GuardedH11]


def guarded(base: type[Guarded], room: ConnectionLimits, patience: ClientTimeouts) -> type[asyncio.Protocol]:
    """The protocol with these bounds."""
    return type("Guarded", (base,), {"room": room, "patience": patience})
