"""`slackwater account …`: who may use this installation, and what differs from account to account."""

import sys
from typing import Annotated

import typer

from app.cli import accounts, admin, tables
from app.cli.options import Json, console, settings
from app.user_errors import Failure

app = typer.Typer(help="Create, list, show and delete accounts; set what differs between them.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="the account in the URL")]


@app.command("create")
def create(account: Name, as_json: Json = False) -> None:
    """Make an account."""
    accounts.create(settings(), account)
    _tell(
        account, f"Account {account} was made. `slackwater key create --account {account}` makes a key for it.", as_json
    )


@app.command("list")
def show_all(as_json: Json = False) -> None:
    """List the accounts with how much each has."""
    accounts.show_all(settings(), console, as_json=as_json)


@app.command("show")
def show(account: Name, as_json: Json = False) -> None:
    """Show what an account has and what is set for it."""
    accounts.show(settings(), account, console, as_json=as_json)


@app.command("delete")
def delete(account: Name, yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False) -> None:
    """Delete an account with all it has: keys, webhooks, files, batches and their results. What runs is cancelled."""
    current = settings()
    what = accounts.contents(current, account)
    if not yes:
        if not sys.stdin.isatty():
            raise Failure(f"Account {account} has {what}. All of it would be deleted.", "Add --yes to do it.")
        typer.confirm(f"Account {account} has {what}. Delete all of it?", abort=True)
    accounts.close(current, account)
    _tell(
        account,
        f"Account {account} is being deleted: its keys are revoked, its webhooks disabled, its batches cancelled. "
        "The steward removes the rest; `slackwater account list` shows the account until then.",
    )


def _tell(account: str, text: str, as_json: bool = False) -> None:
    """Say what was done, or print the account as it is now."""
    if as_json:
        accounts.show(settings(), account, console, as_json=True)
    else:
        console.print(text, markup=False, highlight=False)


@app.command("retention")
def retention(
    account: Name,
    days: Annotated[
        int | None, typer.Argument(min=1, max=36500, help="keep its batches at least so long; without: as all others")
    ] = None,
    as_json: Json = False,
) -> None:
    """Keep an account's batches longer than SLACKWATER_RETENTION_DAYS says."""
    kept = admin.set_retention(settings(), account, days)
    _tell(account, f"The batches of {account} are kept {kept}.", as_json)


@app.command("webhook-hosts")
def webhook_hosts(
    account: Name,
    hosts: Annotated[
        list[str] | None, typer.Argument(help="`.example.com` is every host below it; without: to any")
    ] = None,
    as_json: Json = False,
) -> None:
    """Let an account's webhooks go to these hosts only, of those that SLACKWATER_WEBHOOK_ALLOWED_HOSTS allows."""
    admin.set_webhook_hosts(settings(), account, hosts or ())
    _tell(account, f"The webhooks of {account} may go to {', '.join(hosts) if hosts else 'any host'}.", as_json)


@app.command("share")
def share(
    account: Name,
    weight: Annotated[
        float | None, typer.Option(min=0.001, max=1_000_000, help="its share beside other accounts'")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, max=10**15, help="most estimated tokens of it in flight at once, per model")
    ] = None,
    as_json: Json = False,
) -> None:
    """Set, or without options show, how much of the batch capacity an account gets."""
    weight, max_tokens = admin.set_share(settings(), account, weight, max_tokens)
    if as_json:
        tables.document(console, {"account_id": account, "weight": weight, "max_inflight_tokens": max_tokens})
        return
    console.print(f"{account} has weight {weight:g} and at most {max_tokens} tokens in flight.")
