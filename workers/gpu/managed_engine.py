"""vLLM as our own child: started, watched, restarted with backoff, and never left behind.

Three nets against orphans: the engine gets SIGTERM from the kernel when this process dies, even by SIGKILL; stopping
goes to its whole process group; and every process it starts carries marks in its environment, its engine's and its worker's:
the end finds by them what slipped through of this worker, the next start what any left of the engine.
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
from app.crypto import secret_key
from app.engines import model_weights as weights
from app.engines.adoption import NO_DOMAIN
from app.engines.catalogue import Model
from app.engines.engine_key import engine_key
from app.settings import Settings, foreign_environment
from workers.engine.key_check import MIDDLEWARE
from workers.engine.key_check import VARIABLE as KEY
from workers.gpu.harvest_control import SCHEDULER, HarvestControl
from workers.gpu.recovery_time import RecoveryTime

MARK = "SLACKWATER_ENGINE"
OWNER = "SLACKWATER_ENGINE_OWNER"
POLL_SECONDS = 0.5
PROGRESS_SECONDS = 5.0
UNHEALTHY_SECONDS = 60.0  # a running engine silent for this long is started anew
STOP_SECONDS = 10.0  # between SIGTERM and SIGKILL
BACKOFF_SECONDS = (1.0, 60.0)  # between two starts of an engine that does not come up; one that did is started at once
PARTS = "VLLM::"  # titles of the processes that compute; the server among them outlives them for a while

Healthy = Callable[[], Awaitable[bool]]

log = structlog.get_logger()


def vllm_command(
    model: Model, data_dir: Path, port: int, *, host: str = "127.0.0.1", harvest: bool = False, guarded: bool = False
) -> list[str]:
    """The command line of vLLM's server for a catalogue model. The `vllm` command needs a wheel of that very name.

    `harvest`: with our scheduler, which shares each step. `guarded`: every path but a few wants the key in its environment.
    """
    return [
        *processes.python_module("vllm.entrypoints.openai.api_server"),
        *("--host", host, "--port", str(port)),
        *("--scheduling-policy", "priority"),
        "--enable-prompt-tokens-details",
        "--disable-uvicorn-access-log",
        *("--allowed-media-domains", NO_DOMAIN),
        *(("--scheduler-cls", SCHEDULER) if harvest else ()),
        *(("--middleware", MIDDLEWARE) if guarded else ()),
        *model.engine_arguments(data_dir, processes.cpu_dtype()),
    ]


def vllm_environment(model: Model) -> dict[str, str]:
    """The engine's environment: the catalogue's, none of our settings, and no calls home."""
    launch = model.to_launch()
    local = "{data_dir}" in launch.model_path
    quiet = {"VLLM_NO_USAGE_STATS": "1"} | ({"HF_HUB_OFFLINE": "1"} if local else {})
    calm = {"TORCH_CPP_LOG_LEVEL": "ERROR"}  # PyTorch's warnings of NUMA nodes; who wants them sets it otherwise
    return {**calm, **foreign_environment(), **quiet, **launch.env}


class ManagedEngine:
    """One engine process. `command` replaces vLLM's command line. Raises CatalogueError without a [launch] table."""

    mode = "managed"

    def __init__(self, settings: Settings, model: Model, command: Sequence[str] | None = None) -> None:
        self.port = settings.engine_port or processes.free_port()
        self.url = processes.address(settings.engine_host, self.port)
        self.slots = model.to_launch().max_num_seqs
        self._settings = settings
        self._model = model
        harvests = settings.harvest and command is None
        self._command = command or vllm_command(
            model, settings.data_dir, self.port, host=settings.engine_host, harvest=harvests, guarded=True
        )
        self.harvest = HarvestControl.of(settings) if harvests else HarvestControl.told(settings)
        self.comeback = RecoveryTime(own=True)
        self._mark = f"{os.path.realpath(settings.data_dir)}:{settings.engine_name}"
        self._owner = secrets.token_hex(8)
        self._key = engine_key(settings, secret_key(settings), settings.engine_name, self.mode)
        self._log_file = settings.data_dir / "logs" / f"{settings.engine_name}.log"

    async def run(self, healthy: Healthy, controls: Callable[[], bool]) -> None:
        """Keep the engine running until cancelled; then stop it. Raises ModelUnavailable if it has no weights.

        `controls`: whether the engine's lease is ours at this moment, so that what others left of it may be killed.
        """
        await asyncio.to_thread(weights.prepare, self._settings, self._model, lambda line: log.info("model", line=line))
        pause = 0.0
        try:
            while True:
                was_healthy, reason = await self._live(healthy, controls)
                pause = 0.0 if was_healthy else min(max(BACKOFF_SECONDS[0], pause * 2), BACKOFF_SECONDS[1])
                log.error("engine.died", reason=reason, log=str(self._log_file), restart_in_seconds=round(pause, 1))
                await asyncio.sleep(pause * random.uniform(0.75, 1.25))  # noqa: S311
        finally:
            await _sweep(self._own)
            self.harvest.close()

    async def _live(self, healthy: Healthy, controls: Callable[[], bool]) -> tuple[bool, str]:
        """One life of the process. Returns whether it ever was healthy, and what ended it."""
        left = self._of_engine if controls() else self._own
        if orphans := left():
            log.warning("engine.orphans", pids=orphans)
            await _sweep(left)
        process, ended = await self._start(), None
        try:
            ended = await self._watch(process, healthy)
            return ended
        finally:
            await asyncio.shield(self._stop(process, STOP_SECONDS if ended is None else 0.0))

    def _of_engine(self) -> list[int]:
        return processes.marked(MARK, self._mark)

    def _own(self) -> list[int]:
        return processes.marked(OWNER, self._owner)

    async def _start(self) -> asyncio.subprocess.Process:
        self._log_file.parent.mkdir(parents=True, exist_ok=True)
        self.harvest.engine_starts()
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
        """The key is told here, for a process list shows every argument."""
        own = {MARK: self._mark, OWNER: self._owner, KEY: self._key}
        return {**vllm_environment(self._model), **self.harvest.environment, **own}

    async def _watch(self, process: asyncio.subprocess.Process, healthy: Healthy) -> tuple[bool, str]:
        """Until the engine has to be started anew. Returns whether it ever was healthy, and what is wrong."""
        up = asyncio.Event()
        ends = [self._exited(process), self._part_lost(up), self._unhealthy(process, healthy, up)]
        tasks = [asyncio.create_task(end) for end in ends]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return up.is_set(), next(task.result() for task in tasks if task in done)

    async def _exited(self, process: asyncio.subprocess.Process) -> str:
        return f"exit code {await process.wait()}"

    async def _part_lost(self, up: asyncio.Event) -> str:
        """Once the engine is up, all the processes are there that it needs."""
        await up.wait()
        parts = processes.titled(self._own(), PARTS)
        return f"its process {await processes.first_exit(parts)} has died"

    async def _unhealthy(self, process: asyncio.subprocess.Process, healthy: Healthy, up: asyncio.Event) -> str:
        """Ask, and say how loading goes on, until the answer has failed to come for too long."""
        began = last_healthy = last_said = clock.monotonic()
        while True:
            await asyncio.sleep(POLL_SECONDS)
            answers, now = await healthy(), clock.monotonic()
            if answers:
                last_healthy = now
                if not up.is_set():
                    log.info("engine.healthy", pid=process.pid, seconds=round(now - began, 1))
                up.set()
            elif not up.is_set() and now - last_said >= PROGRESS_SECONDS:
                log.info("engine.loading", seconds=round(now - began))
                last_said = now
            if now - last_healthy > (UNHEALTHY_SECONDS if up.is_set() else self._settings.engine_start_seconds):
                return "not healthy"

    async def _stop(self, process: asyncio.subprocess.Process, grace_seconds: float) -> None:
        """SIGTERM to the group, SIGKILL to what is left of it after a while. What is dead in part gets no time to say so."""
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
