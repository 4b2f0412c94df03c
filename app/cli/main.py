"""`slackwater`: the command line."""

import os
import sys
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer
from rich.console import Console

from app import settings as configuration
from app import telemetry
from app.cli import admin, batches
from app.failure import Failure, guarded
from app.settings import Settings
from app.webhooks.endpoints import KINDS

app = typer.Typer(
    help="Durable batch inference in the slack of your GPUs. Settings are environment variables SLACKWATER_…; "
    "`slackwater settings` lists them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
key_app = typer.Typer(help="Create, list and revoke API keys.", no_args_is_help=True)
model_app = typer.Typer(help="The models of this installation.", no_args_is_help=True)
subscription_app = typer.Typer(help="Webhooks: who is told when a batch is queued or done.", no_args_is_help=True)
account_app = typer.Typer(help="What differs from account to account.", no_args_is_help=True)
batch_app = typer.Typer(help="Look at batches; pause, resume, cancel, retry them.", no_args_is_help=True)
app.add_typer(account_app, name="account")
app.add_typer(batch_app, name="batch")
app.add_typer(key_app, name="key")
app.add_typer(model_app, name="model")
app.add_typer(subscription_app, name="subscription")
console = Console()

RequestId = Annotated[UUID, typer.Argument(help="the request_id that the submit answered")]
Account = Annotated[str, typer.Option(help="the account in the URL")]


def main() -> None:
    """Entry point: what the user can mend becomes two readable lines and exit code 1."""
    guarded(app)


def _settings(**overrides: object) -> Settings:
    return configuration.load(**{name: value for name, value in overrides.items() if value is not None})


def _become(module: str, *arguments: str) -> None:
    """Replace this process by one part, so that signals reach it directly."""
    _settings()  # a wrong one is told before
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])  # noqa: S606


@app.command()
def up(
    attach: Annotated[str | None, typer.Option(metavar="URL", help="use this running engine, start none")] = None,
    model: Annotated[str | None, typer.Option(help="catalogue model of the engine")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="port of the API")] = None,
) -> None:
    """Run everything on this machine: database, API, engine, GPU worker, notifier, steward."""
    from app.cli.up import up as run

    settings = _settings(engine_url=attach, engine_model=model, port=port)
    if "webhook_allow_private" not in settings.model_fields_set:  # on one machine, receivers are on it too
        settings = settings.model_copy(update={"webhook_allow_private": True})
    telemetry.configure(settings, "up")
    run(settings, console)


@app.command()
def demo(
    requests: Annotated[Path | None, typer.Option(help="NDJSON file of batch items")] = None,
    attach: Annotated[str | None, typer.Option(metavar="URL", help="use this running engine, start none")] = None,
) -> None:
    """Run a batch of real prompts through the whole system, show answers and the webhook, and stop."""
    from app.cli.demo import demo as run

    run(_settings(engine_url=attach), console, requests)


@app.command()
def doctor() -> None:
    """Check this machine and the set-up, and say how to mend what is wrong."""
    from app.cli.doctor import main as check

    raise typer.Exit(check(_settings()))


@app.command()
def settings() -> None:
    """List every setting with its value in force and what it means."""
    from app.cli import listing

    console.print(listing.settings_table(_settings()))


@app.command()
def migrate() -> None:
    """Bring the database to the newest schema and make today's partitions."""
    import asyncio

    from app.db import embedded
    from app.db import migrate as migrations
    from app.db.pool import Database
    from app.queue import care

    current = _settings()
    if not current.database_url:
        embedded.start(current)
    url = embedded.database_url(current)
    migrations.upgrade(url)

    async def partitions() -> None:
        async with Database(url, size=1) as database, database.transaction() as conn:
            await care.create_partitions(conn, current.partition_days_ahead)

    asyncio.run(partitions())
    console.print(f"The database is at revision {migrations.revisions(url)[0]}.")
    if not current.database_url:
        embedded.stop(current)


@app.command()
def api() -> None:
    """Run the HTTP API."""
    _become("app.api")


@app.command(name="gpu-worker")
def gpu_worker() -> None:
    """Run the worker of one engine: its own (managed), or a running one (SLACKWATER_ENGINE_URL)."""
    _become("workers.gpu")


@app.command()
def notifier() -> None:
    """Run the Celery worker that delivers webhooks."""
    _become("workers.notifier")


@app.command()
def steward() -> None:
    """Run the caretaker of the queue; several may run, one leads."""
    _become("workers.steward")


@app.command()
def engine(port: Annotated[int, typer.Option(help="port of the engine")] = 8000) -> None:
    """Run only vLLM with the flags of the catalogue, for use with --attach or SLACKWATER_ENGINE_URL."""
    _become("workers.gpu.engine", str(port))


@model_app.command("list")
def model_list() -> None:
    """List the catalogue: names, what serves them, whether weights are at hand."""
    from app.cli import listing

    console.print(listing.models_table(_settings()))


@model_app.command("prepare")
def model_prepare(name: Annotated[str | None, typer.Argument(help="catalogue model")] = None) -> None:
    """Fetch and convert a model's weights once."""
    from app.engines import catalogue
    from app.engines import model as weights

    current = _settings()
    wanted = name or current.engine_model
    if (model := catalogue.load(current.models_file).resolve(wanted)) is None:
        raise Failure(f"No such model {wanted}.", "`slackwater model list` shows them.")
    weights.prepare(current, model)


@key_app.command("create")
def key_create(
    account: Account = "local",
    name: Annotated[str, typer.Option(help="what the key is for")] = "unnamed",
    days: Annotated[
        int | None, typer.Option(min=1, max=36500, help="valid for so many days; without: until revoked")
    ] = None,
) -> None:
    """Make a key and print it, this once."""
    key = admin.create_key(_settings(), account, name, days)
    console.print(key, markup=False, highlight=False, soft_wrap=True)


@key_app.command("list")
def key_list() -> None:
    """List keys without their secrets."""
    admin.list_keys(_settings(), console)


@key_app.command("revoke")
def key_revoke(key: Annotated[str, typer.Argument(help="key id or whole key")]) -> None:
    """Make a key useless at once."""
    admin.revoke_key(_settings(), key)
    console.print("revoked")


@account_app.command("retention")
def account_retention(
    account: Annotated[str, typer.Argument(help="the account in the URL")],
    days: Annotated[
        int | None, typer.Argument(min=1, max=36500, help="keep its batches at least so long; without: as all others")
    ] = None,
) -> None:
    """Keep an account's batches longer than SLACKWATER_RETENTION_DAYS says."""
    console.print(f"The batches of {account} are kept {admin.set_retention(_settings(), account, days)}.")


@batch_app.command("list")
def batch_list(
    account: Account = "local", limit: Annotated[int, typer.Option(min=1, max=1000, help="so many at most")] = 20
) -> None:
    """List an account's batches, newest first."""
    batches.show_latest(_settings(), account, limit, console)


@batch_app.command("show")
def batch_show(request_id: RequestId, account: Account = "local") -> None:
    """Tell how a batch stands, when it will be done, and what it waits for."""
    batches.show(_settings(), account, request_id, console)


@batch_app.command("pause")
def batch_pause(request_id: RequestId, account: Account = "local") -> None:
    """Start nothing more of a batch; what runs, ends."""
    batches.halt(_settings(), account, request_id, "pause")
    console.print("paused")


@batch_app.command("resume")
def batch_resume(request_id: RequestId, account: Account = "local") -> None:
    """Let a paused batch go on."""
    batches.halt(_settings(), account, request_id, "resume")
    console.print("resumed")


@batch_app.command("cancel")
def batch_cancel(request_id: RequestId, account: Account = "local") -> None:
    """Drop what is queued, abort what runs, keep what is done."""
    batches.halt(_settings(), account, request_id, "cancel")
    console.print("cancelled; what runs is aborted within a heartbeat")


@batch_app.command("retry")
def batch_retry(request_id: RequestId, account: Account = "local") -> None:
    """Run what failed, was cancelled or has expired once more."""
    console.print(f"{batches.retry(_settings(), account, request_id)} items run again")


@account_app.command("share")
def account_share(
    account: Annotated[str, typer.Argument(help="the account in the URL")],
    weight: Annotated[
        float | None, typer.Option(min=0.001, max=1_000_000, help="its share beside other accounts'")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, max=10**15, help="most estimated tokens of it in flight at once, per model")
    ] = None,
) -> None:
    """Set, or without options show, how much of the batch capacity an account gets."""
    weight, max_tokens = admin.set_share(_settings(), account, weight, max_tokens)
    console.print(f"{account} has weight {weight:g} and at most {max_tokens} tokens in flight.")


@subscription_app.command("create")
def subscription_create(
    url: Annotated[str, typer.Argument(help="https URL that takes the webhooks")],
    account: Account = "local",
    name: Annotated[str, typer.Option(help="a name to find it by")] = "webhook",
    model: Annotated[str | None, typer.Option(help="only this model's events; without: all")] = None,
    event: Annotated[list[str] | None, typer.Option(help="event type, may be repeated; without: all")] = None,
) -> None:
    """Register a webhook and print its id and signing secret, this once."""
    subscription_id, secret = admin.create_subscription(_settings(), account, url, name, model, event or list(KINDS))
    console.print(f"id      {subscription_id.hex}\nsecret  {secret}", highlight=False, soft_wrap=True)


@subscription_app.command("list")
def subscription_list(account: Account = "local") -> None:
    """List an account's webhooks."""
    admin.list_subscriptions(_settings(), account, console)


@subscription_app.command("delete")
def subscription_delete(subscription_id: UUID, account: Account = "local") -> None:
    """Remove a webhook."""
    admin.delete_subscription(_settings(), account, subscription_id)
    console.print("deleted")


if __name__ == "__main__":
    main()
