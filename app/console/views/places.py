"""Places in the order of a list, as they stand in an address: a number, or a time and the id behind it. Pure."""

from datetime import datetime

from app.errors import BadInput

_MOST = 2**63


def place(at: datetime, identity: int) -> str:
    """A place, for an address."""
    return f"{at.isoformat()}_{identity}"


def number(given: str) -> int | None:
    """A place in a list that is ordered by a number, as an address has it; empty: none. Raises BadInput."""
    if given and not (given.isdecimal() and given.isascii() and len(given) < 19):
        raise BadInput(f"before: must be a number of this list, got {given[:20]!r}")
    return int(given) if given else None


def at_place(given: str) -> tuple[datetime, int] | None:
    """The place that `place` wrote; empty: none. Raises BadInput."""
    if not given:
        return None
    at, _, identity = given.replace(" ", "+").rpartition("_")
    try:
        found = datetime.fromisoformat(at), int(identity)
    except ValueError:
        found = None
    if found is None or found[0].tzinfo is None or not 0 <= found[1] < _MOST:
        raise BadInput("before: is not a place in this list; open the list again")
    return found
