"""Splits the body of an engine's answer into the events of a `text/event-stream`. It may be no stream at all."""

from collections.abc import AsyncIterator

import aiohttp

DONE = b"[DONE]"
_BEGINNING = 2000  # bytes


class EventSplitter:
    """Splits the body, however its bytes are divided into blocks. Its lines may be of any length.

    `begun`: whether there was an event. `other`: the beginning of what is none, such as a proxy's page.
    """

    def __init__(self) -> None:
        self.begun = False
        self.other = b""
        self._rest: list[bytes] = []  # pieces of the line that has not ended
        self._data: list[bytes] = []  # lines of the event that has not ended

    async def events(self, content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
        """The data of each event, up to the end of the body."""
        async for block in content.iter_any():
            for data in self.feed(block):
                yield data
        for data in self.end():
            yield data

    def feed(self, block: bytes) -> list[bytes]:
        """The data of the events that this block completes."""
        *ends, rest = block.split(b"\n")
        found: list[bytes] = []
        for end in ends:
            found += self._take(b"".join((*self._rest, end)))
            self._rest.clear()
        self._rest.append(rest)
        return found

    def end(self) -> list[bytes]:
        """The data of an event that lacks its end, an empty line, when the body has ended."""
        rest = b"".join(self._rest)
        if not rest.startswith(b"data:"):
            self._note(rest)
        return self._ended()

    def _take(self, line: bytes) -> list[bytes]:
        """The events that this line ends: an empty one the event before it, `[DONE]` also itself."""
        if not line.strip():
            return self._ended()
        if not line.startswith(b"data:"):
            self._note(line)
            return []
        data = line[5:].strip()
        # Not every server ends its events. JSON never goes on with such a line behind a brace.
        begins = data[:1] in (b"{", b"[") and self._data and self._data[-1].endswith(b"}")
        found = self._ended() if begins else []
        if data:
            self._data.append(data)
        return [*found, *self._ended()] if data == DONE else found

    def _ended(self) -> list[bytes]:
        if not self._data:
            return []
        self.begun = True
        data = b" ".join(self._data)  # in JSON a space means the same as the line end between them
        self._data.clear()
        return [data]

    def _note(self, line: bytes) -> None:
        if not line.startswith(b":") and len(self.other) < _BEGINNING:
            self.other = (self.other + line + b"\n")[:_BEGINNING]
