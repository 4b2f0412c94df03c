"""The figures at the head of a page. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from app.console.views.plots import Spark


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the words below a figure, in a colour."""

    text: str
    colour: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that answers a question: its name, value and unit, and words that put it into proportion."""

    name: str
    value: str
    unit: str = ""
    words: Sequence[Part] = field(default_factory=tuple)
    colour: str = ""
    spark: Spark | None = None
    confidence: str = ""


def figure(name: str, value: str, unit: str = "", *words: str | Part, **more: object) -> Figure:
    """A figure whose words may be plain texts."""
    parts = tuple(part if isinstance(part, Part) else Part(part) for part in words)
    return Figure(name, value, unit, parts, **more)  # type: ignore[arg-type]
