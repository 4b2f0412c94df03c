"""What a pipeline consists of: its input and its stages, a tree in which each stage has one parent. Pure.

Stages are counted from 1 in the order of the definition; stage 0 is the input. A stage with `reask` or `escalate` is several
here: the stage itself, then one for each repetition, whose parent is the one before.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from app.flows.conditions import Condition
from app.flows.language import Path

INPUT, INPUT_NAME = 0, "input"

MOST_STAGES, MOST_IN_LIST = 16, 1000
MOST_ITEMS, MOST_GROUPS = 200_000, 10_000  # lines of the input, values of a `pack.by`
MOST_PARKED = 100_000  # items of a stage that wait for an answer from outside
MOST_TIMES_INPUT = 10  # items of all stages, as a multiple of the input
MOST_REQUEST_BYTES, MOST_OUTSIDE_BYTES = 4 * 1024 * 1024, 64 * 1024

Otherwise = Literal["drop", "pass"]


@dataclass(frozen=True, slots=True)
class Request:
    """A stage whose items are requests. `body`: JSON with a Template for each text that has placeholders, without `model`.

    `schema`: the JSON schema that answers must fit, as JSON; None: there is none.
    """

    endpoint: str
    model: str
    body: Mapping[str, Any]
    schema: bytes | None = None


@dataclass(frozen=True, slots=True)
class Again:
    """A stage that repeats the request of the same item in stage `of`, where the item has one there; else it passes it on.

    `with_answer`: the answer of the parent and the validator's message are added to the conversation.
    """

    of: int
    endpoint: str
    model: str
    schema: bytes | None
    with_answer: bool


@dataclass(frozen=True, slots=True)
class Pick:
    """A stage that takes the choice number `index` of the answer in stage `of`. It makes no request."""

    of: int
    index: Path


@dataclass(frozen=True, slots=True)
class External:
    """A stage whose items are parked until somebody outside answers. `body`: what is sent. `timeout`: seconds until an error."""

    body: Mapping[str, Any]
    timeout: float


Work = Request | Again | Pick | External


@dataclass(frozen=True, slots=True)
class Each:
    """A fan-out: an item for each element of the list at `path`, at most `most`."""

    path: Path
    most: int


@dataclass(frozen=True, slots=True)
class BySize:
    """Packs of `size` neighbours. `least`: with fewer, a pack is an error."""

    size: int
    least: int = 1


@dataclass(frozen=True, slots=True)
class OfStage:
    """Packs of all that comes from one item of `stage`."""

    stage: int
    most: int
    least: int = 1


@dataclass(frozen=True, slots=True)
class ByValue:
    """Packs of items with the same value at `path`, made when the whole parent is final; `most` in one, then another begins."""

    path: Path
    most: int
    least: int = 1


Pack = BySize | OfStage | ByValue


@dataclass(frozen=True, slots=True)
class Single:
    """Of what each item has exactly one: an item of these stages, by the name that templates use; a line of the input."""

    names: Mapping[str, int] = field(default_factory=dict)
    line: bool = False


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage. `number`, `parent`: from 1, or 0 for the input. `when`: on the parent's item; if it does not hold, the item is
    dropped, or its result is passed on. `depends_on`: stages that must be final before this one starts. `share`: of its items,
    how many may run at most; the others are passed on. `single`: what its templates read of each item.
    """

    number: int
    name: str
    parent: int
    when: Condition
    otherwise: Otherwise
    work: Work
    each: Each | None = None
    pack: Pack | None = None
    depends_on: tuple[int, ...] = ()
    share: float = 1.0
    single: Single = Single()

    @property
    def below(self) -> Single:
        """What its children, or the parts that it has in a pack, have one of each."""
        name = self.name.partition(".")[0]
        return Single({**self.single.names, name: self.number}, self.single.line)

    @property
    def schema(self) -> bytes | None:
        """The JSON schema that its answers must fit; None: there is none."""
        return self.work.schema if isinstance(self.work, (Request, Again)) else None


@dataclass(frozen=True, slots=True)
class Input:
    """Stage 0: an uploaded file of lines, or a batch (or a stage) that has run or runs, of which the answers are read too.
    `items`: the lines are sent beside the definition.
    """

    file_id: str | None = None
    batch: str | None = None
    items: bool = False

    @property
    def answers(self) -> bool:
        """Whether its items have answers."""
        return self.file_id is None and not self.items

    @property
    def below(self) -> Single:
        """What its children have one of each."""
        return Single({INPUT_NAME: INPUT} if self.answers else {}, line=True)


@dataclass(frozen=True, slots=True)
class Definition:
    """A pipeline. `window`: seconds until its deadline; None: it has none. `usd`: its budget; None: no limit. `limit`: lines of
    the input that are used, None: all.
    """

    input: Input
    stages: tuple[Stage, ...]
    name: str | None = None
    window: float | None = None
    usd: float | None = None
    limit: int | None = None

    def children(self, number: int) -> tuple[Stage, ...]:
        """The stages whose parent is this one."""
        return tuple(each for each in self.stages if each.parent == number)

    def below(self, number: int) -> Single:
        """What the children of a stage, or of the input, have one of each."""
        return self.stage(number).below if number else self.input.below

    def stage(self, number: int) -> Stage:
        """The stage of a number from 1."""
        return self.stages[number - 1]
