"""Draws the README's picture of sharing an engine, from the table of bursts in docs/benchmarks.md.

python -m benchmarks.colocation.readme_plot        writes docs/sharing.png
"""

import re
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parents[2] / "docs"
PICTURE = DOCS / "sharing.png"
GOAL = 1.1
_TABLE = "**on/off arrivals**"
_INK, _OURS, _THEIRS = "#22303c", "#0f766e", "#8a94a0"


class Label(NamedTuple):
    """What stands beside a point, and where, in points of print. `ours` is drawn in colour; each `cap` is joined to the next."""

    text: str
    x: float
    y: float
    ours: bool = False
    cap: bool = False


LABELS = {
    "**ours, inside it, as shipped (L2)**": Label("Slackwater, plug-in inside vLLM", 9, -4, ours=True),
    "**ours, outside the engine (L1)**": Label("Slackwater, from outside", 9, -3, ours=True),
    "vLLM's priority scheduling": Label("vLLM, by priority", -62, 8),
    "first come, first served": Label("vLLM, first come, first served", -132, 8),
    "cap of 2": Label("2", -3, 8, cap=True),
    "cap of 4": Label("4", -2, 8, cap=True),
    "cap of 8": Label("8", -2, 8, cap=True),
    "cap of 16": Label("vLLM, at most 16 requests in flight", 9, -2, cap=True),
}


class Point(NamedTuple):
    """One way of sharing: batch tokens per second, and the callers' TTFT p99 as a multiple of its value alone."""

    label: Label
    tokens: float
    slower: float


def points(page: str) -> list[Point]:
    """The labelled rows of the table of bursts. Raises KeyError if a label has no row."""
    table = page.partition(_TABLE)[2].partition("\n\n")[2].partition("\n\n")[0]
    rows = {
        name.strip(): re.split(r" *\| *", rest)
        for name, _, rest in (row[2:].partition(" | ") for row in table.split("\n"))
    }
    return [Point(label, float(rows[name][5]), float(rows[name][2])) for name, label in LABELS.items()]


def draw(found: list[Point], path: Path) -> None:
    """Write the picture."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(8, 4.2), layout="constrained")
    caps = [point for point in found if point.label.cap]
    axis.plot([cap.tokens for cap in caps], [cap.slower for cap in caps], color=_THEIRS, linewidth=1, zorder=1)
    axis.axhline(GOAL, color=_INK, linewidth=0.9, linestyle=(0, (4, 3)))
    axis.annotate(
        f"goal: {GOAL}",
        (1, GOAL),
        xycoords=("axes fraction", "data"),
        xytext=(-4, 4),
        textcoords="offset points",
        ha="right",
        color=_INK,
        fontsize=9,
    )
    for label, tokens, slower in found:
        colour = _OURS if label.ours else _THEIRS
        axis.scatter(tokens, slower, s=70 if label.ours else 26, color=colour, zorder=3)
        axis.annotate(
            label.text,
            (tokens, slower),
            xytext=(label.x, label.y),
            textcoords="offset points",
            fontsize=10,
            color=_OURS if label.ours else _INK,
            fontweight="bold" if label.ours else "normal",
        )
    axis.annotate(
        "lower right is better",
        (0.985, 0.3),
        xycoords="axes fraction",
        ha="right",
        fontsize=10,
        style="italic",
        color=_INK,
    )
    axis.set_yscale("log")
    axis.set_yticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
    axis.minorticks_off()
    axis.set_xlim(0, 360)
    axis.set_ylim(0.85, 110)
    axis.set_xlabel("batch tokens per second beside the callers")
    axis.set_ylabel("callers' first token, p99\n(1: as without batch work)")
    axis.grid(visible=True, alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150, metadata={"Software": None})
    pyplot.close(figure)


if __name__ == "__main__":
    draw(points((DOCS / "benchmarks.md").read_text()), PICTURE)
