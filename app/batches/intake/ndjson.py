"""Lines of JSON: a byte stream is split into them, and those that we write stay whole. Pure."""

from app.batches.validation import text_kinds
from app.batches.validation.text_kinds import BOM
from app.errors import BadInput

# httpx's `iter_lines`, Python's `splitlines` and Node's readline end lines at these, too.
_OTHER_ENDS = [(char.encode(), b"\\u%04x" % ord(char)) for char in "\x85\u2028\u2029"]


def unbroken(lines: bytes) -> bytes:
    """Lines of JSON that every reader ends at the same places: other line ends, which can only be in strings, are escaped."""
    if not lines.isascii():
        for char, escaped in _OTHER_ENDS:
            lines = lines.replace(char, escaped)
    return lines


class LineTooLong(BadInput):
    """A line exceeds the limit, which is the operator's; `number` counts from 1. `what`: the text is that, and no lines."""

    def __init__(self, number: int, size: int, cap: int, what: str = "") -> None:
        too_long = (
            f"line {number} has {size:,} bytes, and a line may have at most {cap:,}; make it shorter, or ask the operator to "
            "raise SLACKWATER_NDJSON_LINE_MB"
        )
        super().__init__(f"The text is {what}" if what else too_long)


class LineSplitter:
    """Takes blocks and returns whole lines; `close` returns an unterminated last one. A byte order mark is removed."""

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._rest = bytearray()  # of the line that has not ended, unless it is too long already
        self._size = 0  # of that line so far
        self._seen = 0
        self._head = b""

    @property
    def head(self) -> bytes:
        """The beginning of the text, for `text_kinds.of_file`."""
        return self._head.removeprefix(BOM)

    def feed(self, block: bytes) -> list[bytes]:
        """The lines that end in this block, without line ends. Raises LineTooLong."""
        self._head += block[: text_kinds.HEAD - len(self._head)]
        *ends, rest = block.split(b"\n")
        lines = [self._line(end) for end in ends]
        self._take(rest)
        return lines

    def close(self) -> list[bytes]:
        """The last line, if it has no line end. Raises LineTooLong."""
        rest = self._line(b"")
        return [rest] if rest else []

    def _take(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self._cap:
            self._rest += piece

    def _line(self, end: bytes) -> bytes:
        """The line that ends with this piece."""
        self._seen += 1
        size, self._size = self._size + len(end), 0
        if size > self._cap:
            raise LineTooLong(self._seen, size, self._cap, text_kinds.of_file(self.head) if self._seen == 1 else "")
        line = end
        if self._rest:
            line = bytes(self._rest + end)
            self._rest.clear()
        return line.removeprefix(BOM) if self._seen == 1 else line
