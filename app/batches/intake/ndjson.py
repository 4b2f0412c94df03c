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
        self._rest = b""
        self._seen = 0

    def feed(self, block: bytes) -> list[bytes]:
        """The lines that end in this block, without line ends. Raises LineTooLong."""
        *lines, self._rest = (self._rest + block).split(b"\n")
        if lines and not self._seen:
            lines[0] = lines[0].removeprefix(_BOM)
        for line in lines:
            self._seen += 1
            if len(line) > self._cap:
                raise LineTooLong(self._seen, self._cap)
        if len(self._rest) > self._cap:
            raise LineTooLong(self._seen + 1, self._cap)
        return lines

    def close(self) -> list[bytes]:
        """The last line, if it has no line end."""
        rest, self._rest = self._rest, b""
        if not self._seen:
            rest = rest.removeprefix(_BOM)
        return [rest] if rest else []
