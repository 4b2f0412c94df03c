"""The public ids of files: `file-` and 22 letters or digits, like OpenAI's. Pure."""

import string
from uuid import UUID

PREFIX = "file-"
_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_VALUES = {digit: value for value, digit in enumerate(_DIGITS)}
_LENGTH = 22  # digits of a 128-bit number in base 62


def format_id(file_id: UUID) -> str:
    """The public id of a file."""
    rest, digits = file_id.int, ""
    for _ in range(_LENGTH):
        rest, digit = divmod(rest, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return PREFIX + digits


def parse_id(text: str) -> UUID | None:
    """The file that a public id names. None: the text is not an id."""
    digits = text.removeprefix(PREFIX)
    if not text.startswith(PREFIX) or len(digits) != _LENGTH or not all(digit in _VALUES for digit in digits):
        return None
    value = 0
    for digit in digits:
        value = value * len(_DIGITS) + _VALUES[digit]
    return UUID(int=value) if value < 1 << 128 else None
