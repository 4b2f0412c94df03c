"""Parameters of a submit that all routes read alike: batch id, completion window, idempotency key, retry count."""

import re
from collections.abc import Mapping
from uuid import UUID

from app.api.header_texts import HeaderTexts
from app.errors import BadInput
from app.gateway.resent_requests import Sending
from app.labels import MOST_TAGS

BATCH_PREFIX = "batch_"
NO_DEADLINE = "background"
LONGEST = 200  # characters of what a create of OpenAI's names
WINDOWS = "like 90s, 30m, 24h or 7d and at most 90d"
_WINDOW = re.compile(r"([0-9]{1,9})([smhd])")
KEY = r"^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f\"][^\x00-\x1f\x7f]*$"
TAG = r"[A-Za-z0-9:\-./@]{1,50}"
TAGS = f"^({TAG}(,{TAG}){{0,{MOST_TAGS - 1}}})?$"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_LONGEST_WINDOW = 90 * 86_400
_LONGEST_KEY = 255
KEY_HEADER = "idempotency-key"
RETRY_COUNT = "x-stainless-retry-count"  # the clients of OpenAI and Cloudflare count their retries in it


def sent_before(headers: Mapping[str, str]) -> bool:
    """Whether the client declares that this request is a retry."""
    count = headers.get(RETRY_COUNT, "")
    return count.isdecimal() and int(count[:6]) > 0


def sending(headers: Mapping[str, str]) -> Sending | None:
    """How a call is repeated by its client; None: the client does not declare that it may be."""
    key = headers.get(KEY_HEADER)
    if key is None and RETRY_COUNT not in headers:
        return None
    return Sending(key, again=key is not None or sent_before(headers))


BATCH_ID = f"^({BATCH_PREFIX})?[0-9a-f]{{8}}(-?[0-9a-f]{{4}}){{3}}-?[0-9a-f]{{12}}$"
WINDOW = "^([1-9][0-9]{0,5}s|[1-9][0-9]{0,4}m|[1-9][0-9]{0,2}h|([1-9]|[1-8][0-9]|90)d)$"


def batch_id(text: object) -> UUID | None:
    """A batch's id in Workers AI's or in OpenAI's form; None for any other text."""
    try:
        return UUID(text.removeprefix(BATCH_PREFIX)) if isinstance(text, str) else None
    except ValueError:
        return None


def window_seconds(text: str) -> float | None:
    """A completion window in seconds; None unless it is `WINDOWS`."""
    parsed = _WINDOW.fullmatch(text)
    seconds = float(parsed[1]) * _SECONDS[parsed[2]] if parsed else 0.0
    return seconds if 1 <= seconds <= _LONGEST_WINDOW else None


def key_of(headers: Mapping[str, str]) -> str | None:
    """The idempotency key in these headers. Raises BadInput."""
    return idempotency_key(HeaderTexts(headers).get(KEY_HEADER), "Idempotency-Key")


def idempotency_key(given: object, where: str) -> str | None:
    """The key, bare or as the quoted string of draft-ietf-httpapi-idempotency-key-header-07. Raises BadInput."""
    if given is None:
        return None
    key = given.strip(" ").strip('"') if isinstance(given, str) and re.fullmatch(KEY, given) else ""
    if not 1 <= len(key) <= _LONGEST_KEY:
        raise BadInput(f"{where}: must be 1 to {_LONGEST_KEY} printable characters", param=where)
    return key
