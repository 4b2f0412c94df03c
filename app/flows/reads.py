"""What must be read to make the items of a stage: answers of ancestors, the line of the input, the request of a stage. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from app.flows import conditions
from app.flows.given import slots
from app.flows.language import Path
from app.flows.scopes import ITEM
from app.flows.stages import Again, ByValue, Definition, Pick, Single, Stage

PARTS = "parts"


@dataclass(frozen=True, slots=True)
class Reads:
    """`answers`: stages of which an answer is read beside the parent's. `line`: of the input. `request`: the stage whose request
    is read; None: none.
    """

    answers: frozenset[int] = frozenset()
    line: bool = False
    request: int | None = None

    def __or__(self, other: "Reads") -> "Reads":
        request = self.request if other.request is None else other.request
        return Reads(self.answers | other.answers, self.line or other.line, request)


NOTHING = Reads()


def of_item(flow: Definition, stage: Stage) -> Reads:
    """What a map or a fan-out reads of the item that it is made from."""
    found = _named(_deciding(stage), flow.below(stage.parent)) | _named(_paths(stage), stage.single)
    match stage.work:
        case Pick(of):
            found |= Reads(frozenset((of,)))
        case Again(of):
            found |= Reads(request=of)
    return found


def of_part(flow: Definition, stage: Stage) -> Reads:
    """What a pack reads of each of its parts."""
    inner = (path for path in map(in_part, _paths(stage)) if path is not None)
    return _named((*_deciding(stage), *inner), flow.below(stage.parent))


def of_group(flow: Definition, stage: Stage) -> Reads:
    """What decides to which pack by value an item of the parent belongs."""
    return _named(_deciding(stage), flow.below(stage.parent))


def of_common(stage: Stage) -> Reads:
    """What a pack reads beside its parts: of what they have in common."""
    return _named((path for path in _paths(stage) if path.root != PARTS), stage.single)


def _named(paths: Iterable[Path], single: Single) -> Reads:
    roots = {path.root for path in paths}
    return Reads(frozenset(single.names[root] for root in roots & single.names.keys()), ITEM in roots)


def _deciding(stage: Stage) -> Iterator[Path]:
    """What decides about an item of the parent."""
    yield from conditions.paths(stage.when)
    if stage.each:
        yield stage.each.path
    if isinstance(stage.pack, ByValue):
        yield stage.pack.path


def _paths(stage: Stage) -> list[Path]:
    """What the body reads."""
    if isinstance(stage.work, Pick):
        return [stage.work.index]
    return [slot.path for slot in slots(getattr(stage.work, "body", None))]


def in_part(path: Path) -> Path | None:
    """The path within one part; None: it is not of the parts."""
    if path.root != PARTS:
        return None
    keys = path.keys[1:] if path.keys and isinstance(path.keys[0], int) else path.keys
    return Path(str(keys[0]), keys[1:]) if keys else None
