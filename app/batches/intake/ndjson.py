"""Split a byte stream into lines, with a cap on each. Pure."""

_BOM = b"\xef\xbb\xbf"  # which Excel and PowerShell put before UTF-8


class LineTooLong(ValueError):
    """A line exceeds its cap; `number` counts from 1."""

    def __init__(self, number: int, cap: int) -> None:
        super().__init__(f"line {number} is longer than {cap} bytes")
        self.number = number


class LineSplitter:
    """Feed it blocks, take whole lines; `close` gives the unterminated last one. A byte order mark is no part of the first."""

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._rest = b""
        self._seen = 0

    def feed(self, block: bytes) -> list[bytes]:
        """The lines that this block completes, without their line ends. Raises LineTooLong."""
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
        """The last line, if it did not end in a line end."""
        rest, self._rest = self._rest, b""
        if not self._seen:
            rest = rest.removeprefix(_BOM)
        return [rest] if rest else []
