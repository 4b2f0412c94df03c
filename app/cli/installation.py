"""`slackwater up`, `demo`, `doctor` and `migrate`: the commands for a whole installation.

Each imports its implementation when it runs, because those imports would slow down every other command.
"""

import os
import signal
import time
from pathlib import Path
from typing import Annotated

import typer

from app import private_targets
from app.cli.options import Json, console, settings
from app.settings import MOST_SLOTS, Settings
from app.user_errors import Failure


def up(
    attach: Annotated[
        str | None, typer.Option(metavar="URL", help="use the vLLM that runs at this URL; start none")
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_SLOTS,
            metavar="N",
            help="requests that the attached engine runs at once: its --max-num-seqs",
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="catalogue model that the engine serves")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="port of the API")] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="show the logs of all parts; by default warnings and errors only")
    ] = False,
) -> None:
    """Run everything on this machine: database, API, engine, GPU worker, notifier, steward, maintenance, console."""
    from app.cli.up import up as run

    if slots is not None and attach is None:
        raise Failure("--slots: it says what an attached engine runs.", "Name the engine, too: --attach URL.")
    current = settings(engine_url=_engine_url(attach), engine_slots=slots, engine_model=model, port=port)
    run(_on_one_machine(current), console, verbose=verbose)


def down() -> None:
    """Stop the `slackwater up` of this data directory, as Ctrl-C does, and wait until it has stopped.

    If it was killed, stop what it has left running.
    """
    from app.cli import tables
    from app.cli.data_dir_lock import running

    current = settings()
    owner = running(current.data_dir)
    if owner is None:
        _stop_leftovers(current)
        return
    with tables.patience(f"Stopping: {owner.named}; what is in the engine may end …"):
        try:
            os.kill(owner.pid, signal.SIGTERM)
        except PermissionError:
            raise Failure(f"{owner.named}, as another user.", "Stop it as that user.") from None
        while running(current.data_dir) == owner:
            time.sleep(0.1)
    console.print("Stopped.")


def _stop_leftovers(current: Settings) -> None:
    from app.cli import leftovers
    from app.cli.data_dir_lock import owned

    nothing = f"No `slackwater up` runs on {current.data_dir}."
    if not leftovers.find(current).named:
        raise Failure(nothing, "Elsewhere? SLACKWATER_DATA_DIR names its directory.")
    with owned(current, "down"):
        found = leftovers.stop(current)
    console.print(f"{nothing} Stopped what one has left: {found.named}.", soft_wrap=True, highlight=False)


def demo(
    requests: Annotated[Path | None, typer.Option(help="NDJSON file of batch items")] = None,
    attach: Annotated[
        str | None, typer.Option(metavar="URL", help="use the vLLM that runs at this URL; start none")
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="show every answer, and the body of every webhook")] = False,
) -> None:
    """Run a batch of real prompts through the whole system, show answers and the webhook, and stop."""
    from app.cli.demo import demo as run

    run(settings(engine_url=_engine_url(attach)), console, requests, show_all=show_all)


def doctor(
    attach: Annotated[str | None, typer.Option(metavar="URL", help="check the vLLM that runs at this URL")] = None,
    as_json: Json = False,
) -> None:
    """Check this machine and its settings, and say how to fix each problem."""
    from app.cli.doctor import main as check

    current = _on_one_machine(settings(engine_url=_engine_url(attach)))
    raise typer.Exit(check(current, attach=attach is not None, as_json=as_json))


def migrate(
    roles: Annotated[
        bool,
        typer.Option("--roles", help="also create one database role for each part, with the least rights it needs"),
    ] = False,
    contract: Annotated[
        bool,
        typer.Option("--contract", help="close the database to older versions, once every part has this one"),
    ] = False,
) -> None:
    """Migrate the database to the newest schema and create today's partitions."""
    from app.cli import schema

    schema.migrate(settings(), console, roles=roles, contract=contract)


def _on_one_machine(current: Settings) -> Settings:
    """The settings as `up` has them: on one machine, receivers of webhooks are on it too."""
    if "webhook_allow_private" in current.model_fields_set or not private_targets.only_here(current):
        return current
    return current.model_copy(update={"webhook_allow_private": "loopback"})


def _engine_url(attach: str | None) -> str | None:
    """The URL of `--attach`. Raises Failure if it is empty, for example because a script's variable is not set."""
    if attach is not None and not attach.strip():
        fix = "Name the URL of a running engine, or leave --attach out to start an engine here."
        raise Failure("--attach: the URL is empty.", fix)
    return attach
