"""The guarded protocol on httptools, which is no dependency of ours: an engine's installation brings it."""

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.api.http_protocol import Guarded
from app.api.request_limits import HEAD_BYTES


class GuardedHttpTools(Guarded, HttpToolsProtocol):
    """With httptools, which keeps whatever is incomplete, without an end."""

    _delivered = False
    _silent_bytes = 0
    _current: Any = None  # the request that is being answered; uvicorn's `cycle` is the last one that came

    def _feed(self, data: bytes) -> None:
        self._delivered = False
        super()._feed(data)
        self._silent_bytes = 0 if self._delivered else self._silent_bytes + len(data)
        if self._silent_bytes > HEAD_BYTES and not self.transport.is_closing():
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
