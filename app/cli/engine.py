"""`slackwater engine …`: run vLLM alone, list, drain and undrain engines, print the variables of a door.

All but `run` and `door` use the database.
"""

import os
import sys
import time
from collections.abc import Callable
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.status import Status

from app import clock
from app.cli import tables
from app.cli.database import on_database
from app.cli.options import Json, console
from app.cli.options import settings as configured
from app.crypto import secret_key
from app.engines import overview as engine_overview
from app.engines import service as engines
from app.engines.engine_key import door_token
from app.engines.engine_report import DRAINING
from app.engines.overview import EngineOverview
from app.processes import python_module
from app.quantities import many
from app.settings import Settings
from app.states import EngineIntake, EngineState
from app.user_errors import Failure

app = typer.Typer(help="Run vLLM alone; list, drain and undrain engines.", invoke_without_command=True)

Port = Annotated[int, typer.Option(min=1, max=65535, help="port of the engine")]
Name = Annotated[str, typer.Argument(help="name of the engine (see `engine list`)")]
Verb = Literal["drain", "drain now", "undrain"]

_COLUMNS = ("engine", "state", "model", "batch", "sync", "worker", "report")
_COUNTS = ("slots", "allowance", "batch_in_flight", "sync_in_flight")  # known while a worker reports them
_POLL_SECONDS = 0.5


@app.callback()
def alone(context: typer.Context, port: Port = 8000) -> None:
    """Run vLLM alone; list, drain and undrain engines. The default command is `run`."""
    if context.invoked_subcommand is None:
        run(port)


@app.command()
def run(port: Port = 8000) -> None:
    """Run only vLLM, with the flags of the catalogue. Use it with --attach or SLACKWATER_ENGINE_URL."""
    configured()  # reports a wrong setting before vLLM starts
    os.execv(sys.executable, python_module("workers.gpu.engine", str(port)))  # noqa: S606


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the engines: state, model, batch requests in flight / allowance, synchronous requests, worker, its last report."""
    found = overview(configured())
    if as_json:
        tables.document(console, [described(engine) for engine in found])
    elif found:
        tables.show(console, _COLUMNS, map(_row, found), whole=("engine",), numbers=("batch", "sync"))
    else:
        console.print("There is no engine yet. `slackwater up` and `slackwater gpu-worker` register theirs.")


@app.command()
def drain(
    name: Name,
    now: Annotated[
        bool, typer.Option("--now", help="return batch requests in flight to the queue instead of finishing them")
    ] = False,
    wait: Annotated[bool, typer.Option(help="return only when no request is in flight")] = True,
) -> None:
    """Stop sending new requests to an engine, until `undrain`. Restarts do not change that."""
    settings = configured()
    change(settings, name, "drain now" if now else "drain")
    outcome = f"{name} receives no new requests from now on."
    try:
        if wait:
            until_drained(settings, name, console)
            outcome = f"{name} is drained: no request is in flight on it."
    except KeyboardInterrupt:
        outcome += " Its requests in flight are not waited for."
    console.print(outcome, markup=False, highlight=False)


@app.command()
def undrain(name: Name) -> None:
    """Send requests to a drained engine again."""
    change(configured(), name, "undrain")
    console.print(f"{name} receives requests again.", markup=False, highlight=False)


@app.command()
def door(
    name: Annotated[str, typer.Argument(help="name of the engine, as its worker's SLACKWATER_ENGINE_NAME")],
    api: Annotated[
        str,
        typer.Option(
            help="http://… of this installation's API as the engine reaches it; without it, no keys are required"
        ),
    ] = "",
) -> None:
    """Print the environment variables of an engine's door (vLLM's --middleware). They are secrets of this engine."""
    console.print(
        f"SLACKWATER_DOOR_TOKEN={door_token(secret_key(configured()), name)}", soft_wrap=True, highlight=False
    )
    if api:
        console.print(f"SLACKWATER_DOOR_API={api}", markup=False, highlight=False, soft_wrap=True)


def overview(settings: Settings) -> list[EngineOverview]:
    """Every engine, as its row in the database describes it. Raises Failure."""
    return on_database(settings, engine_overview.overview)


def reported_state(settings: Settings) -> str:
    """This installation's engine in one or two words; empty before a worker has registered it."""
    found = [engine for engine in overview(settings) if engine.name == settings.engine_name and engine.alive]
    return summary(found[0]) if found else ""


def change(settings: Settings, name: str, verb: Verb) -> None:
    """Drain or undrain an engine. Repeating it changes nothing. Raises Failure if there is no such engine."""
    if not on_database(settings, lambda conn: engines.change_intake(conn, name, verb)):
        known = ", ".join(engine.name for engine in overview(settings))
        raise Failure(
            f"There is no engine {name}.", f"Known engines: {known}." if known else "No engine is registered yet."
        )


def until_drained(settings: Settings, name: str, to: Console, pause: Callable[[float], None] = time.sleep) -> None:
    """Wait until no request is in flight on a draining engine, and show how many are. Raises Failure if it is undrained."""
    settle = (
        2 * settings.gateway_refresh_seconds + 1
    )  # by then every gateway has read the drain and sent its last request
    shown = ""
    with Status(f"{name}: draining", console=to) as status:
        while True:
            engine = next(engine for engine in overview(settings) if engine.name == name)
            if engine.drained(settle):
                return
            if engine.intake == EngineIntake.OPEN:
                raise Failure(f"{name} was undrained meanwhile.")
            if (text := drain_progress(engine)) != shown:
                shown = text
                status.update(f"{name}: {text}")
                if not to.is_terminal:
                    to.print(f"{name}: {text}", markup=False, highlight=False, soft_wrap=True)
            pause(_POLL_SECONDS)


def drain_progress(engine: EngineOverview) -> str:
    """The requests that a drain still waits for."""
    counts = f"{many(engine.batch_in_flight, 'batch request')} and {engine.sync_in_flight:,} synchronous in flight"
    if engine.reason != DRAINING:
        return f"its worker has not read the drain yet, {counts}"
    return counts


def _row(engine: EngineOverview) -> tuple[object, ...]:
    worker = f"{engine.host}:{engine.pid}" if engine.alive else None
    batch = f"{engine.batch_in_flight}/{engine.allowance}" if engine.alive else None
    sync = engine.sync_in_flight if engine.alive else None
    report = engine_overview.heard(engine.silent_seconds, silent=engine.overdue or not engine.alive)
    return engine.name, summary(engine), engine.model, batch, sync, worker, report


def summary(engine: EngineOverview) -> str:
    """The state of an engine in one or two words."""
    if engine.intake != EngineIntake.OPEN:
        return "drained" if engine.drained(0) else "draining"
    if not engine.alive:
        return "no worker"
    state = engine_overview.told_state(engine.state, engine.mode, engine.reason, has_worker=engine.alive)
    plain = engine.ready or not engine.reason or state is EngineState.STARTING
    return str(state) if plain else f"{state} ({engine.reason})"


def described(engine: EngineOverview) -> dict[str, Any]:
    """An engine as `--json` prints it; times are UTC."""
    worker = {"host": engine.host, "pid": engine.pid} if engine.alive else None
    return {
        "name": engine.name,
        "model": engine.model,
        "mode": engine.mode,
        "state": str(engine_overview.told_state(engine.state, engine.mode, engine.reason, has_worker=engine.alive)),
        "reason": engine.told_reason,
        "since": clock.iso(engine.reason_since),
        "intake": engine.intake,
        "intake_since": clock.iso(engine.intake_since),
        "drained": engine.drained(0),
        **{name: getattr(engine, name) if engine.alive else None for name in _COUNTS},
        "worker": worker,
        "heartbeat_at": clock.iso(engine.heartbeat_at),
        "url": engine.url,
    }
