"""One range of bytes of an answer (RFC 9110, section 14). The answer to several or malformed ranges is the whole content."""

import re
from dataclasses import dataclass

_DIGITS = 19  # of a number of bytes that no content has, 10^18
_RANGE = re.compile(r"(?i:bytes)=([0-9]*)-([0-9]*)")


@dataclass(frozen=True, slots=True)
class Range:
    """The bytes from `first` to `last`, both included; without `first`, the last `last` bytes."""

    first: int | None
    last: int | None

    def within(self, size: int) -> tuple[int, int] | None:
        """The first byte and the number of bytes; None: the range is empty."""
        if self.first is None:
            count = min(self.last or 0, size)
            return (size - count, count) if count else None
        if self.first >= size:
            return None
        last = size - 1 if self.last is None else min(self.last, size - 1)
        return self.first, last - self.first + 1


def parse(header: str | None) -> Range | None:
    """The range in a request's header; None: the whole content."""
    found = _RANGE.fullmatch(header.strip()) if header else None
    if found is None or not (found[1] or found[2]):
        return None
    first, last = (_number(text) if text else None for text in found.groups())
    return None if first is not None and last is not None and last < first else Range(first, last)


def _number(digits: str) -> int:
    """The number, or one that is beyond every content."""
    return int(digits.lstrip("0")[:_DIGITS] or "0")
