"""`slackwater logs`: show the logs of this installation's parts."""

from contextlib import suppress
from typing import Annotated

import typer
from rich.text import Text

from app.cli import log_files, log_lines, tables
from app.cli.data_dir_lock import running
from app.cli.options import console, errors
from app.cli.options import settings as configured

_DEMO = "demo"
Part = Annotated[
    str | None,
    typer.Argument(
        help="api, engine-0, gpu-worker, maintenance, notifier, steward or up; default: all except the engines",
        autocompletion=lambda: log_files.parts(configured().data_dir),
    ),
]


def logs(
    part: Part = None,
    count: Annotated[
        int, typer.Option("-n", "--lines", min=0, max=1_000_000, help="number of last lines to show")
    ] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="show new lines until interrupted")] = False,
) -> None:
    """Show the logs of the parts that `slackwater up` runs on this machine."""
    settings = configured()
    owner = running(settings.data_dir)
    if owner is not None and owner.command == _DEMO != part:
        tables.sentence(errors, f"{owner.named}, whose parts all write to one log: `slackwater logs {_DEMO}`.")
    files = log_files.chosen(settings.data_dir, part)
    if part is None:
        ours = [file for file in files if file.stem in log_files.OURS]
        files = ours or files
    tails = [log_files.Tail.from_end(file) for file in files]
    for line in log_files.latest(files, count):
        show(line)
    if follow:
        with suppress(KeyboardInterrupt):
            log_files.follow(tails, show)


def show(line: str) -> None:
    """Print a line: as one row per event on a terminal, unchanged in a pipe."""
    event = log_lines.parse(line) if console.is_terminal else None
    console.print(log_lines.shown(event, console.width) if event else Text(line), soft_wrap=True, highlight=False)
