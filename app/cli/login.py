"""`slackwater login` and `logout`: store for this user where the API is and which key to use."""

from typing import Annotated

import typer

from app.cli import credentials
from app.cli.api_address import base_url
from app.cli.client import Client
from app.cli.options import console, settings


def login(
    url: Annotated[str | None, typer.Argument(help="URL of the API; without: the one of this machine")] = None,
    key: Annotated[
        str | None, typer.Option(help="the API key; without: asked for, or SLACKWATER_API_KEY", show_default=False)
    ] = None,
) -> None:
    """Check an API key and store it, so that the other commands use it. SLACKWATER_URL and SLACKWATER_API_KEY win over it."""
    current = settings()
    target = (url or current.url or base_url(current)).rstrip("/")
    secret = key or current.api_key.get_secret_value() or typer.prompt(f"API key for {target}", hide_input=True)
    with Client(target, secret.strip()) as client:
        account = client.account
    file = credentials.save(current.data_dir, target, account, secret.strip(), local=False)
    console.print(f"Logged in to {target} as account {account}. The key is stored in {file}.", soft_wrap=True)


def logout() -> None:
    """Remove the stored API key from this machine. The key itself stays valid; `slackwater key revoke` ends it."""
    known = credentials.remove(settings().data_dir)
    console.print("Logged out." if known else "There was no stored key.")
