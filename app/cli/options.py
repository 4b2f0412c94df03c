"""What the commands share: consoles, common options, and the settings with overrides from the command line."""

from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from app import environment
from app import settings as configuration
from app.settings import Settings
from app.user_errors import Failure

console = Console()
errors = Console(stderr=True)

BatchId = Annotated[str, typer.Argument(metavar="BATCH", help="request_id, batch_…, or at least the first 8 digits")]
Account = Annotated[str, typer.Option(help="name of the account")]
Json = Annotated[bool, typer.Option("--json", help="print one JSON document")]


def warn_of_variables() -> None:
    """Warn on stderr about environment variables that look like settings but are not."""
    unknown = [f"{name} (did you mean {near}?)" if near else name for name, near in environment.mistyped().items()]
    if unknown:
        effect = "is not a setting and has no effect" if len(unknown) == 1 else "are not settings and have no effect"
        line = f"{', '.join(unknown)} {effect}; `slackwater settings` lists all."
        errors.print(Text.assemble(("warning", "yellow"), " ", line), soft_wrap=True)


def settings(**overrides: object) -> Settings:
    """The settings in force. Overrides that are None are ignored."""
    return configuration.load(**{name: value for name, value in overrides.items() if value is not None})


def pairs(given: list[str] | None) -> dict[str, str]:
    """The values of a repeated KEY=VALUE option. Raises BadParameter if a value has no key or no `=`."""
    found = [pair.partition("=") for pair in given or ()]
    if wrong := ["".join(parts) for parts in found if not parts[0] or not parts[1]]:
        raise typer.BadParameter(f"{wrong[0]} is not KEY=VALUE.")
    return {key: value for key, _, value in found}


def checked_key(key: str | None) -> str | None:
    """The value of --idempotency-key, which becomes a header. Raises Failure unless it is ASCII."""
    if key is not None and not key.isascii():
        raise Failure(f"--idempotency-key: must be ASCII, got '{key}'")
    return key
