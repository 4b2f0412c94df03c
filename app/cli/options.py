"""What the commands share: the console, common options, the settings with what the command line overrides."""

from typing import Annotated
from uuid import UUID

import typer
from rich.console import Console

from app import settings as configuration
from app.settings import Settings

console = Console()

RequestId = Annotated[UUID, typer.Argument(help="the request_id that the submit answered")]
Account = Annotated[str, typer.Option(help="the account in the URL")]


def settings(**overrides: object) -> Settings:
    """The settings in force; what is None overrides nothing."""
    return configuration.load(**{name: value for name, value in overrides.items() if value is not None})
