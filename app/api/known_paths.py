"""Which route of OpenAI's API a path means that is no route: one behind another base URL, or one with a slip of the pen. Pure."""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import lru_cache

OF_CLOUDFLARE = ("/client/", "/admin/", "/operator/")  # what the paths of the other API begin with
_ACCOUNT = re.compile(r"(/client/v4/accounts/[^/]+/ai)/(.+)")
_ROOT = "v1"
_ALIKE = 0.8  # of two words, as difflib counts: "completion" and "completions", "batch" and "batches"
_MOST_PARTS = 12  # no route has more
_REST = "*"


def hint(routes: Sequence[str], path: str) -> str:
    """Which path the caller of this one means, as a question, and what to correct. Empty: it is not known.

    `routes`: as they are declared, `/v1/files/{file_id}`. Any end of the path that is a route counts, then words that are almost
    those of a route.
    """
    account = _ACCOUNT.match(path)
    if account is None and path.startswith(OF_CLOUDFLARE):
        return ""
    base, tail = (account[1], account[2]) if account else ("", path)
    parts = [part for part in tail.split("/") if part][-_MOST_PARTS:]
    if not parts or (account and _is_of_cloudflare(parts[0], routes)):
        return ""
    known = _known(tuple(routes))
    rooted = parts[1:] if parts[0] == _ROOT else parts
    ends = [parts[at:] for at in range(len(parts))]
    found = next((end for end in ends if any(_is(end, route) for route in known)), None)
    found = found or next((corrected for route in known if (corrected := _corrected(rooted, route))), None)
    meant = f"{base}/{_ROOT}/{'/'.join(found or ())}"
    if found is None or meant == path:
        return ""
    in_base = parts[0] != _ROOT or len(found) != len(rooted)
    return f"did you mean {meant}?" + (" Correct the client's base_url" if in_base else "")


def _is_of_cloudflare(part: str, routes: Sequence[str]) -> bool:
    """Whether this part, behind `/ai/`, begins paths of the other API."""
    return part != _ROOT and any(f"/ai/{part}/" in f"{route}/" for route in routes)


@lru_cache(maxsize=4)
def _known(routes: tuple[str, ...]) -> list[list[str]]:
    """The parts of the routes of OpenAI's API, below its root."""
    return [_parts(route)[1:] for route in routes if route.startswith(f"/{_ROOT}/")]


def _parts(route: str) -> list[str]:
    """The parts of a route. A parameter is empty, or _REST if it may have slashes."""
    parts = route.strip("/").split("/")
    return [_REST if part.endswith(":path}") else "" if part.startswith("{") else part for part in parts]


def _is(parts: Sequence[str], route: Sequence[str]) -> bool:
    """Whether this is the path of a route."""
    fits = len(parts) == len(route) or (route[-1] == _REST and len(parts) > len(route))
    return fits and all(name in ("", _REST, part) for part, name in zip(parts, route, strict=False))


def _corrected(parts: Sequence[str], route: Sequence[str]) -> list[str] | None:
    """The path with the words of a route that are almost its own. None: they are others."""
    pairs = list(zip(parts, route, strict=False))
    if len(parts) != len(route) or not all(name in ("", _REST) or _alike(part, name) for part, name in pairs):
        return None
    return [part if name in ("", _REST) else name for part, name in pairs]


def _alike(part: str, name: str) -> bool:
    return abs(len(part) - len(name)) <= len(name) // 2 and SequenceMatcher(None, part, name).ratio() >= _ALIKE
