"""One request on its way through the door: its body is checked. If it computes, it is announced and its tokens are counted."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any

from ..http_answer import Message, Receive, Scope, Send, answer
from . import paths
from .announcer import DoorAnnouncer
from .body import BodyCheck, CleanBody, prompt_tokens
from .keys import KeyEntry
from .usage import ANYONE, DoorUsage, usage_of

_MOST_GAPS = 4096  # kept for the percentiles of inter-token latency
_NO_EVENT = b":"  # first byte of a comment in an event stream


@dataclass(frozen=True, slots=True)
class VisitParts:
    """What all visits share. `fault` counts an error of the named step, while it is handled."""

    usage: DoorUsage
    announcer: DoorAnnouncer
    check: BodyCheck
    most_bytes: int
    fault: Callable[[str], None]


class DoorVisit:
    """From `begin` to `end`. `receive` and `send` replace those of the server. `works`: the engine computes for it."""

    def __init__(
        self, parts: VisitParts, scope: Scope, receive: Receive, send: Send, entry: KeyEntry | None, *, works: bool
    ) -> None:
        self._parts, self._scope, self._receive, self._send, self._entry = parts, scope, receive, send, entry
        self._account = (entry.account if entry else None) or ANYONE
        self._pieces: list[bytes] = []
        self._size = 0
        self._works = works
        self._read = self._refused = self._announced = self._entered = self._streams = False
        self._status = 0
        self._id = f"{random.getrandbits(128):032x}"
        self._began = monotonic()
        self._last: float | None = None
        self._gaps: list[float] = []
        self._tail = b"", b""  # the last two parts of the answer
        self._events = 0

    def begin(self) -> None:
        """Count the caller. A form is announced at once, because its body is not read here."""
        try:
            if not self._works:
                return
            self._parts.usage.accounts[self._account].requests += 1
            self._parts.usage.open += 1
            self._entered = True
            content_type = next((value for name, value in self._scope["headers"] if name == b"content-type"), b"")
            if paths.is_upload(paths.path_of(self._scope), content_type):
                self._read = True
                self._announce(0)
        except Exception:
            self._parts.fault("begin")

    async def receive(self) -> Message:
        """The whole checked body as one message; later what the server says, as the disconnect. A call may be cancelled."""
        while not self._read:
            message = await self._receive()
            if message["type"] != "http.request":
                return message
            self._pieces.append(message.get("body", b""))
            self._size += len(self._pieces[-1])
            if self._size > self._parts.most_bytes:
                await self._refuse()
                return {"type": "http.disconnect"}
            if not message.get("more_body"):
                self._read = True
                return {"type": "http.request", "body": self._checked(), "more_body": False}
        return await self._receive()

    async def send(self, message: Message) -> None:
        """Pass on a part of the answer, then note it."""
        if self._refused:
            return
        await self._send(message)
        try:
            if self._entered:
                self._note(message)
        except Exception:
            self._parts.fault("answer")

    def end(self) -> None:
        """The request is over, for whatever reason."""
        try:
            if self._entered:
                self._parts.usage.open -= 1
                self._count()
            if self._announced:
                gaps = sorted(self._gaps)
                latency = {"itl_p50_ms": _share(gaps, 0.5), "itl_p95_ms": _share(gaps, 0.95)} if gaps else {}
                self._tell({"event": "finished", "output_tokens": self._events, **latency})
        except Exception:
            self._parts.fault("count")

    async def _refuse(self) -> None:
        """Answer 413. What the application answers to its lost body is dropped."""
        self._read, self._pieces = True, []
        self._parts.usage.refused[413] += 1
        limit = self._parts.most_bytes // 1024 // 1024
        error = {"message": f"The body is larger than {limit} MB", "type": "slackwater_door", "code": 413}
        if not self._status:
            await answer(self._scope, self._send, 413, {"error": error}, [(b"connection", b"close")])
        self._refused = True

    def _checked(self) -> bytes:
        """The body without the fields of the operator. Announces the request, which is now sent to the engine."""
        body, self._pieces = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces), []
        clean = CleanBody(body, False, 0)
        try:
            clean = self._parts.check.clean(body)
            self._parts.usage.cleaned += clean.removed
        except Exception:
            self._parts.fault("body")
        try:
            if self._entered:
                self._announce(clean.max_tokens)
        except Exception:
            self._parts.fault("announce")
        return clean.data

    def _announce(self, max_tokens: int) -> None:
        size = {"prompt_tokens": prompt_tokens(self._size), "max_tokens": max_tokens}
        self._announced = True
        told = self._parts.announcer.tell({"id": self._id, "event": "arrived", "class": "sync", **size}, at_once=True)
        self._parts.usage.announced += told

    def _tell(self, event: dict[str, Any]) -> None:
        self._parts.announcer.tell({"id": self._id, **event})

    def _note(self, message: Message) -> None:
        """Measure the answer: time to the first token, gaps between tokens, and the parts where the usage is."""
        if message["type"] == "http.response.start":
            kinds = (value for name, value in message.get("headers", ()) if name.lower() == b"content-type")
            self._status, self._streams = message["status"], next(kinds, b"").startswith(b"text/event-stream")
            return
        body = message.get("body", b"")
        if not body or (self._streams and body.startswith(_NO_EVENT)):
            return
        now, before = monotonic(), self._last
        self._last, self._tail = now, (self._tail[1], body)
        self._events += self._streams
        if before is None:
            ttft = round((now - self._began) * 1000, 3) if self._streams else None
            self._tell({"event": "first_token", "ttft_ms": ttft})
        elif self._streams and len(self._gaps) < _MOST_GAPS:
            self._gaps.append(now - before)

    def _count(self) -> None:
        if self._last is None or self._status != 200:
            return  # the engine computed nothing
        reported = usage_of(self._tail)
        prompt, completion = reported or (prompt_tokens(self._size), self._events)
        self._parts.usage.add(self._account, prompt, completion, estimated=reported is None)
        if self._entry is None:
            return
        self._entry.answered += 1
        self._entry.prompt_tokens += prompt
        self._entry.completion_tokens += completion
        if self._entry.limited:
            self._entry.new_tokens += completion


def _share(ordered: list[float], share: float) -> float:
    """This percentile of the sorted seconds, in milliseconds."""
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000, 3)
