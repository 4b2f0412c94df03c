"""A whole installation to measure: `slackwater up` with its own or a running engine, and a backlog of batch work."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import Any, Self

import httpx
import orjson
import psycopg

from app import processes
from app.cli.key import create_key
from app.db import embedded
from app.engines import catalogue, model_weights
from app.environment import child_environment
from app.headroom.engine_metrics import EngineGauges, parse
from app.settings import Settings
from benchmarks.colocation.target import CHAT, Target
from benchmarks.prompts import numbered_prompt
from workers.gpu.managed_engine import vllm_command, vllm_environment

MODEL = "smollm2-135m-instruct"
ACCOUNT = "colocation"
START_SECONDS = 900.0  # a loaded machine takes minutes to start an engine
STOP_SECONDS = 60.0
ITEMS = 4000  # of one backlog; no run can finish it


class System:
    """One `slackwater up` for one model. `attach`: the URL of a running engine; without it the installation manages its own."""

    def __init__(self, folder: Path, model: str, attach: str = "", **changes: Any) -> None:
        self.model = model
        shared = Settings().data_dir / "models"
        self.settings = Settings(
            data_dir=folder, port=processes.free_port(), engine_model=model, engine_url=attach, **changes
        )
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)  # the embedded database runs as a user of its own
        if shared.is_dir() and not (folder / "models").exists():
            (folder / "models").symlink_to(shared)
        self.base = f"http://127.0.0.1:{self.settings.port}/client/v4/accounts/{ACCOUNT}"
        self.key = ""
        self.engine = ""
        self._log = folder / "up.log"
        self._process: subprocess.Popen[bytes] | None = None

    async def __aenter__(self) -> Self:
        with self._log.open("wb") as output:
            command = [sys.executable, "-m", "app.cli.main", "up", "--verbose"]
            environment = child_environment(self.settings, {})
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdout=output,
                stderr=output,
                preexec_fn=processes.dies_with_parent(),  # noqa: PLW1509 - it is called by the thread that ends last
            )
        await self._until(self._ready)
        self.key = await asyncio.to_thread(create_key, self.settings, ACCOUNT, "benchmark", 1)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._process
        await _stopped(self._process)

    async def _ready(self) -> bool:
        with psycopg.connect(embedded.database_url(self.settings)) as conn:
            row = conn.execute("select url from engine where state = 'ready' and arrival_url is not null").fetchone()
        if row is None:
            return False
        self.engine = str(row[0])
        async with httpx.AsyncClient() as client:
            return (await client.get(f"http://127.0.0.1:{self.settings.port}/ready")).status_code == 200

    async def _until(self, check: Any) -> None:
        deadline = monotonic() + START_SECONDS
        while monotonic() < deadline:
            with contextlib.suppress(httpx.TransportError, psycopg.Error):
                if await check():
                    return
            await asyncio.sleep(0.5)
        raise SystemExit(f"the system did not come up:\n{self._log.read_text()[-3000:]}")

    async def _idle(self) -> bool:
        seen = await self.gauges()
        return not seen.running + seen.waiting

    def target(self, route: str = CHAT) -> Target:
        """This installation's gateway."""
        return Target(f"{self.base}/ai/v1", route, self.model, self.key)

    async def gauges(self) -> EngineGauges:
        """The engine's own counters."""
        async with httpx.AsyncClient() as client:
            return parse((await client.get(f"{self.engine}/metrics")).text)

    async def worker_metrics(self) -> dict[str, float]:
        """Metrics of the worker without a label beside the engine's, by name."""
        with psycopg.connect(embedded.database_url(self.settings)) as conn:
            row = conn.execute("select arrival_url from engine").fetchone()
        assert row
        async with httpx.AsyncClient() as client:
            lines = (await client.get(f"{row[0]}/metrics")).text.splitlines()
        pairs = [line.split(" ") for line in lines if line.startswith("slackwater_") and "," not in line]
        return {name.partition("{")[0]: float(value) for name, value in pairs}

    async def stored_tokens(self) -> int:
        """Output tokens of all stored batch answers, each counted once."""
        with psycopg.connect(embedded.database_url(self.settings)) as conn:
            row = conn.execute("select coalesce(sum(completion_tokens), 0) from item_result").fetchone()
        assert row
        return int(row[0])

    def backlog(self, words: int, tokens: int, *, salt: int) -> AbstractAsyncContextManager[None]:
        """A batch of equal items that is larger than any run."""
        return self.backlog_of([tokens] * ITEMS, words, salt=salt)

    @asynccontextmanager
    async def backlog_of(self, lengths: Sequence[int], words: int, *, salt: int) -> AsyncIterator[None]:
        """A batch with one item for each output length. It is cancelled at the end, and the engine is idle afterwards."""
        lines = [
            orjson.dumps({"prompt": numbered_prompt(salt * ITEMS + n, words), "max_tokens": tokens, "ignore_eos": True})
            for n, tokens in enumerate(lengths)
        ]
        ndjson = {"content-type": "application/x-ndjson"}
        async with httpx.AsyncClient(headers=self.target().headers, timeout=60) as client:
            url = f"{self.base}/ai/run/{self.model}?queueRequest=true"
            made = await client.post(url, content=b"\n".join(lines), headers=ndjson)
            request_id = made.raise_for_status().json()["result"]["request_id"]
            try:
                yield
            finally:
                cancelled = await client.post(f"{self.base}/ai/batches/{request_id}/cancel")
                if cancelled.status_code == 409:
                    raise SystemExit(f"the backlog of {len(lengths)} requests ran dry")
                cancelled.raise_for_status()
                await self._until(self._idle)


@asynccontextmanager
async def bare_engine(
    folder: Path,
    model: str,
    *,
    policy: str,
    models_file: Path | None = None,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] = MappingProxyType({}),
) -> AsyncIterator[str]:
    """Run vLLM's server with the flags of the catalogue, further ones, and vLLM's own scheduler. Yields its URL."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = Settings(models_file=models_file) if models_file else Settings()
    entry = catalogue.load(settings.models_file).resolve(model)
    if entry is None:
        raise SystemExit(f"no model {model} in {settings.models_file}")
    await asyncio.to_thread(model_weights.prepare, settings, entry)
    port = processes.free_port()
    command = vllm_command(entry, settings.data_dir, port)
    command[command.index("--scheduling-policy") + 1] = policy
    command += arguments
    with (folder / "engine.log").open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**vllm_environment(entry), **environment},
            stdout=output,
            stderr=output,
            preexec_fn=processes.dies_with_parent(),  # noqa: PLW1509 - it is called by the thread that ends last
        )
    try:
        url = f"http://127.0.0.1:{port}"
        await _healthy(url, process, folder / "engine.log")
        yield url
    finally:
        await _stopped(process)


async def _stopped(process: subprocess.Popen[bytes]) -> None:
    """Stop a process, if need be by force: an engine that is still starting may not hear the signal."""
    process.terminate()
    try:
        await asyncio.to_thread(process.wait, STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        await asyncio.to_thread(process.wait)


async def _healthy(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the engine answers. Exits with the end of its log if it does not."""
    deadline = monotonic() + START_SECONDS
    async with httpx.AsyncClient() as client:
        while monotonic() < deadline and process.poll() is None:
            with contextlib.suppress(httpx.TransportError):
                if (await client.get(f"{url}/health")).status_code == 200:
                    return
            await asyncio.sleep(0.5)
    raise SystemExit(f"the engine did not come up:\n{log.read_text()[-3000:]}")
