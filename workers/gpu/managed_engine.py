"""Runs vLLM as a child process: starts it, watches it, restarts it with backoff, and leaves no process of it behind.

Three measures against orphans:

- The kernel sends SIGTERM to the engine when this process dies, even by SIGKILL.
- A stop signals the whole process group.
- Every process of the engine has marks of its engine and its worker in its environment. When a worker ends, it kills the
  processes with its own mark. Before it starts an engine, it kills the processes with the engine's mark.
"""

import asyncio
import os
import random
import secrets
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import structlog

from app import clock, processes
from app.changes.kinds import how_ended
from app.crypto import secret_key
from app.engines import model_weights as weights
from app.engines.adoption import NO_DOMAIN
from app.engines.catalogue import Model
from app.engines.engine_key import engine_keys
from app.environment import foreign_environment
from app.settings import Settings
from workers.engine.key_check import MIDDLEWARE
from workers.engine.key_check import OTHERS as OTHER_KEYS
from workers.engine.key_check import VARIABLE as KEY
from workers.engine.plugin import SCHEDULER
from workers.gpu.harvest_control import HarvestControl
from workers.gpu.recovery_time import RecoveryTime
from workers.gpu.tuning import TUNING, WorkerTuning

MARK = "SLACKWATER_ENGINE"
_CREDENTIALS = ("AWS_", "PG", "VAULT_")  # with which variables begin that open object store, database and key provider
OWNER = "SLACKWATER_ENGINE_OWNER"
PROGRESS_SECONDS = 5.0  # between two log lines of a starting engine
UNHEALTHY_SECONDS = 60.0  # a running engine that is silent for this long is restarted
PARTS = "VLLM::"  # the titles of the processes that compute; the server process outlives them for a while

Healthy = Callable[[], Awaitable[bool]]

log = structlog.get_logger()


def vllm_command(
    model: Model,
    data_dir: Path,
    port: int,
    *,
    host: str = "127.0.0.1",
    harvest: bool = False,
    guarded: bool = False,
    otlp_endpoint: str = "",
) -> list[str]:
    """The command line of vLLM's server for a catalogue model.

    It starts a module, because the `vllm` command needs a wheel of exactly that name. `harvest`: with our scheduler. `guarded`:
    all paths except `/health` and `/metrics` require the key that the environment has. `otlp_endpoint`: where it sends its spans.
    """
    return [
        *processes.python_module("vllm.entrypoints.openai.api_server"),
        *("--host", host, "--port", str(port)),
        *("--scheduling-policy", "priority"),
        "--enable-prompt-tokens-details",
        "--disable-uvicorn-access-log",
        *("--allowed-media-domains", *(model.media_hosts or (NO_DOMAIN,))),
        *(("--scheduler-cls", SCHEDULER) if harvest else ()),
        *(("--middleware", MIDDLEWARE) if guarded else ()),
        *(("--otlp-traces-endpoint", f"{otlp_endpoint.rstrip('/')}/v1/traces") if otlp_endpoint else ()),
        *model.engine_arguments(data_dir, processes.cpu_dtype()),
    ]


def vllm_environment(model: Model) -> dict[str, str]:
    """The engine's environment: the catalogue's variables, none of our settings and credentials, and no usage reports.

    What an engine needs of these, such as credentials of the store of its weights, the catalogue names.
    """
    launch = model.to_launch()
    local = "{data_dir}" in launch.model_path
    # A redirect could lead an engine from an allowed host to any other.
    quiet = {"VLLM_NO_USAGE_STATS": "1", "VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0"} | (
        {"HF_HUB_OFFLINE": "1"} if local else {}
    )
    overridable = {
        "TORCH_CPP_LOG_LEVEL": "ERROR",  # hides PyTorch's warnings of NUMA nodes
        "OTEL_SERVICE_NAME": "vllm",
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",  # as our own parts; vLLM's default is gRPC
    }
    foreign = {name: value for name, value in foreign_environment().items() if not name.startswith(_CREDENTIALS)}
    return {**overridable, **foreign, **quiet, **launch.env}


class ManagedEngine:
    """One engine process. `command` replaces vLLM's command line. Raises CatalogueError without a [launch] table.

    `ended`: why the process before the one that is starting ended; None: there was none, or it has answered since.
    """

    mode = "managed"

    def __init__(
        self, settings: Settings, model: Model, command: Sequence[str] | None = None, tuning: WorkerTuning = TUNING
    ) -> None:
        self._tuning = tuning
        self.port = settings.engine_port or processes.free_port()
        self.url = processes.address(settings.engine_host, self.port)
        self.ended: str | None = None
        self.slots_known, self.slots_given = True, False
        self.slots = model.to_launch().max_num_seqs
        self._settings = settings
        self._model = model
        harvests = settings.harvest and command is None
        self._command = command or vllm_command(
            model,
            settings.data_dir,
            self.port,
            host=settings.engine_host,
            harvest=harvests,
            guarded=True,
            otlp_endpoint=settings.otlp_endpoint,
        )
        self.harvest = HarvestControl.of(settings) if harvests else HarvestControl.without_scheduler(settings)
        self.comeback = RecoveryTime(own=True)
        self._mark = f"{os.path.realpath(settings.data_dir)}:{settings.engine_name}"
        self._owner = secrets.token_hex(8)
        self._key, *others = engine_keys(secret_key(settings), settings.engine_name)
        self._other_keys = ",".join(others)
        self._log_file = settings.data_dir / "logs" / f"{settings.engine_name}.log"

    def seen(self, slots: int | None) -> None:
        """Its slots are known from its flags."""

    async def run(self, healthy: Healthy, controls: Callable[[], bool]) -> None:
        """Keep the engine running until cancelled; then stop it. Raises ModelUnavailable if it has no weights.

        `controls`: whether we hold the engine's lease now. Only then are processes of other workers killed.
        """
        await asyncio.to_thread(weights.prepare, self._settings, self._model, lambda line: log.info("model", line=line))
        pause, (first, longest) = 0.0, self._tuning.restart_seconds
        try:
            while True:
                was_healthy, reason = await self._live(healthy, controls)
                pause = 0.0 if was_healthy else min(max(first, pause * 2), longest)
                log.error("engine.died", reason=reason, log=str(self._log_file), restart_in_seconds=round(pause, 1))
                await asyncio.sleep(pause * random.uniform(0.75, 1.25))  # noqa: S311
        finally:
            await _sweep(self._own)
            self.harvest.close()

    async def _live(self, healthy: Healthy, controls: Callable[[], bool]) -> tuple[bool, str]:
        """Start the process and watch it until it ends. Returns whether it was ever healthy, and why it ended."""
        left = self._of_engine if controls() else self._own
        if orphans := left():
            log.warning("engine.orphans", pids=orphans)
            await _sweep(left)
        process, ended = await self._start(), None
        try:
            ended = await self._watch(process, healthy)
            self.ended = ended[1]
            self.comeback.starts()  # it is away for a whole start from here on, and not only from the next process on
            return ended
        finally:
            await asyncio.shield(self._stop(process, self._tuning.engine_stop_seconds if ended is None else 0.0))

    def _of_engine(self) -> list[int]:
        return processes.marked(MARK, self._mark)

    def _own(self) -> list[int]:
        return processes.marked(OWNER, self._owner)

    async def _start(self) -> asyncio.subprocess.Process:
        self._log_file.parent.mkdir(parents=True, exist_ok=True)
        self.harvest.open()
        self.harvest.renew = False
        with self._log_file.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment(),
                start_new_session=True,
                preexec_fn=processes.dies_with_parent(),
            )
        self.comeback.starts()
        log.info("engine.starting", pid=process.pid, url=self.url, log=str(self._log_file))
        return process

    def _environment(self) -> dict[str, str]:
        """The engine's variables, with its key: a process list shows every argument, but no environment."""
        own = {MARK: self._mark, OWNER: self._owner, KEY: self._key, OTHER_KEYS: self._other_keys}
        return {**vllm_environment(self._model), **self.harvest.environment, **own}

    async def _watch(self, process: asyncio.subprocess.Process, healthy: Healthy) -> tuple[bool, str]:
        """Wait until the engine must be restarted. Returns whether it was ever healthy, and the reason."""
        up: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()  # its computing processes
        ends = [self._exited(process), self._part_lost(up), self._unhealthy(process, healthy, up), self._renewed()]
        tasks = [asyncio.create_task(end) for end in ends]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return up.done(), next(task.result() for task in tasks if task in done)

    async def _exited(self, process: asyncio.subprocess.Process) -> str:
        return f"it {how_ended(await process.wait())}"

    async def _part_lost(self, up: asyncio.Future[list[int]]) -> str:
        """Wait until one of the computing processes ends."""
        parts = await asyncio.shield(up)
        return f"its process {await processes.first_exit(parts)} has died"

    async def _renewed(self) -> str:
        """Wait until it is to be started anew, because its scheduler has met a fault."""
        while not self.harvest.renew:  # noqa: ASYNC110  (set by the control loop, many times a second)
            await asyncio.sleep(self._tuning.engine_poll_seconds)
        return "its scheduler plug-in has met a fault, and it has no requests"

    async def _unhealthy(
        self, process: asyncio.subprocess.Process, healthy: Healthy, up: asyncio.Future[list[int]]
    ) -> str:
        """Poll the engine and log its start, until it has not answered for too long."""
        began = last_healthy = last_logged = clock.monotonic()
        while True:
            await asyncio.sleep(self._tuning.engine_poll_seconds)
            answers, now = await healthy(), clock.monotonic()
            if answers:
                last_healthy = now
                if not up.done():
                    self.ended = None
                    up.set_result(processes.titled(self._own(), PARTS))  # all of them exist now
                    log.info("engine.healthy", pid=process.pid, seconds=round(now - began, 1))
            elif not up.done() and now - last_logged >= PROGRESS_SECONDS:
                log.info("engine.loading", seconds=round(now - began))
                last_logged = now
            if now - last_healthy > (UNHEALTHY_SECONDS if up.done() else self._settings.engine_start_seconds):
                return "it did not answer any more" if up.done() else "it did not answer in time"

    async def _stop(self, process: asyncio.subprocess.Process, grace_seconds: float) -> None:
        """Send SIGTERM to the group, and SIGKILL after the grace time. Without grace time it sends SIGKILL only."""
        if grace_seconds:
            processes.signal_group(process.pid, signal.SIGTERM)
            try:
                async with asyncio.timeout(grace_seconds):
                    await process.wait()
            except TimeoutError:
                log.warning("engine.killed", pid=process.pid)
        processes.signal_group(process.pid, signal.SIGKILL)
        await process.wait()


async def _sweep(found: Callable[[], list[int]]) -> None:
    """Kill these processes, and wait until they are gone."""
    while pids := found():
        processes.kill(pids)
        await asyncio.sleep(0.05)
