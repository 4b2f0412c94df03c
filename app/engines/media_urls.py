"""URLs of media that an engine fetches: their form, and the hosts that a request names. Pure.

The form leaves nothing to the URL parsers of engines, which differ: https, a name in small letters, no user, no port, and no
other characters than those of RFC 3986. So the host that is checked here is the host that an engine connects to.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from app import host_lists

_URL = re.compile(
    rf"https://(?P<host>{host_lists.NAME.pattern})(/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*)?(\?[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*)?"
)
_HOLDERS = ("content", "output", "summary")


def host_of(url: object) -> str | None:
    """The host of a URL in this form. None: it has another."""
    found = _URL.fullmatch(url) if isinstance(url, str) else None
    return found["host"] if found else None


def hosts_in(request: Mapping[str, Any]) -> frozenset[str]:
    """The hosts from which the engine of a valid request fetches media."""
    return frozenset(host for url in _urls(request) if (host := host_of(url)) is not None)


def _urls(request: Mapping[str, Any]) -> Iterator[object]:
    for items in (request.get("messages"), request.get("input")):
        for item in items if isinstance(items, list) else ():
            parts = [item.get(name) for name in _HOLDERS] if isinstance(item, Mapping) else []
            for part in (part for held in parts if isinstance(held, list) for part in held):
                image = part.get("image_url") if isinstance(part, Mapping) else None
                yield image.get("url") if isinstance(image, Mapping) else image
