"""`slackwater up`: run everything on this machine until Ctrl-C."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import structlog
from rich.console import Console

from app import __version__, private_targets, telemetry
from app.access import origin
from app.api_url import base_url
from app.cli import privacy, ready_message
from app.cli.api_address import bind_problem, port_problem, until_ready
from app.cli.data_dir_lock import owned, refuse_second
from app.cli.doctor import attached_engine, require_engine
from app.cli.doctor.machine import our_api
from app.cli.supervisor import Supervisor, on_signals
from app.cli.up_output import Screen, StartStages
from app.engines import catalogue
from app.engines import model_weights as weights
from app.quantities import duration, many
from app.sentences import ended
from app.settings import Settings, masked
from app.user_errors import Failure

_POLL_SECONDS = 0.5
_COUNT_SECONDS = 1.0
_ATTACH_SECONDS = 5.0  # after this time an attached engine that is not ready is reported
_DEATHS = 2  # of the GPU worker; after so many its engine is reported as not ready

log = structlog.get_logger("supervisor")


def up(settings: Settings, console: Console, *, verbose: bool = False) -> None:
    """Run until a signal stops it. If this machine has no API key, create, show and store one. Raises Failure.

    `verbose`: show the logs of all parts.
    """
    refuse_second(settings)
    private_targets.check(settings)
    settings = require_engine(settings)
    if problem := bind_problem(settings):
        raise _port_taken(settings, problem)
    file = telemetry.log_file(settings.data_dir, "up")
    file.parent.mkdir(parents=True, exist_ok=True)
    screen = Screen(settings.data_dir, Console(stderr=True, highlight=False), settings.engine_name, verbose=verbose)
    with file.open("a") as output:
        telemetry.configure(settings, "up", output)
        log.info("up.started", version=__version__, data_dir=str(settings.data_dir), port=settings.port)
        settings = _with_console(settings)
        privacy.warn(settings)
        asyncio.run(_up(settings, console, screen))


def _port_taken(settings: Settings, problem: str) -> Failure:
    remedy = "Stop the program that listens there, or choose another port with SLACKWATER_PORT or --port."
    owner = " Another Slackwater, with another data directory, answers there." if our_api(settings) else ""
    return Failure(
        ended(f"The API cannot listen on port {settings.port} of {settings.host}: {problem}") + owner, remedy
    )


def _with_console(settings: Settings) -> Settings:
    """The settings; without a console where its port is taken or its address would not be safe. The rest runs all the same."""
    port = settings.console_port
    if not port:
        return settings
    problem = port_problem(settings.console_host, port)
    remedy = "choose another port with SLACKWATER_CONSOLE_PORT; 0: no console"
    if not problem and origin.exposed(settings):
        problem, remedy = "sessions would be sent unencrypted", "set SLACKWATER_CONSOLE_URL=https://…"
    if not problem:
        return settings
    log.warning("console.not_started", port=port, error=problem, remedy=remedy)
    return settings.model_copy(update={"console_port": 0})


async def _up(settings: Settings, console: Console, screen: Screen) -> None:
    supervisor = Supervisor(settings, on_stage=screen.stages.begin)
    screen.stages.open()
    async with _in_background(screen.run()):
        try:
            if not settings.attached_to:
                with owned(settings):
                    await _prepare(settings, screen.stages)
            on_signals(supervisor)
            greeter = Greeter(settings, supervisor, console, screen.stages)
            async with _in_background(greeter.run()), _in_background(_say_of_the_stop(settings, supervisor, screen)):
                await supervisor.run()
        finally:
            screen.stages.close()
    screen.say("Stopped.")


async def _say_of_the_stop(settings: Settings, supervisor: Supervisor, screen: Screen) -> None:
    """Once it stops, say what that waits for and how not to wait."""
    await supervisor.stopping.wait()
    screen.stages.close()
    count = None
    with suppress(Failure, TimeoutError):
        async with asyncio.timeout(_COUNT_SECONDS):
            count = await asyncio.to_thread(ready_message.requests_running, settings)
    what = "running requests" if count is None else many(count, "running request")
    wait = f"; {what} may take up to {duration(settings.drain_seconds)} to end. Ctrl-C again stops at once."
    screen.say(f"Stopping{'.' if count == 0 else wait}")


@asynccontextmanager
async def _in_background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a coroutine while the block runs, and cancel it at the end."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _prepare(settings: Settings, stages: StartStages) -> None:
    """Prepare the weights of a managed engine if they are missing. Raises ModelUnavailable."""
    model = catalogue.load(settings.models_file).resolve(settings.engine_model)
    if model is None or weights.is_ready(settings, model):  # an unknown model was refused before
        return
    stages.begin("model", "preparing, only once", slow=True)

    def report(line: str) -> None:
        stages.note(line.removeprefix("model: "))

    await asyncio.to_thread(weights.prepare, settings, model, report)
    stages.end(f"{model.served} is prepared")


class Greeter:
    """Shows the stages of the start, and prints the ready message when a request would succeed."""

    def __init__(self, settings: Settings, supervisor: Supervisor, console: Console, stages: StartStages) -> None:
        self._settings = settings
        self._supervisor = supervisor
        self._console = console
        self._stages = stages
        self._access: ready_message.Access | None = None

    async def run(self) -> None:
        """Print the message. An error here is logged, and does not stop the parts that run."""
        try:
            problem = await self._start()
            self._stages.close()
            await asyncio.to_thread(self._greet, problem)
            if problem:
                await self._engine_ready(lambda: False)
                await asyncio.to_thread(self._greet, "")
        except Exception as error:
            remedy = f"{ready_message.program()} key create --account {ready_message.ACCOUNT}"
            log.error("start.not_greeted", error=str(error), url=base_url(self._settings), remedy=remedy)

    async def _start(self) -> str:
        """Run through the stages. Returns why a request would fail afterwards; empty if it would succeed."""
        settings, stages = self._settings, self._stages
        await self._supervisor.ready.wait()
        stages.begin("API")
        await until_ready(settings)
        stages.end(base_url(settings))
        if settings.attached_to:
            stages.begin("engine", masked(settings.attached_to))
        else:
            usual = await asyncio.to_thread(ready_message.usual_start_seconds, settings)
            stages.begin("engine", f"loading {settings.engine_model}", usual=usual, slow=True)
        problem = await self._engine_ready(self._gives_up)
        if problem:
            if settings.engine_url:
                problem = await asyncio.to_thread(attached_engine.connection_problem, settings) or problem
            stages.end(problem, failed=True)
            return problem
        where = f"{settings.engine_model} at {masked(settings.attached_to) or settings.engine_name}"
        stages.end(where)
        return ""

    def _gives_up(self) -> bool:
        """Whether to stop waiting and report that the engine is not ready."""
        patience = _ATTACH_SECONDS if self._settings.attached_to else self._settings.engine_start_seconds
        return self._stages.seconds > patience or self._supervisor.deaths("gpu-worker") >= _DEATHS

    async def _engine_ready(self, gives_up: Callable[[], bool]) -> str:
        """Wait until a request would succeed. Returns the problem if `gives_up` returns true before."""
        while True:
            problem = "The database does not answer."
            with suppress(Failure):
                _, problem = await asyncio.to_thread(ready_message.engine_problem, self._settings)
            if not problem or gives_up():
                return problem
            await asyncio.sleep(_POLL_SECONDS)

    def _greet(self, problem: str) -> None:
        first = self._access is None
        self._access = self._access or ready_message.access(self._settings)
        if problem:
            ready_message.waiting(self._settings, self._access, problem, self._console)
            return
        engine, _ = ready_message.engine_problem(self._settings)
        served = engine.model if engine else self._settings.engine_model
        shown = self._access if first else ready_message.without_key(self._access)
        ready_message.ready(self._settings, shown, served, self._console)
