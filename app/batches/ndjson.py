"""Split a byte stream into lines, with a cap on each. Pure."""


class LineTooLong(ValueError):
    """A line exceeds its cap; `number` counts from 1."""

    def __init__(self, number: int, cap: int) -> None:
        super().__init__(f"line {number} is longer than {cap} bytes")
        self.number = number


class LineSplitter:
    """Feed it blocks, take whole lines; `close` gives the unterminated last one."""

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._rest = b""
        self._seen = 0

    def feed(self, block: bytes) -> list[bytes]:
        """The lines that this block completes, without their line ends. Raises LineTooLong."""
        *lines, self._rest = (self._rest + block).split(b"\n")
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
        return [rest] if rest else []
