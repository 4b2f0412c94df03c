"""What the commands share: the console, common options, the settings with what the command line overrides."""

from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from app import settings as configuration
from app.settings import Settings

console = Console()
errors = Console(stderr=True)

BatchId = Annotated[
    str, typer.Argument(metavar="BATCH", help="the request_id of a submit, batch_…, or the first 8 or more digits")
]
Account = Annotated[str, typer.Option(help="the account in the URL")]
Json = Annotated[bool, typer.Option("--json", help="print one JSON document")]


def warn_of_variables() -> None:
    """Name the variables that look like settings and are none, in one line on stderr."""
    unknown = [f"{name} (did you mean {near}?)" if near else name for name, near in configuration.mistyped().items()]
    if unknown:
        effect = "is no setting and has no effect" if len(unknown) == 1 else "are no settings and have no effect"
        line = f"{', '.join(unknown)} {effect}; `slackwater settings` lists all."
        errors.print(Text.assemble(("warning", "yellow"), " ", line), soft_wrap=True)


def settings(**overrides: object) -> Settings:
    """The settings in force; what is None overrides nothing."""
    return configuration.load(**{name: value for name, value in overrides.items() if value is not None})


def pairs(given: list[str] | None) -> dict[str, str]:
    """The values of a repeated KEY=VALUE option. Raises BadParameter for one without a key."""
    found = [pair.partition("=") for pair in given or ()]
    if wrong := ["".join(parts) for parts in found if not parts[0] or not parts[1]]:
        raise typer.BadParameter(f"{wrong[0]} is not KEY=VALUE.")
    return {key: value for key, _, value in found}
