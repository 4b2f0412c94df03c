"""Draws what sharing an engine costs callers and yields batches, in words: of a result, or of the tables of the documentation.

python -m benchmarks.colocation.pictures        draws those of docs/ anew, from docs/benchmarks.md and docs/headroom.md
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from app.protect import BUDGETS, DEFAULT

DOCS = Path(__file__).parents[2] / "docs"
GOAL = 1.1
_INK, _OURS, _THEIRS = "#22303c", "#0f766e", "#8a94a0"
_TICKS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
_ROOM = 1.7  # above the highest point

Rows = Mapping[str, Mapping[str, float]]  # numbers by row and column
Place = tuple[float, float]  # where words stand beside their point, in points of print


class Point(NamedTuple):
    """One way of sharing: batch tokens per second, and the callers' TTFT p99 as a multiple of its value alone."""

    arm: str
    tokens: float
    slower: float

    @property
    def cap(self) -> int:
        """How many batch requests vLLM may have at once; 0: another way."""
        return int(self.arm.removeprefix("static_")) if self.arm.startswith("static_") else 0

    @property
    def ours(self) -> bool:
        """Whether it is ours."""
        return self.arm in _OUR_WORDS

    @property
    def words(self) -> str:
        """What stands beside it; of caps, only the last one is said in words."""
        return _OUR_WORDS.get(self.arm) or _THEIR_WORDS.get(self.arm) or (str(self.cap) if self.cap else self.arm)


class Level(NamedTuple):
    """A step budget: the median gap between tokens as a multiple of that alone, and the share of the harvest without one."""

    name: str
    gap: float
    harvest: float


_OUR_WORDS = {
    "l1": "Slackwater, from outside",
    "l2": "Slackwater, plug-in inside vLLM",
    "ours": "Slackwater, plug-in inside vLLM",
}
_THEIR_WORDS = {
    "priority": "vLLM, by priority",
    "fifo": "vLLM, first come, first served",
    "gauge": "a gate by vLLM's gauges",
}
_ARMS = {
    "**ours, inside it (L2)**": "l2",
    "**ours, inside it, as shipped (L2)**": "l2",
    "**ours, outside the engine (L1)**": "l1",
    "vLLM's priority scheduling": "priority",
    "first come, first served": "fifo",
    "gate by gauges": "gauge",
}  # rows of docs/benchmarks.md; those of caps have their number


def rows(page: str, *below: str) -> Rows:
    """The first table of a page below these texts, which follow one another."""
    for text in below:
        page = page[page.index(text) :]
    lines = re.search(r"(?:^\|.*\n)+", page, re.M)
    assert lines, below
    head, _, *found = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[0].split("\n")[:-1]]
    return {name: {key: _number(cell) for key, cell in zip(head[1:], cells, strict=True)} for name, *cells in found}


def _number(cell: str) -> float:
    try:
        return float(cell.replace(",", ""))
    except ValueError:
        return float("nan")  # empty, or absolute


def points(slower: Rows, tokens: Rows, columns: tuple[str, str]) -> list[Point]:
    """The ways of a table, or of two, without the rows of callers or batches alone."""
    named = {name: _ARMS.get(name) or name.replace("cap of ", "static_") for name in slower if "alone" not in name}
    return [Point(arm, tokens[name][columns[1]], slower[name][columns[0]]) for name, arm in named.items()]


@contextmanager
def _picture(path: Path) -> Iterator[Any]:
    """The axes of a new picture, which is written at the end."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(8, 4.2), layout="constrained")
    axis.grid(visible=True, alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    yield axis
    figure.savefig(path, dpi=150, metadata={"Software": None})
    pyplot.close(figure)


def _mark(axis: Any, words: str, x: float, y: float, place: Place, *, ours: bool = False) -> None:
    axis.scatter(x, y, s=70 if ours else 26, color=_OURS if ours else _THEIRS, zorder=3)
    style: dict[str, Any] = {"color": _OURS, "fontweight": "bold"} if ours else {"color": _INK}
    axis.annotate(words, (x, y), xytext=place, textcoords="offset points", fontsize=10, **style)


def _better(axis: Any, corner: str, x: float, y: float) -> None:
    axis.annotate(
        f"{corner} is better", (x, y), xycoords="axes fraction", ha="right", fontsize=10, style="italic", color=_INK
    )


def sharing(found: Sequence[Point], path: Path, places: Mapping[str, Place] | None = None, width: float = 1.45) -> None:
    """How much slower callers' first tokens are against the batch tokens beside them.

    `places`: of the words of some ways. `width`: of the axis, as a multiple of the most tokens.
    """
    with _picture(path) as axis:
        caps = sorted((each for each in found if each.cap), key=lambda each: each.cap)
        axis.plot([each.tokens for each in caps], [each.slower for each in caps], color=_THEIRS, linewidth=1, zorder=1)
        axis.axhline(GOAL, color=_INK, linewidth=0.9, linestyle=(0, (4, 3)))
        axis.annotate(f"goal: {GOAL}", (0, GOAL), xytext=(4, 4), textcoords="offset points", color=_INK, fontsize=9)
        for each in found:
            words = f"vLLM, at most {each.cap} batch requests" if caps and each is caps[-1] else each.words
            usual = (9.0, -3.0) if each.ours or len(words) > 3 else (-3.0, 8.0)
            _mark(axis, words, each.tokens, each.slower, (places or {}).get(each.arm, usual), ours=each.ours)
        _better(axis, "lower right", 0.985, 0.3)
        top = _ROOM * max(each.slower for each in found)
        axis.set_yscale("log")
        ticks = [each for each in _TICKS if each < top]
        axis.set_yticks(ticks, [str(each) for each in ticks])
        axis.minorticks_off()
        axis.set_xlim(0, width * max(each.tokens for each in found))
        axis.set_ylim(0.75, top)
        axis.xaxis.set_major_formatter("{x:,.0f}")
        axis.set_xlabel("batch tokens per second beside the callers")
        axis.set_ylabel("callers' first token, p99\n(1: as without batch work)")


def levels(found: Sequence[Level], path: Path) -> None:
    """The harvest against the gap between callers' tokens: a line of budgets, and the levels of SLACKWATER_PROTECT by name."""
    with _picture(path) as axis:
        line = sorted((each.gap, each.harvest) for each in found if each.name not in BUDGETS)
        axis.plot(*zip((1.0, 0.0), *line, strict=True), color=_THEIRS, linewidth=1, marker=".", zorder=1)
        for each in found:
            if each.name in BUDGETS:
                words = f"{each.name}, the default" if each.name == DEFAULT else each.name
                _mark(axis, words, each.gap, each.harvest, (9, -12), ours=True)
        _better(axis, "upper left", 0.985, 0.06)
        axis.set_xlim(0.9, max(each.gap for each in found) + 0.4)
        axis.set_ylim(0, 1)
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axis.set_xlabel("callers' median gap between tokens (1: as without batch work)")
        axis.set_ylabel("batch tokens, of those under\nvLLM's priority, which protects nobody")


def _shared(
    slower: str, tokens: str, columns: tuple[str, str], width: float, **places: Place
) -> Callable[[Path], None]:
    page = (DOCS / "benchmarks.md").read_text()
    found = points(rows(page, *slower.split("|")), rows(page, *tokens.split("|")), columns)
    return partial(sharing, found, places=places, width=width)


def _curve() -> Callable[[Path], None]:
    found = rows((DOCS / "headroom.md").read_text(), "## The price as a curve")
    return partial(levels, [Level(name.strip("*"), each["ITL p50"], each["harvest"]) for name, each in found.items()])


def drawings() -> dict[str, Callable[[Path], None]]:
    """What draws each picture of docs/."""
    bursts, random, simulator = "**on/off arrivals**", "**Poisson arrivals**", "### In a simulator|"
    measured, talk = ("TTFT p99", "batch tokens/s"), ("conversation", "conversation")
    left: dict[str, Place] = {"fifo": (-132, 8), "priority": (-62, 8)}
    below: dict[str, Place] = {"l1": (-20, -17), "l2": (-20, -17)}
    right: dict[str, Place] = {"priority": (9, 4), "gauge": (9, -4), "static_128": (9, -12)}
    return {
        "sharing.png": _shared(bursts, bursts, measured, 1.1, **left),
        "sharing-random.png": _shared(random, random, measured, 1.1, l1=(14, 3), l2=(9, -6), **left),
        "sharing-simulated.png": _shared(
            f"{simulator}**TTFT p99**", f"{simulator}**Batch tokens per second**", talk, 1.45, **below, **right
        ),
        "frontier.png": _curve(),
    }


if __name__ == "__main__":
    for file, draw in drawings().items():
        draw(DOCS / file)
