"""The figure of a soak: a panel for each kind of series, over the minutes of the run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PANELS = {
    "rss_mb": "memory by part, MB",
    "open_files": "open files by part",
    "hot_tables_mb": "tables of the queue, MB",
    "hot_indexes_mb": "their indexes, MB",
    "hot_dead_rows": "their dead rows",
    "oldest_leased_batch_s": "oldest batch with a leased chunk, s",
    "database_connections": "database connections",
    "kept_mb": "batches and history, MB",
}
_PER_ROW = 2


def plot(series: Mapping[str, Sequence[tuple[float, float]]], found: Mapping[str, Any], path: Path) -> None:
    """Write the figure; the suffix of the path names its format."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    rows = -(-len(PANELS) // _PER_ROW)
    figure, axes = pyplot.subplots(rows, _PER_ROW, figsize=(10, 2.3 * rows), layout="constrained", sharex=True)
    for axis, (kind, title) in zip(axes.flat, PANELS.items(), strict=True):
        axis.set_title(title, fontsize=10)
        axis.grid(visible=True, alpha=0.2)
        axis.axvspan(0, found["warm_up_minutes"], color="grey", alpha=0.1, linewidth=0)
        for name, points in sorted(series.items()):
            if name.partition(".")[0] == kind:
                axis.plot([at / 60 for at, _ in points], [value for _, value in points], label=name.partition(".")[2])
        axis.set_ylim(bottom=0)
        if "." in "".join(name for name in series if name.startswith(f"{kind}.")):
            axis.legend(fontsize=7, ncols=2, loc="lower right")
    figure.supxlabel("minutes; grey: warm-up")
    figure.savefig(path, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else {"Software": None})
    pyplot.close(figure)
