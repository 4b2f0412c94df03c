"""Split a byte stream into lines of limited length. Pure."""

_BOM = b"\xef\xbb\xbf"  # Excel and PowerShell write it before UTF-8


class LineTooLong(ValueError):
    """A line exceeds the limit; `number` counts from 1."""

    def __init__(self, number: int, cap: int) -> None:
        super().__init__(f"line {number} is longer than {cap} bytes")
        self.number = number


class LineSplitter:
    """Takes blocks and returns whole lines; `close` returns an unterminated last one. A byte order mark is removed."""

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._rest = bytearray()  # of the line that has not ended
        self._seen = 0

    def feed(self, block: bytes) -> list[bytes]:
        """The lines that end in this block, without line ends. Raises LineTooLong."""
        *ends, rest = block.split(b"\n")
        lines = [self._line(end) for end in ends]
        self._take(rest)
        return lines

    def close(self) -> list[bytes]:
        """The last line, if it has no line end."""
        rest = self._line(b"")
        return [rest] if rest else []

    def _take(self, piece: bytes) -> None:
        if len(self._rest) + len(piece) > self._cap:
            raise LineTooLong(self._seen + 1, self._cap)
        self._rest += piece

    def _line(self, end: bytes) -> bytes:
        """The line that ends with this piece."""
        line = end
        if self._rest or len(end) > self._cap:
            self._take(end)
            line = bytes(self._rest)
            self._rest.clear()
        self._seen += 1
        return line.removeprefix(_BOM) if self._seen == 1 else line
