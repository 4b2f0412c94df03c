"""`slackwater login` and `logout`: store or delete the API's URL and key for this user."""

from typing import Annotated

import typer

from app.api_url import known_url
from app.cli import credentials
from app.cli.client import Client
from app.cli.options import console, settings
from app.settings import bare_url


def login(
    url: Annotated[str | None, typer.Argument(help="URL of the API; default: this machine's API")] = None,
    key: Annotated[
        str | None, typer.Option(help="API key; default: SLACKWATER_API_KEY, else a prompt", show_default=False)
    ] = None,
) -> None:
    """Check an API key and store it for the other commands. SLACKWATER_URL and SLACKWATER_API_KEY take precedence."""
    current = settings()
    target = bare_url(url) if url else known_url(current)
    secret = key or current.api_key.get_secret_value() or typer.prompt(f"API key for {target}", hide_input=True)
    with Client(target, secret.strip()) as client:
        account = client.account
    file = credentials.save(current.data_dir, target, account, secret.strip(), local=False)
    console.print(f"Logged in to {target} as account {account}. The key is stored in {file}.", soft_wrap=True)


def logout() -> None:
    """Delete the stored API key from this machine. The key stays valid; `slackwater key revoke` revokes it."""
    removed = credentials.remove(settings().data_dir)
    console.print("Logged out." if removed else "There was no stored key.")
