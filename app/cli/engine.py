"""`slackwater engine …`: run vLLM alone, list the engines, drain one and let it work again."""

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
from app.cli.admin import on_database
from app.cli.options import Json, console
from app.cli.options import settings as configured
from app.engines import service as engines
from app.engines.service import EngineOverview
from app.headroom.reason_messages import many
from app.processes import python_module
from app.settings import Settings
from app.states import EngineIntake
from app.user_errors import Failure

app = typer.Typer(help="Run vLLM alone; list, drain and undrain engines.", invoke_without_command=True)

Port = Annotated[int, typer.Option(min=1, max=65535, help="port of the engine")]
Name = Annotated[str, typer.Argument(help="name of the engine, as `slackwater engine list` shows it")]
Verb = Literal["drain", "drain now", "undrain"]

_COLUMNS = ("engine", "state", "model", "batch", "sync", "worker")
_LOOK_SECONDS = 0.5


@app.callback()
def alone(context: typer.Context, port: Port = 8000) -> None:
    """Run vLLM alone; list, drain and undrain engines. Without a command: `run`."""
    if context.invoked_subcommand is None:
        run(port)


@app.command()
def run(port: Port = 8000) -> None:
    """Run only vLLM with the flags of the catalogue, for use with --attach or SLACKWATER_ENGINE_URL."""
    configured()  # a wrong setting is reported before
    os.execv(sys.executable, python_module("workers.gpu.engine", str(port)))  # noqa: S606


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the engines: state, model, batch requests in flight / allowed, synchronous ones, and who controls them."""
    found = overview(configured())
    if as_json:
        tables.document(console, [described(engine) for engine in found])
    elif found:
        tables.show(console, _COLUMNS, map(_row, found), whole=("engine",))
    else:
        console.print("No engine yet: `slackwater up` or `slackwater gpu-worker` enters its engine.")


@app.command()
def drain(
    name: Name,
    now: Annotated[
        bool, typer.Option("--now", help="hand back batch work in flight instead of letting it end")
    ] = False,
    wait: Annotated[bool, typer.Option(help="return when nothing is in flight any more")] = True,
) -> None:
    """Give an engine no new work, batch or synchronous, until `undrain`; restarts do not change that."""
    settings = configured()
    change(settings, name, "drain now" if now else "drain")
    said = f"{name} takes no new work from now on."
    try:
        if wait:
            until_drained(settings, name, console)
            said = f"{name} is drained: nothing is in flight on it."
    except KeyboardInterrupt:
        said += " What is in flight is not waited for."
    console.print(said, markup=False, highlight=False)


@app.command()
def undrain(name: Name) -> None:
    """Let a drained engine take work again."""
    change(configured(), name, "undrain")
    console.print(f"{name} takes work again.", markup=False, highlight=False)


def overview(settings: Settings) -> list[EngineOverview]:
    """Every engine as its row stands. Raises Failure."""
    return on_database(settings, engines.overview)


def change(settings: Settings, name: str, verb: Verb) -> None:
    """Drain or undrain an engine; done before is done. Raises Failure."""
    if not on_database(settings, lambda conn: engines.change_intake(conn, name, verb)):
        known = ", ".join(engine.name for engine in overview(settings))
        raise Failure(f"There is no engine {name}.", f"Known are: {known}." if known else "None is known yet.")


def until_drained(settings: Settings, name: str, to: Console, pause: Callable[[float], None] = time.sleep) -> None:
    """Return when nothing is in flight on a drained engine; meanwhile show what is. Raises Failure if it is undrained."""
    settle = (
        2 * settings.gateway_refresh_seconds + 1
    )  # until every gateway has read the drain, and sent its last request
    said = ""
    with Status(f"{name}: draining", console=to) as status:
        while True:
            engine = next(engine for engine in overview(settings) if engine.name == name)
            if engine.drained(settle):
                return
            if engine.intake == EngineIntake.OPEN:
                raise Failure(f"{name} was undrained meanwhile.")
            if (words := left(engine)) != said:
                said = words
                status.update(f"{name}: {words}")
                if not to.is_terminal:
                    to.print(f"{name}: {words}", markup=False, highlight=False, soft_wrap=True)
            pause(_LOOK_SECONDS)


def left(engine: EngineOverview) -> str:
    """What a drain still waits for."""
    counts = f"{many(engine.batch_in_flight, 'batch request')} and {engine.sync_in_flight:,} synchronous in flight"
    if engine.reason != engines.DRAINING:
        return f"its worker has not heard of the drain yet, {counts}"
    return counts


def _row(engine: EngineOverview) -> tuple[object, ...]:
    worker = f"{engine.host}:{engine.pid}" if engine.alive else None
    batch = f"{engine.batch_in_flight}/{engine.allowance}"
    return engine.name, standing(engine), engine.model, batch, engine.sync_in_flight, worker


def standing(engine: EngineOverview) -> str:
    """The state of an engine in one or two words."""
    if engine.intake != EngineIntake.OPEN:
        return "drained" if engine.drained(0) else "draining"
    if not engine.alive:
        return "no worker"
    return engine.state if engine.ready or not engine.reason else f"{engine.state} ({engine.reason})"


def described(engine: EngineOverview) -> dict[str, Any]:
    """An engine as `--json` prints it; times are UTC."""
    worker = {"host": engine.host, "pid": engine.pid} if engine.alive else None
    return {
        "name": engine.name,
        "model": engine.model,
        "mode": engine.mode,
        "state": engine.state,
        "reason": engine.reason,
        "since": clock.iso(engine.reason_since),
        "intake": engine.intake,
        "intake_since": clock.iso(engine.intake_since),
        "drained": engine.drained(0),
        "slots": engine.slots,
        "allowance": engine.allowance,
        "batch_in_flight": engine.batch_in_flight,
        "sync_in_flight": engine.sync_in_flight,
        "worker": worker,
        "heartbeat_at": clock.iso(engine.heartbeat_at),
        "url": engine.url,
    }
