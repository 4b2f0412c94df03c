"""`slackwater`: the command line. Every group of commands is a module, which is mounted here."""

from collections.abc import Callable

import typer

from app import processes
from app.cli import (
    account,
    audit,
    batch,
    budget,
    compare,
    console,
    engine,
    events,
    incidents,
    installation,
    key,
    listen,
    login,
    logs,
    model,
    operator,
    parts,
    policy,
    results,
    secret_key,
    settings_list,
    shred,
    spend,
    status,
    submit,
    subscription,
    top,
    version,
    why,
)
from app.cli.options import warn_of_variables
from app.user_errors import guarded

app = typer.Typer(
    help="Durable batch inference in the slack of your GPUs. Settings are environment variables SLACKWATER_…; "
    "`slackwater settings` lists them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.callback()(version.options)
GROUPS = (account, audit, batch, budget, console, engine, key, model, operator, policy, secret_key, spend, subscription)
for group in GROUPS:
    app.add_typer(group.app, name=group.__name__.rpartition(".")[2].replace("_", "-"))
app.command("settings")(settings_list.show)
COMMANDS: tuple[Callable[..., None], ...] = (
    *(submit.submit, results.results, why.why, status.status, events.events, listen.listen),
    *(login.login, login.logout, logs.logs, incidents.incidents, top.top, compare.compare),
    *(installation.up, installation.demo, installation.doctor, installation.migrate, shred.shred),
    *(parts.api, parts.gpu_worker, parts.notifier, parts.steward),
)
for command in COMMANDS:
    app.command()(command)


def main() -> None:
    """Entry point. An error that the user can fix is printed as two lines, and the exit code is 1."""
    processes.keep_private()
    warn_of_variables()
    guarded(app)


if __name__ == "__main__":
    main()
