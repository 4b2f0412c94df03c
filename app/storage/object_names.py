"""The keys of objects: uploads, and a batch's large bodies. Pure.

The day comes first, as in the tables, so that a day's objects, orphans included, can be deleted together. A result's key ends in
the fence of its writer, so that a late writer cannot replace another one's object.
"""

from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

_FIRST_DAY = date(2024, 1, 1)  # as next_batch_id() in the first migration
_DAY_BITS = 36
_INCOMPLETE = "-incomplete"
FILES = "file/"
MARKERS = "marker/"
CHECKPOINTS = "audit/"
_INSTALLATION = "~"  # no name of an account has this character


def payload(batch_id: int, seq: int) -> str:
    """The key of an item's body."""
    return f"payload/{_day(batch_id)}/{batch_id}/{seq}"


def result(batch_id: int, run: int, seq: int, fence: tuple[int, int, int], *, incomplete: bool = False) -> str:
    """The key of an item's answer, written under the fence (chunk, token, worker). The key shows whether the answer's status is
    `incomplete`, so that the object need not be read for that.
    """
    end = _INCOMPLETE if incomplete else ""
    return f"result/{_day(batch_id)}/{batch_id}/{run}/{seq}/{'-'.join(map(str, fence))}{end}"


def is_incomplete(key: str) -> bool:
    """Whether the answer under this key has the status `incomplete`."""
    return key.endswith(_INCOMPLETE)


def upload(tenant_id: int, file_id: UUID) -> str:
    """The key of an uploaded file."""
    return f"{FILES}{tenant_id}/{file_id.hex}"


def parts(tenant_id: int, upload_id: UUID) -> str:
    """The prefix of an upload's parts."""
    return f"upload/{tenant_id}/{upload_id.hex}/"


def part(tenant_id: int, upload_id: UUID, part_id: UUID) -> str:
    """The key of one part."""
    return f"{parts(tenant_id, upload_id)}{part_id.hex}"


def owner(key: str) -> UUID | None:
    """The file or upload that an object belongs to. None: a key of another kind."""
    match key.split("/"):
        case ["file", _, name] | ["upload", _, name, _]:
            with suppress(ValueError):
                return UUID(name)
    return None


def marker(name: UUID) -> str:
    """The key of the marker object (see `app.files.shared_storage`)."""
    return f"{MARKERS}{name.hex}"


def checkpoint(account: str, seq: int, at: datetime) -> str:
    """The key of a checkpoint of the audit log. No checkpoint replaces another one."""
    return f"{checkpoints(account)}{seq}-{at.astimezone(UTC):%Y%m%dT%H%M%S%f}"


def checkpoints(account: str) -> str:
    """The prefix of the checkpoints of an account; empty: of the installation."""
    return f"{CHECKPOINTS}{account or _INSTALLATION}/"


def of_day(day: date) -> tuple[str, ...]:
    """The prefixes of a day's objects."""
    return tuple(f"{kind}/{day:%Y%m%d}/" for kind in ("payload", "result"))


def of_batch(batch_id: int) -> tuple[str, ...]:
    """The prefixes of a batch's objects."""
    return tuple(f"{kind}/{_day(batch_id)}/{batch_id}/" for kind in ("payload", "result"))


def of_tenant(tenant_id: int) -> tuple[str, ...]:
    """The prefixes of a tenant's uploads."""
    return tuple(f"{kind}/{tenant_id}/" for kind in ("file", "upload"))


def _day(batch_id: int) -> str:
    return f"{_FIRST_DAY + timedelta(days=batch_id >> _DAY_BITS):%Y%m%d}"
