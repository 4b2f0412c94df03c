"""`slackwater`: the command line. Every group of commands is a module; they are only mounted here."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from app import optional_packages, processes
from app.cli import (
    account,
    batch,
    engine,
    events,
    key,
    listen,
    login,
    logs,
    model,
    results,
    settings_list,
    status,
    submit,
    subscription,
    version,
    why,
)
from app.cli.options import Json, console, warn_of_variables
from app.cli.options import settings as configured
from app.user_errors import Failure, guarded

app = typer.Typer(
    help="Durable batch inference in the slack of your GPUs. Settings are environment variables SLACKWATER_…; "
    "`slackwater settings` lists them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.callback()(version.options)
for group in (account, batch, engine, key, model, subscription):
    app.add_typer(group.app, name=group.__name__.rpartition(".")[2])
commands = (submit.submit, results.results, why.why, status.status, events.events, listen.listen)
for command in (*commands, login.login, login.logout, logs.logs):
    app.command()(command)
app.command("settings")(settings_list.show)


def main() -> None:
    """Entry point: what the user can mend becomes two readable lines and exit code 1."""
    processes.keep_private()
    warn_of_variables()
    guarded(app)


def _become(module: str, *arguments: str) -> None:
    """Replace this process by one part, so that signals reach it directly."""
    optional_packages.check(configured())  # a wrong setting, or one without its extra, is told before
    os.execv(sys.executable, processes.python_module(module, *arguments))  # noqa: S606


def _engine_url(attach: str | None) -> str | None:
    """What --attach names. Raises Failure for an empty word, in a script a variable that is not set."""
    if attach is not None and not attach.strip():
        fix = "Name the URL of a running vLLM, or leave --attach out to start an engine here."
        raise Failure("--attach: the URL is empty.", fix)
    return attach


@app.command()
def up(
    attach: Annotated[str | None, typer.Option(metavar="URL", help="use this running engine, start none")] = None,
    model: Annotated[str | None, typer.Option(help="catalogue model of the engine")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="port of the API")] = None,
) -> None:
    """Run everything on this machine: database, API, engine, GPU worker, notifier, steward."""
    from app import private_targets
    from app.cli.up import up as run

    settings = configured(engine_url=_engine_url(attach), engine_model=model, port=port)
    # On one machine, receivers are on it too.
    if "webhook_allow_private" not in settings.model_fields_set and private_targets.only_here(settings):
        settings = settings.model_copy(update={"webhook_allow_private": "loopback"})
    run(settings, console)


@app.command()
def demo(
    requests: Annotated[Path | None, typer.Option(help="NDJSON file of batch items")] = None,
    attach: Annotated[str | None, typer.Option(metavar="URL", help="use this running engine, start none")] = None,
) -> None:
    """Run a batch of real prompts through the whole system, show answers and the webhook, and stop."""
    from app.cli.demo import demo as run

    run(configured(engine_url=_engine_url(attach)), console, requests)


@app.command()
def doctor(
    attach: Annotated[str | None, typer.Option(metavar="URL", help="check this running engine")] = None,
    as_json: Json = False,
) -> None:
    """Check this machine and the set-up, and say how to mend what is wrong."""
    from app.cli.doctor import main as check

    raise typer.Exit(check(configured(engine_url=attach), as_json=as_json))


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


if __name__ == "__main__":
    main()
