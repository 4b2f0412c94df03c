"""The ids that begin with what somebody has typed. Pure."""

import re
from uuid import UUID

_LEAST = 4
_PREFIX = re.compile("^(batch|pipe|conv)_")
_DIGITS = set("0123456789abcdef")


def id_range(text: str) -> tuple[UUID, UUID] | None:
    """The ids that begin with these digits. None: no id begins so, or the text is too short to be meant as one."""
    digits = _PREFIX.sub("", text.lower()).replace("-", "")
    if not _LEAST <= len(digits) <= 32 or set(digits) - _DIGITS:
        return None
    return UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
