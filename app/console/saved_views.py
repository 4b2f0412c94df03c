"""Saved views of the list of batches: a name for a filter. A cookie keeps them, so they need no table and no JavaScript.

A view is a preference of one reader in one browser, and no more than an address that the reader could keep as a bookmark. The
cookie's name has a hash of who it is, so that several people who use one browser do not see each other's views.
"""

import base64
import binascii
import hashlib
from collections.abc import Sequence
from dataclasses import astuple, dataclass

import orjson

from app.access.roles import Viewer
from app.errors import BadInput

MOST = 12
NAME_CHARACTERS = 40
FILTER_CHARACTERS = 160
_MOST_BYTES = 3_800  # browsers keep at least 4,096 bytes of a cookie


@dataclass(frozen=True, slots=True)
class SavedView:
    """A name for one of the views of the list (`view`) with a filter (`q`)."""

    name: str
    view: str
    q: str


def cookie_name(viewer: Viewer) -> str:
    """The cookie of this person, in this account or this installation."""
    who = f"{viewer.tenant_id}\0{viewer.subject}".encode()
    return f"sw-views-{hashlib.sha256(who).hexdigest()[:12]}"


def read(cookie: str) -> list[SavedView]:
    """The views in a cookie. What is no list of views is none."""
    try:
        found = orjson.loads(base64.urlsafe_b64decode(cookie + "=" * (-len(cookie) % 4)))
        return [SavedView(*(str(part) for part in each)) for each in found][:MOST]
    except (ValueError, TypeError, binascii.Error):
        return []


def write(views: Sequence[SavedView]) -> str:
    """The cookie for these views. Raises BadInput: they are too many or too long for one."""
    if len(views) > MOST:
        raise BadInput(f"There are {MOST} saved views already: remove one first")
    text = base64.urlsafe_b64encode(orjson.dumps([astuple(each) for each in views])).decode().rstrip("=")
    if len(text) > _MOST_BYTES:
        raise BadInput("The saved views together are too long: remove one first, or shorten a filter")
    return text


def added(views: Sequence[SavedView], name: str, view: str, q: str) -> list[SavedView]:
    """The views with one more; a view of the same name is replaced. Raises BadInput."""
    name = " ".join(name.split())
    if not 0 < len(name) <= NAME_CHARACTERS:
        raise BadInput(f"name: give the view a name of at most {NAME_CHARACTERS} characters")
    if len(q) > FILTER_CHARACTERS:
        raise BadInput(f"The filter has {len(q):,} characters: a saved one has at most {FILTER_CHARACTERS}")
    return [*(each for each in views if each.name != name), SavedView(name, view, q)]


def without(views: Sequence[SavedView], name: str) -> list[SavedView]:
    """The views but the one of this name."""
    return [each for each in views if each.name != name]
