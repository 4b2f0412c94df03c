"""Ids of files as callers see them: `file-` and 22 letters or digits, as OpenAI's look. Pure."""

import string
from uuid import UUID

PREFIX = "file-"
_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_VALUES = {digit: value for value, digit in enumerate(_DIGITS)}
_LENGTH = 22  # of 128 bits to the base 62


def written(file_id: UUID) -> str:
    """The id of a file."""
    rest, digits = file_id.int, ""
    for _ in range(_LENGTH):
        rest, digit = divmod(rest, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return PREFIX + digits


def read(text: str) -> UUID | None:
    """The file that an id names; None for what cannot be one."""
    digits = text.removeprefix(PREFIX)
    if not text.startswith(PREFIX) or len(digits) != _LENGTH or not all(digit in _VALUES for digit in digits):
        return None
    value = 0
    for digit in digits:
        value = value * len(_DIGITS) + _VALUES[digit]
    return UUID(int=value) if value < 1 << 128 else None
