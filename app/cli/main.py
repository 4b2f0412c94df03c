"""`slackwater`: the command line."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from app import telemetry
from app.cli import admin, batches, subscription
from app.cli.options import Account, RequestId, console
from app.cli.options import settings as configured
from app.failure import Failure, guarded
from app.tenants.limits import Limits

app = typer.Typer(
    help="Durable batch inference in the slack of your GPUs. Settings are environment variables SLACKWATER_…; "
    "`slackwater settings` lists them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
key_app = typer.Typer(help="Create, list and revoke API keys.", no_args_is_help=True)
model_app = typer.Typer(help="The models of this installation.", no_args_is_help=True)
account_app = typer.Typer(help="What differs from account to account.", no_args_is_help=True)
batch_app = typer.Typer(help="Look at batches; pause, resume, cancel, retry them.", no_args_is_help=True)
app.add_typer(account_app, name="account")
app.add_typer(batch_app, name="batch")
app.add_typer(key_app, name="key")
app.add_typer(model_app, name="model")
app.add_typer(subscription.app, name="subscription")


def main() -> None:
    """Entry point: what the user can mend becomes two readable lines and exit code 1."""
    guarded(app)


def _become(module: str, *arguments: str) -> None:
    """Replace this process by one part, so that signals reach it directly."""
    configured()  # a wrong one is told before
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])  # noqa: S606


@app.command()
def up(
    attach: Annotated[str | None, typer.Option(metavar="URL", help="use this running engine, start none")] = None,
    model: Annotated[str | None, typer.Option(help="catalogue model of the engine")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="port of the API")] = None,
) -> None:
    """Run everything on this machine: database, API, engine, GPU worker, notifier, steward."""
    from app.cli.up import up as run

    settings = configured(engine_url=attach, engine_model=model, port=port)
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

    run(configured(engine_url=attach), console, requests)


@app.command()
def doctor() -> None:
    """Check this machine and the set-up, and say how to mend what is wrong."""
    from app.cli.doctor import main as check

    raise typer.Exit(check(configured()))


@app.command()
def why(
    request_id: RequestId,
    account: Account = "local",
    last: Annotated[int, typer.Option(min=0, max=1000, help="so many of the engines' latest decisions")] = 8,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document")] = False,
) -> None:
    """Tell why a batch waits, since when, and what its engines decided lately."""
    from app.cli.why import why as tell

    tell(configured(), account, request_id, last, console, as_json=as_json)


@app.command()
def listen(
    account: Account = "local",
    port: Annotated[int, typer.Option(min=0, max=65535, help="port of the receiver; 0: any free one")] = 0,
    secret: Annotated[
        str, typer.Option(help="of a subscription that you made; without: one is made, and removed at the end")
    ] = "",
    status: Annotated[int, typer.Option(min=200, max=599, help="answer so, to see what a failing receiver gets")] = 204,
) -> None:
    """Receive webhooks on this machine, verify them, show them. For development."""
    from app.cli.listen import listen as run

    run(configured(), account, port, secret, status, console)


@app.command()
def events(
    account: Account = "local",
    queue: Annotated[str | None, typer.Option(help="of one queue; without: of all")] = None,
    ack: Annotated[bool, typer.Option("--ack", help="acknowledge what is shown: it does not come again")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="go on until interrupted")] = False,
) -> None:
    """Show the events that wait to be fetched. `slackwater subscription queue` makes a subscription that keeps them."""
    from app.cli.events import events as show

    show(configured(), account, queue, console, ack=ack, follow=follow)


@app.command()
def settings() -> None:
    """List every setting with its value in force and what it means."""
    from app.cli import listing

    console.print(listing.settings_table(configured()))


@app.command()
def migrate() -> None:
    """Bring the database to the newest schema and make today's partitions."""
    from app.cli import schema

    schema.migrate(configured(), console)


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

    console.print(listing.models_table(configured()))


@model_app.command("prepare")
def model_prepare(name: Annotated[str | None, typer.Argument(help="catalogue model")] = None) -> None:
    """Fetch and convert a model's weights once."""
    from app.engines import catalogue
    from app.engines import model as weights

    current = configured()
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
    requests: Annotated[
        int | None,
        typer.Option(min=1, max=2**31 - 1, help="synchronous requests a minute; without: as the settings say"),
    ] = None,
    tokens: Annotated[int | None, typer.Option(min=1, help="their tokens a minute, as estimated on arrival")] = None,
) -> None:
    """Make a key and print it, this once."""
    key = admin.create_key(configured(), account, name, days, Limits(requests, tokens))
    console.print(key, markup=False, highlight=False, soft_wrap=True)


@key_app.command("list")
def key_list() -> None:
    """List keys without their secrets."""
    admin.list_keys(configured(), console)


@key_app.command("revoke")
def key_revoke(key: Annotated[str, typer.Argument(help="key id or whole key")]) -> None:
    """Make a key useless at once."""
    admin.revoke_key(configured(), key)
    console.print("revoked")


@account_app.command("retention")
def account_retention(
    account: Annotated[str, typer.Argument(help="the account in the URL")],
    days: Annotated[
        int | None, typer.Argument(min=1, max=36500, help="keep its batches at least so long; without: as all others")
    ] = None,
) -> None:
    """Keep an account's batches longer than SLACKWATER_RETENTION_DAYS says."""
    console.print(f"The batches of {account} are kept {admin.set_retention(configured(), account, days)}.")


@account_app.command("webhook-hosts")
def account_webhook_hosts(
    account: Annotated[str, typer.Argument(help="the account in the URL")],
    hosts: Annotated[
        list[str] | None, typer.Argument(help="`.example.com` is every host below it; without: to any")
    ] = None,
) -> None:
    """Let an account's webhooks go to these hosts only, of those that SLACKWATER_WEBHOOK_ALLOWED_HOSTS allows."""
    admin.set_webhook_hosts(configured(), account, hosts or ())
    console.print(f"The webhooks of {account} may go to {', '.join(hosts) if hosts else 'any host'}.", highlight=False)


@batch_app.command("list")
def batch_list(
    account: Account = "local", limit: Annotated[int, typer.Option(min=1, max=1000, help="so many at most")] = 20
) -> None:
    """List an account's batches, newest first."""
    batches.show_latest(configured(), account, limit, console)


@batch_app.command("show")
def batch_show(request_id: RequestId, account: Account = "local") -> None:
    """Tell how a batch stands, when it will be done, and what it waits for."""
    batches.show(configured(), account, request_id, console)


@batch_app.command("pause")
def batch_pause(request_id: RequestId, account: Account = "local") -> None:
    """Start nothing more of a batch; what runs, ends."""
    batches.halt(configured(), account, request_id, "pause")
    console.print("paused")


@batch_app.command("resume")
def batch_resume(request_id: RequestId, account: Account = "local") -> None:
    """Let a paused batch go on."""
    batches.halt(configured(), account, request_id, "resume")
    console.print("resumed")


@batch_app.command("cancel")
def batch_cancel(request_id: RequestId, account: Account = "local") -> None:
    """Drop what is queued, abort what runs, keep what is done."""
    batches.halt(configured(), account, request_id, "cancel")
    console.print("cancelled; what runs is aborted within a heartbeat")


@batch_app.command("retry")
def batch_retry(request_id: RequestId, account: Account = "local") -> None:
    """Run what failed, was cancelled or has expired once more."""
    console.print(f"{batches.retry(configured(), account, request_id)} items run again")


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
    weight, max_tokens = admin.set_share(configured(), account, weight, max_tokens)
    console.print(f"{account} has weight {weight:g} and at most {max_tokens} tokens in flight.")


if __name__ == "__main__":
    main()
