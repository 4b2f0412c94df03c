"""What a placeholder such as `[EMAIL_1]` looks like, for whoever cuts or compares texts that may have some. Pure."""

import re

LONGEST = 20  # characters of a placeholder: a kind of 12, a number of 5, `[`, `_` and `]`
SHAPE = re.compile(r"\[[A-Z][A-Z0-9_]{0,11}_[0-9]{1,5}\]")


def outside(text: str, at: int) -> int:
    """Where to cut a text near `at`: not within a placeholder."""
    for found in SHAPE.finditer(text, max(0, at - LONGEST), at + LONGEST):
        if found.start() < at < found.end():
            return found.start()
    return at
