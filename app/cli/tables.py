"""How every command prints data: on a terminal, in a pipe, and as JSON.

A terminal gets aligned columns with long cells folded. A pipe gets one line per row, with cells separated by tabs.
"""

import json
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from app import clock
from app.cli.text import plain
from app.quantities import used_ago

WIDE_COLUMNS = 100  # a narrower terminal leaves out the columns in `wide`
_PATIENCE_SECONDS = 1.0
_NONE = "–"
_GAP = (0, 2, 0, 0)


def show(
    console: Console,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    whole: Collection[str] = (),
    wide: Collection[str] = (),
    numbers: Collection[str] = (),
) -> None:
    """Print rows under the names of their columns.

    A cell is any value, a list of lines, or None (a dash on a terminal, empty in a pipe). Columns in `whole`, such as ids,
    are never cut or folded. Columns in `wide` are left out on a narrow terminal. Those in `numbers` are aligned right.
    """
    if not console.is_terminal:
        for row in (columns, *rows):
            raw(console, "\t".join(_flat(cell) for cell in row))
        return
    shown = [n for n, name in enumerate(columns) if console.width >= WIDE_COLUMNS or name not in wide]
    heads = [_column(columns[n], whole=columns[n] in whole, number=columns[n] in numbers) for n in shown]
    table = Table(*heads, box=None, padding=_GAP, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(_text(row[n]) for n in shown))
    console.print(table)


def _column(name: str, *, whole: bool, number: bool) -> Column:
    return Column(name, no_wrap=whole or number, overflow="fold", justify="right" if number else "left")


def lines(console: Console, rows: Iterable[Sequence[object]]) -> None:
    """Print aligned rows without a heading. On a terminal, the last cell is folded."""
    cells = [[_text(cell) for cell in row] for row in rows]
    if console.is_terminal:
        others = [Column(no_wrap=True) for _ in cells[0][1:]] if cells else []
        grid = Table.grid(*others, Column(overflow="fold"), padding=_GAP)
        for row in cells:
            grid.add_row(*row)
        console.print(grid)
        return
    widths = [max(len(cell) for cell in column) for column in zip(*cells, strict=True)][:-1]
    for row in cells:
        parts = [cell.plain.ljust(width) for cell, width in zip(row, [*widths, 0], strict=True)]
        raw(console, "  ".join(parts).replace("\n", " "))


def facts(console: Console, values: dict[str, object]) -> None:
    """Print names with their values, one per line. Values that are None are left out."""
    lines(console, [(Text(name, "dim"), value) for name, value in values.items() if value is not None])


def sentence(console: Console, text: object, style: str = "") -> None:
    """Print a sentence. A terminal wraps it between words, a pipe gets it in one line."""
    shown = plain(text)
    shown.stylize(style)
    console.print(shown, soft_wrap=not console.is_terminal, highlight=False)


def document(console: Console, data: Any) -> None:
    """Print one JSON document."""
    raw(console, json.dumps(data, indent=2))


def raw(console: Console, line: str) -> None:
    """Print a line unchanged: not wrapped, not coloured, with its tabs."""
    console.file.write(f"{line}\n")


@contextmanager
def patience(text: str) -> Iterator[None]:
    """Show `text` on the terminal while the block runs, if it takes longer than a second."""
    status = Console(stderr=True).status(plain(text))
    timer = threading.Timer(_PATIENCE_SECONDS, status.start)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


def when(moment: str | datetime | None, *, brief: bool = False) -> str | None:
    """A time in this machine's zone, which is named. `brief`: without the day if that is today, or only the day."""
    if moment is None:
        return None
    local = (datetime.fromisoformat(moment) if isinstance(moment, str) else moment).astimezone()
    today = clock.now().astimezone()
    if not brief:
        return f"{local:%Y-%m-%d %H:%M:%S %Z}"
    if local.date() == today.date():
        return f"{local:%H:%M:%S %Z}"
    return f"{local:%m-%d %H:%M %Z}" if local.year == today.year else f"{local:%Y-%m-%d}"


def last_used(moment: datetime | None, *, brief: bool) -> str | None:
    """When it was last used, which is noted at most once a minute; with `brief` as how long ago, else as it was noted."""
    return used_ago((clock.now() - moment).total_seconds()) if moment and brief else when(moment)


def _text(cell: object) -> Text:
    """One cell for a terminal. A Text keeps its style."""
    if isinstance(cell, Text):
        return cell
    if isinstance(cell, (list, tuple)):
        return plain("\n".join(map(str, cell)) or _NONE)
    return plain(_NONE if cell is None else cell)


def _flat(cell: object) -> str:
    """One cell as one line."""
    if cell is None:
        return ""
    text = ",".join(map(str, cell)) if isinstance(cell, (list, tuple)) else cell
    return _text(text).plain.replace("\n", " ")
