"""The limited protocol on httptools. httptools is not a dependency; an installation of vLLM includes it."""

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.serving.http_protocol import LimitedProtocol
from app.serving.request_limits import HEAD_BYTES


class LimitedHttpTools(LimitedProtocol, HttpToolsProtocol):
    """With httptools, which stores incomplete data without a limit."""

    _delivered = False
    _incomplete_bytes = 0
    _current: Any = None  # the request that is being answered; uvicorn's `cycle` is the newest one

    def _feed(self, data: bytes) -> None:
        self._delivered = False
        super()._feed(data)
        self._incomplete_bytes = 0 if self._delivered else self._incomplete_bytes + len(data)
        if self._incomplete_bytes > HEAD_BYTES and not self.transport.is_closing():
            self.refuse_head()

    def on_headers_complete(self) -> None:
        self._delivered = True
        super().on_headers_complete()
        if not self.pipeline:
            self._current = self.cycle

    def on_response_complete(self) -> None:
        self._current = self.pipeline[-1][0] if self.pipeline else None
        super().on_response_complete()

    def _unanswered(self) -> list[Any]:
        cycles = (self._current, *(cycle for cycle, _ in self.pipeline))
        return [cycle for cycle in cycles if cycle is not None and not cycle.response_complete]

    def on_body(self, body: bytes) -> None:
        self._delivered = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._delivered = True
        super().on_message_complete()
