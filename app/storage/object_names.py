"""Where uploads and a batch's large bodies lie. Pure.

The day comes first, as in the tables: what belongs to a day, orphans included, goes with the day. A result's key ends in the
fence it was written under, so that a late writer cannot replace what another one has stored.
"""

from contextlib import suppress
from datetime import date, timedelta
from uuid import UUID

_FIRST_DAY = date(2024, 1, 1)  # of next_batch_id() in the first migration
_DAY_BITS = 36
_INCOMPLETE = "-incomplete"
MARKERS = "marker/"


def payload(batch_id: int, seq: int) -> str:
    """Of an item as the caller sent it."""
    return f"payload/{_day(batch_id)}/{batch_id}/{seq}"


def result(batch_id: int, run: int, seq: int, fence: tuple[int, int, int], *, incomplete: bool = False) -> str:
    """Of an item's answer, written under this (chunk, token, worker). One that says that it is `incomplete` has it in its key, so
    that this is known without the object.
    """
    end = _INCOMPLETE if incomplete else ""
    return f"result/{_day(batch_id)}/{batch_id}/{run}/{seq}/{'-'.join(map(str, fence))}{end}"


def is_incomplete(key: str) -> bool:
    """Whether the answer under this key says that it is incomplete."""
    return key.endswith(_INCOMPLETE)


def upload(tenant_id: int, file_id: UUID) -> str:
    """Of a file as it was uploaded."""
    return f"file/{tenant_id}/{file_id.hex}"


def parts(tenant_id: int, upload_id: UUID) -> str:
    """The prefix of the parts of an upload."""
    return f"upload/{tenant_id}/{upload_id.hex}/"


def part(tenant_id: int, upload_id: UUID, part_id: UUID) -> str:
    """Of one part."""
    return f"{parts(tenant_id, upload_id)}{part_id.hex}"


def owner(key: str) -> UUID | None:
    """The file, or the upload, that an object belongs to; None for a key of another kind."""
    match key.split("/"):
        case ["file", _, name] | ["upload", _, name, _]:
            with suppress(ValueError):
                return UUID(name)
    return None


def marker(name: UUID) -> str:
    """Of the object by which parts know that they share a store."""
    return f"{MARKERS}{name.hex}"


def of_day(day: date) -> tuple[str, ...]:
    """The prefixes of everything that belongs to a day."""
    return tuple(f"{kind}/{day:%Y%m%d}/" for kind in ("payload", "result"))


def of_batch(batch_id: int) -> tuple[str, ...]:
    """The prefixes of everything that belongs to a batch."""
    return tuple(f"{kind}/{_day(batch_id)}/{batch_id}/" for kind in ("payload", "result"))


def of_tenant(tenant_id: int) -> tuple[str, ...]:
    """The prefixes of everything that a tenant has uploaded."""
    return tuple(f"{kind}/{tenant_id}/" for kind in ("file", "upload"))


def _day(batch_id: int) -> str:
    return f"{_FIRST_DAY + timedelta(days=batch_id >> _DAY_BITS):%Y%m%d}"
