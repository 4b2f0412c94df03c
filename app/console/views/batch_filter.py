"""The filter of a list of batches, as a person types it: `state:paused model:x tag:nightly meta.team:y account:z 5f1c`. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

from app.errors import BadInput
from app.states import BatchState

WORDS = ("state", "model", "account", "tag", "meta.…", "waits", "error")
VIEWS = {"open": "Open", "failures": "With failures", "ended": "Ended", "all": "All"}


@dataclass(frozen=True, slots=True)
class Chip:
    """One part of a filter, and the address of the list without it."""

    name: str
    value: str
    raw: str
    without: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a filter asks for. `text`: the start of an id or of a name."""

    parts: Sequence[tuple[str, str]] = ()
    state: str = ""
    model: str = ""
    account: str = ""
    tags: Sequence[str] = ()
    meta: Mapping[str, str] = field(default_factory=dict)
    waits: str = ""
    error: str = ""
    text: str = ""


def parse(given: str) -> Wanted:
    """The filter of a text. Raises BadInput for a word that no filter has."""
    parts = [_part(word) for word in given.split()]
    values = dict(parts)
    if (state := values.get("state", "")) and state not in {str(state) for state in BatchState}:
        raise BadInput(f"state: there is no state {state}; one of {', '.join(BatchState)}")
    return Wanted(
        parts,
        state,
        values.get("model", ""),
        values.get("account", ""),
        [value for name, value in parts if name == "tag"],
        {name.removeprefix("meta."): value for name, value in parts if name.startswith("meta.")},
        values.get("waits", ""),
        values.get("error", ""),
        values.get("", ""),
    )


def _part(word: str) -> tuple[str, str]:
    name, colon, value = word.partition(":")
    if not colon:
        return "", word
    if name not in {"state", "model", "account", "tag", "waits", "error"} and not (
        name.startswith("meta.") and name != "meta."
    ):
        raise BadInput(f"{name}: is no part of a filter; one of {', '.join(WORDS)}, or the start of a name or an id")
    if not value:
        raise BadInput(f"{name}: say which, as in {name}:x")
    return name, value


def chips(wanted: Wanted, path: str, keep: Mapping[str, str]) -> list[Chip]:
    """Each part of the filter with the address without it."""
    raws = [f"{name}:{value}" if name else value for name, value in wanted.parts]
    return [
        Chip(name or "begins", value, raw, address(path, **keep, q=" ".join([*raws[:n], *raws[n + 1 :]])))
        for n, ((name, value), raw) in enumerate(zip(wanted.parts, raws, strict=True))
    ]


def address(path: str, **query: str) -> str:
    """An address with the parts of its query that are not empty."""
    given = {name: value for name, value in query.items() if value}
    return f"{path}?{urlencode(given)}" if given else path
