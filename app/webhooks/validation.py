"""What a subscription may say. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.errors import BadInput
from app.webhooks import signing
from app.webhooks.formats import FORMATS, known_kinds

KINDS = (
    "batch.queued",
    "batch.started",
    "batch.progress",
    "batch.succeeded",
    "batch.failed",
    "batch.cancelled",
    "batch.expired",
    "batch.at_risk",
    "item.succeeded",
    "item.failed",
    "response.completed",
    "response.incomplete",
    "response.failed",
    "response.cancelled",
    "endpoint.failing",
    "endpoint.disabled",
)
USUAL_KINDS = (
    "batch.queued",
    "batch.succeeded",
    "batch.failed",
    "batch.cancelled",
    "batch.expired",
    "endpoint.disabled",
)
MOST_TAGS, MOST_IN_FLIGHT, MOST_PER_SECOND = 5, 64, 1000.0
MOST_OVERLAP_SECONDS = 7 * 24 * 3600.0
NAME_LENGTH, URL_LENGTH, QUEUE_LENGTH = 256, 2048, 64
PAIRS, METADATA_KEY, METADATA_VALUE = 16, 64, 512
_SPACES = r"\x00-\x20\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
NAME = rf"^[^\x00]*[^{_SPACES}][^\x00]*$"  # something to be seen


@dataclass(frozen=True)
class DeliveryLimits:
    """What an endpoint takes: deliveries at once, and a second (None: any); `ordered`: those of a batch one after the other."""

    max_in_flight: int = 8
    max_per_second: float | None = None
    ordered: bool = False


def check_name(name: str) -> None:
    """Raise BadInput unless it is one."""
    if len(name) > NAME_LENGTH or not re.fullmatch(NAME, name):
        raise BadInput(f"name: must be 1 to {NAME_LENGTH} printable characters")


def check_length(url: str, where: str = "destination.url") -> None:
    """Raise BadInput for a URL that is none or too long to be kept."""
    if not url or len(url) > URL_LENGTH:
        raise BadInput(f"{where}: must be 1 to {URL_LENGTH} characters")


def check_queue(queue_id: str) -> None:
    """Raise BadInput unless a queue can be called so."""
    if not 1 <= len(queue_id) <= QUEUE_LENGTH or not queue_id.isprintable():
        raise BadInput(f"destination.queue_id: must be 1 to {QUEUE_LENGTH} printable characters")


def check_shape(shape: str) -> None:
    """Raise BadInput unless it names a format of event bodies."""
    if shape not in FORMATS:
        raise BadInput(f"destination.format: must be one of {', '.join(FORMATS)}")


def check_secret(secret: str | None, where: str = "destination.secret") -> None:
    """Raise BadInput for one that cannot sign."""
    if secret is not None and (problem := signing.secret_problem(secret)):
        raise BadInput(f"{where}: {problem}")


def check_kinds(kinds: Sequence[str], shape: str) -> None:
    """Raise BadInput unless an endpoint of this format can be told of all these kinds, and there is one."""
    known = ", ".join(known_kinds(shape, KINDS))
    if not kinds:
        raise BadInput(f"events: name at least one of {known}")
    for position, kind in enumerate(kinds):
        if kind not in known_kinds(shape, KINDS):
            of = "" if kind not in KINDS else f", for {shape} has no {kind}"
            raise BadInput(f"events[{position}]: must be one of {known}{of}")


def check_tags(tags: Sequence[str]) -> None:
    """Raise BadInput unless batches can have them all."""
    if len(tags) > MOST_TAGS or not all(0 < len(tag) <= 50 for tag in tags):
        raise BadInput(f"source.tags: at most {MOST_TAGS}, of 1 to 50 characters each")


def check_metadata(metadata: Mapping[str, str], where: str = "source.metadata") -> None:
    """Raise BadInput unless a batch can have these pairs; the bounds are those of OpenAI's batches."""
    sizes = all(0 < len(key) <= METADATA_KEY and len(value) <= METADATA_VALUE for key, value in metadata.items())
    if len(metadata) > PAIRS or not sizes or any("\0" in part for pair in metadata.items() for part in pair):
        raise BadInput(
            f"{where}: at most {PAIRS} pairs, keys of 1 to {METADATA_KEY} characters, values of at most {METADATA_VALUE}"
        )


def check_limits(limits: DeliveryLimits) -> None:
    """Raise BadInput unless an endpoint may be limited so."""
    if not 1 <= limits.max_in_flight <= MOST_IN_FLIGHT:
        raise BadInput(f"destination.max_in_flight: must be 1 to {MOST_IN_FLIGHT}")
    if limits.max_per_second is not None and not 0.01 <= limits.max_per_second <= MOST_PER_SECOND:
        raise BadInput(f"destination.max_per_second: must be 0.01 to {MOST_PER_SECOND:g}")
