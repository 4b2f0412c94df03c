"""The limits on what a subscription can ask for. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from app import labels
from app.errors import BadInput
from app.events import KINDS, RENAMED
from app.webhooks import signing
from app.webhooks.formats import FORMATS, known_kinds

MOST_IN_FLIGHT, MOST_PER_SECOND = 64, 1000.0
MOST_OVERLAP_SECONDS = 7 * 24 * 3600.0
NAME_LENGTH, URL_LENGTH, QUEUE_LENGTH, _TAG_LENGTH = 256, 2048, 64, 50
_SPACES = r"\x00-\x20\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
NAME = rf"^[^\x00]*[^{_SPACES}][^\x00]*$"  # at least one visible character


@dataclass(frozen=True)
class DeliveryLimits:
    """How an endpoint wants its deliveries: at most so many at once, and so many a second (None: no limit).

    `ordered`: the events of one batch one after the other.
    """

    max_in_flight: int = 8
    max_per_second: float | None = None
    ordered: bool = False


def check_name(name: str) -> None:
    """Raise BadInput unless it can be the name of a subscription."""
    if len(name) > NAME_LENGTH or not re.fullmatch(NAME, name):
        raise BadInput(f"name: must be 1 to {NAME_LENGTH} printable characters", param="name")


def usual_name(url: str) -> str:
    """The name of a webhook that nobody has named: its host."""
    try:
        host = urlsplit(url).hostname
    except ValueError:
        host = None
    return (host or "webhook")[:NAME_LENGTH]


def check_length(url: str, where: str = "destination.url") -> None:
    """Raise BadInput for a URL that is empty or too long."""
    if not url or len(url) > URL_LENGTH:
        raise BadInput(f"{where}: must be 1 to {URL_LENGTH} characters", param=where)


def check_queue(queue_id: str) -> None:
    """Raise BadInput unless it can be the name of a queue."""
    if not 1 <= len(queue_id) <= QUEUE_LENGTH or not queue_id.isprintable():
        raise BadInput(f"destination.queue_id: must be 1 to {QUEUE_LENGTH} printable characters")


def check_shape(shape: str) -> None:
    """Raise BadInput unless it names one of `FORMATS`."""
    if shape not in FORMATS:
        raise BadInput(f"destination.format: must be one of {', '.join(FORMATS)}")


def check_secret(secret: str | None, where: str = "destination.secret") -> None:
    """Raise BadInput for a secret that cannot be used for signing."""
    if secret is not None and (problem := signing.secret_problem(secret)):
        raise BadInput(f"{where}: {problem}", param=where)


def check_kinds(kinds: Sequence[str], shape: str) -> None:
    """Raise BadInput unless there is at least one kind, and each has a body in this format."""
    known = ", ".join(known_kinds(shape, KINDS))
    if not kinds:
        raise BadInput(f"events: name at least one of {known}")
    for position, kind in enumerate(kinds):
        if kind not in known_kinds(shape, KINDS):
            if kind in RENAMED:
                raise BadInput(f"events[{position}]: {kind} is {RENAMED[kind]} now")
            why = f", because the format {shape} has no {kind}" if kind in KINDS else ""
            raise BadInput(f"events[{position}]: must be one of {known}{why}")


def check_tags(tags: Sequence[str]) -> None:
    """Raise BadInput unless a batch can have all these tags."""
    if len(tags) > labels.MOST_TAGS or not all(0 < len(tag) <= _TAG_LENGTH for tag in tags):
        raise BadInput(f"source.tags: at most {labels.MOST_TAGS}, of 1 to {_TAG_LENGTH} characters each")


def check_metadata(metadata: Mapping[str, str]) -> None:
    """Raise BadInput unless a batch can have these pairs."""
    labels.check_metadata(metadata, "source.metadata")


def check_limits(limits: DeliveryLimits) -> None:
    """Raise BadInput for limits that are out of range."""
    if not 1 <= limits.max_in_flight <= MOST_IN_FLIGHT:
        raise BadInput(f"destination.max_in_flight: must be 1 to {MOST_IN_FLIGHT}")
    if limits.max_per_second is not None and not 0.01 <= limits.max_per_second <= MOST_PER_SECOND:
        raise BadInput(f"destination.max_per_second: must be 0.01 to {MOST_PER_SECOND:g}")
