"""What one check says."""

from dataclasses import dataclass
from enum import StrEnum


class CheckStatus(StrEnum):
    """`warn` works but not as well as it could; `fail` does not work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """`detail` is what was seen, `fix` what to do about it."""

    name: str
    status: CheckStatus
    detail: str
    fix: str = ""


def ok(name: str, detail: str) -> Check:
    """As it should be."""
    return Check(name, CheckStatus.OK, detail)


def warn(name: str, detail: str, fix: str) -> Check:
    """Works, but read this."""
    return Check(name, CheckStatus.WARN, detail, fix)


def fail(name: str, detail: str, fix: str) -> Check:
    """Does not work until mended."""
    return Check(name, CheckStatus.FAIL, detail, fix)
