"""The filter of a list of pipelines, as a person types it: `state:paused waits:budget account:z nightly`. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.console.views.batch_filter import Chip, address
from app.errors import BadInput
from app.pipelines.waiting import Pause
from app.states import BatchState

PATH = "/console/pipelines"
VIEWS = {"open": "Open", "ended": "Ended", "all": "All"}
_VALUES: Mapping[str, frozenset[str] | None] = {
    "state": frozenset(str(state) for state in BatchState),
    "waits": frozenset(str(pause) for pause in Pause),
    "account": None,
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a filter asks for. `text`: the start of an id or of a name."""

    parts: Sequence[tuple[str, str]] = ()
    state: str = ""
    account: str = ""
    waits: str = ""
    text: str = ""


def parse(given: str) -> Wanted:
    """The filter of a text. Raises BadInput for a word that no filter has."""
    parts = [_part(word) for word in given.split()]
    values = dict(parts)
    return Wanted(
        parts, values.get("state", ""), values.get("account", ""), values.get("waits", ""), values.get("", "")
    )


def _part(word: str) -> tuple[str, str]:
    name, colon, value = word.partition(":")
    if not colon:
        return "", word
    if name not in _VALUES:
        raise BadInput(f"{name}: is no part of a filter; one of {', '.join(_VALUES)}, or the start of a name or an id")
    known = _VALUES[name]
    if not value or (known is not None and value not in known):
        choices = f"one of {', '.join(sorted(known))}" if known else f"say which, as in {name}:x"
        raise BadInput(f"{name}: {choices}")
    return name, value


def chips(wanted: Wanted, keep: Mapping[str, str]) -> list[Chip]:
    """Each part of the filter with the address of the list without it."""
    raws = [f"{name}:{value}" if name else value for name, value in wanted.parts]
    return [
        Chip(name or "begins", value, raw, address(PATH, **keep, q=" ".join([*raws[:n], *raws[n + 1 :]])))
        for n, ((name, value), raw) in enumerate(zip(wanted.parts, raws, strict=True))
    ]
