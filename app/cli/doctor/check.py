"""The result of one check."""

from dataclasses import dataclass
from enum import StrEnum


class CheckStatus(StrEnum):
    """`warn`: it works, but not as well as it could. `fail`: it does not work. `skip`: nothing could be checked."""

    OK = "ok"
    SKIP = "skip"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """`detail` says what was found, `fix` what to do about it."""

    name: str
    status: CheckStatus
    detail: str
    fix: str = ""


def ok(name: str, detail: str) -> Check:
    """A check without a problem."""
    return Check(name, CheckStatus.OK, detail)


def skip(name: str, detail: str) -> Check:
    """A check of something that is not there, or cannot be seen now."""
    return Check(name, CheckStatus.SKIP, detail)


def warn(name: str, detail: str, fix: str) -> Check:
    """A problem that does not prevent operation."""
    return Check(name, CheckStatus.WARN, detail, fix)


def fail(name: str, detail: str, fix: str) -> Check:
    """A problem that prevents operation."""
    return Check(name, CheckStatus.FAIL, detail, fix)
