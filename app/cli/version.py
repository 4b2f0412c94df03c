"""`slackwater --version`."""

import platform
from typing import Annotated

import typer

from app import __version__


def text() -> str:
    """The version of Slackwater and of the Python that runs it."""
    return f"slackwater {__version__} (Python {platform.python_version()})"


def _show(requested: bool) -> None:
    if requested:
        typer.echo(text())
        raise typer.Exit


def options(
    show: Annotated[
        bool, typer.Option("--version", callback=_show, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """The options that come before the command."""
