"""The bars of spend by day, stacked by group. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

from app.console.views.plots import Tick, Word

if TYPE_CHECKING:
    from app.console.views.spend import Table

_SHOWN = 4  # groups with a colour of their own; the rest are one
_COLOURS = ("c1", "c2", "c4", "c5", "c5")
_INK = "c3"  # of the group that the page talks about
_LEFT = 6.0  # per cent, for the numbers of the grid
_GRID, _EARLY, _LATE = (
    16.0,
    20.0,
    90.0,
)  # per cent: where those numbers end; a word around a bar beyond these would not fit
_BESIDE = 3  # bars on each side that its words are above as well
_HEAD = 0.86  # of the height, for the highest bar
_STEPS = (1.0, 2.0, 2.5, 3.0, 4.0, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a bar, in per cent of the plot."""

    colour: str
    x: float
    y: float
    width: float
    height: float
    title: str


def plot(table: "Table", chosen: date | None, told: str | None, named: Callable[[str], str]) -> dict[str, Any]:
    """The blocks, the grid, the axis, the legend, and the same as rows of a table. `told`: the group that the page is about."""
    groups = _groups(table, told, named)
    sums = table.by_day()
    top = max(sums, default=0.0)
    width = (100 - _LEFT) / max(len(table.days), 1)
    blocks = []
    for index, day in enumerate(table.days):
        floor = 0.0
        for colour, name, amounts in groups:
            height = 100 * _HEAD * amounts[index] / top if top else 0.0
            if height > 0:
                y = 100 - floor - height
                title = f"{day:%a} {day.day} {day:%b}, {name}: {table.shown(amounts[index])}"
                blocks.append(
                    Block(
                        colour,
                        _two(_LEFT + index * width + width * 0.12),
                        _two(y),
                        _two(width * 0.76),
                        _two(max(height - 0.5, 0.1)),
                        title,
                    )
                )
            floor += height
    return {
        "blocks": blocks,
        "grid": _grid(table, top),
        "words": _peak(table, sums, top, width, chosen)
        if top
        else [Word(50, 50, "no cost on these days", anchor="middle")],
        "ticks": _ticks(table.days, width),
        "legend": [(colour, name) for colour, name, _ in groups],
        "head": ("Day", *(name for _, name, _ in groups), "Together"),
        "rows": [
            (f"{day:%Y-%m-%d}", *(table.shown(amounts[index]) for _, _, amounts in groups), table.shown(sums[index]))
            for index, day in enumerate(table.days)
            if sums[index]
        ],
        "since": f"since {table.days[0].day} {table.days[0]:%B}, {table.currency or 'tokens'}",
    }


def _groups(table: "Table", told: str | None, named: Callable[[str], str]) -> list[tuple[str, str, Sequence[float]]]:
    """Colour, name and amounts of the largest groups, and of the others together."""
    first = [line for line in table.lines if line.name == told]
    shown = sorted({line.name: line for line in [*first, *table.lines[:_SHOWN]]}.values(), key=table.lines.index)[
        :_SHOWN
    ]
    colours = iter(_COLOURS)
    found: list[tuple[str, str, Sequence[float]]] = [
        (_INK if line.name == told else next(colours), named(line.name), line.amounts) for line in shown
    ]
    rest = [line for line in table.lines if line not in shown]
    if rest:
        found.append((_COLOURS[-1], "others", [sum(line.amounts[i] for line in rest) for i in range(len(table.days))]))
    return found


def _grid(table: "Table", top: float) -> list[tuple[float, str]]:
    if not top:
        return []
    step = _step(top / 2)
    marks = [at for at in (step, 2 * step) if at <= top / _HEAD]
    return [(_two(100 - 100 * _HEAD * at / top), words) for at, words in zip(marks, table.scale(marks), strict=True)]


def _step(about: float) -> float:
    """A round number at or below this one."""
    about *= 1 + 1e-9  # 0.0006 / 2 is a little less than 0.0003
    scale = 1.0
    while scale > about:
        scale /= 10
    while scale * 10 <= about:
        scale *= 10
    return max(scale * step for step in _STEPS if scale * step <= about)


def _peak(table: "Table", sums: Sequence[float], top: float, width: float, chosen: date | None) -> list[Word]:
    """The amount of the chosen day above its bar and those beside it, beside the numbers of the grid, and within the drawing."""
    if chosen is None or chosen not in table.days or not top:
        return []
    index = table.days.index(chosen)
    y = 100 - 100 * _HEAD * max(sums[max(0, index - _BESIDE) : index + _BESIDE + 1]) / top
    x = _LEFT + (index + 0.5) * width
    at, anchor = (max(x, _GRID), "start") if x < _EARLY else (100.0, "end") if x > _LATE else (x, "middle")
    return [Word(_two(at), _two(y), table.shown(sums[index]), dy=-6, anchor=anchor)]


def _ticks(days: Sequence[date], width: float) -> list[Tick]:
    return [
        Tick(_two(_LEFT + (index + 0.5) * width), f"{day.day} {day:%b}", minor=index % 14 != 0)
        for index, day in enumerate(days)
        if index % 7 == 0
    ]


def _two(number: float) -> float:
    return round(number, 2)
