"""The overhead of Slackwater: its batch output tokens/s, divided by those of the same prompts sent directly to the same engine.

    python -m benchmarks.end_to_end --json

One real vLLM, started and owned by `slackwater up`. Arms alternate (direct, slackwater, slackwater, direct, …). Each has a
fresh cache salt, the same prompts, `ignore_eos`, a fixed `max_tokens` and the same concurrency. The time of an arm is from
its first byte sent to its last result: for Slackwater, from the submit to the poll that shows the batch as final.

The direct arm's requests are synchronous ones, and batch steps stay short for a while after such requests. So a pause without
any request precedes every arm; `--pause 0` measures a batch that begins when callers have just left.

`ratio` moves with the speed of a shared machine from arm to arm. `tokens_per_step_ratio` does not: it says how full the engine's
steps were, by vLLM's own count of them.
"""

import argparse
import asyncio
import re
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import httpx
import psycopg

from app import processes
from app.cli.key import create_key
from app.crypto import secret_key
from app.db import embedded
from app.engines.engine_key import engine_key
from app.environment import child_environment
from app.settings import Settings
from benchmarks import command
from benchmarks.harness import say
from benchmarks.prompts import numbered_prompt
from benchmarks.statistics import interval
from testing.waiting import LOADING_SECONDS, eventually

MODEL = "smollm2-135m-instruct"


def prompts(count: int) -> list[str]:
    """Prompts of about 40 words that share no prefix."""
    return [numbered_prompt(n, 40) + ". Continue this story." for n in range(count)]


class UpInstallation:
    """A `slackwater up` in a temporary directory, with its own engine or attached to one."""

    def __init__(self, folder: Path, concurrency: int, attach: str = "") -> None:
        shared = Settings().data_dir / "models"
        self.settings = Settings(data_dir=folder, port=processes.free_port(), batch_max_in_flight=concurrency)
        if shared.is_dir():
            (folder / "models").symlink_to(shared)
        self.base = f"http://127.0.0.1:{self.settings.port}"
        self._attach = ["--attach", attach] if attach else []
        self._log = folder / "up.log"
        self._process: subprocess.Popen[bytes] | None = None

    async def __aenter__(self) -> "UpInstallation":
        with self._log.open("wb") as log:
            command = [sys.executable, "-m", "app.cli.main", "up", "--verbose", *self._attach]
            self._process = subprocess.Popen(command, env=child_environment(self.settings, {}), stdout=log, stderr=log)
        await eventually(self._ready, f"the API; see {self._log}")
        await eventually(self._engine_ready, f"the engine; see {self._log}", seconds=LOADING_SECONDS)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._process
        self._process.terminate()
        self._process.wait(60)

    @property
    def engine_url(self) -> str:
        with psycopg.connect(embedded.database_url(self.settings)) as conn:
            row = conn.execute("select url from engine").fetchone()
        assert row
        return str(row[0])

    def engine_headers(self) -> dict[str, str]:
        """The key of an engine that `slackwater up` started."""
        key = engine_key(self.settings, secret_key(self.settings), self.settings.engine_name, "managed")
        return {"authorization": f"Bearer {key}"}

    def key(self, account: str) -> str:
        """A key of a fresh account, which has its own cache salt."""
        return create_key(self.settings, account, "benchmark", 1)

    async def _ready(self) -> bool:
        async with httpx.AsyncClient() as client:
            return (await client.get(f"{self.base}/ready")).status_code == 200

    async def _engine_ready(self) -> bool:
        with psycopg.connect(embedded.database_url(self.settings)) as conn:
            return conn.execute("select 1 from engine where state = 'ready'").fetchone() is not None


async def direct(engine: UpInstallation, texts: list[str], tokens: int, concurrency: int) -> tuple[float, int]:
    """(seconds, output tokens) of the prompts sent directly to the engine."""
    salt = uuid.uuid4().hex
    slots = asyncio.Semaphore(concurrency)
    limits = httpx.Limits(max_connections=concurrency)
    async with httpx.AsyncClient(
        base_url=engine.engine_url, headers=engine.engine_headers(), timeout=600, limits=limits
    ) as client:

        async def one(text: str) -> int:
            body = {
                "model": MODEL,
                "messages": [{"role": "user", "content": text}],
                "max_tokens": tokens,
                "ignore_eos": True,
                "cache_salt": salt,
            }
            async with slots:
                answer = await client.post("/v1/chat/completions", json=body)
            answer.raise_for_status()
            return int(answer.json()["usage"]["completion_tokens"])

        began = monotonic()
        counts = await asyncio.gather(*(one(text) for text in texts))
        return monotonic() - began, sum(counts)


async def through(installation: UpInstallation, texts: list[str], tokens: int) -> tuple[float, int]:
    """(seconds, output tokens) of the prompts sent as one batch."""
    account = f"bench-{uuid.uuid4().hex[:8]}"
    headers = {"authorization": f"Bearer {await asyncio.to_thread(installation.key, account)}"}
    path = f"/client/v4/accounts/{account}/ai/run/{MODEL}"
    items = [{"messages": [{"role": "user", "content": t}], "max_tokens": tokens, "ignore_eos": True} for t in texts]
    async with httpx.AsyncClient(base_url=installation.base, headers=headers, timeout=60) as client:
        began = monotonic()
        made = await client.post(path, params={"queueRequest": "true"}, json={"requests": items})
        made.raise_for_status()
        request_id = made.json()["result"]["request_id"]
        while True:
            answer = (await client.post(path, json={"request_id": request_id})).json()["result"]
            if answer.get("status") not in ("queued", "running"):
                break
            await asyncio.sleep(0.1)
        seconds = monotonic() - began
    failed = [response for response in answer["responses"] if not response["success"]]
    if failed:
        raise SystemExit(f"{len(failed)} items failed: {failed[0]}")
    return seconds, int(answer["usage"]["completion_tokens"])


async def steps_of(installation: UpInstallation) -> int:
    """How many steps the engine has taken."""
    async with httpx.AsyncClient(base_url=installation.engine_url, headers=installation.engine_headers()) as client:
        page = (await client.get("/metrics")).text
    [count] = re.findall(r"^vllm:iteration_tokens_total_count\S* (\S+)$", page, re.MULTILINE)
    return int(float(count))


@dataclass(frozen=True)
class Arm:
    """What one arm produced: output tokens per second, and per step of the engine."""

    tokens_per_second: float
    tokens_per_step: float


async def pairs(installation: UpInstallation, options: argparse.Namespace) -> AsyncIterator[tuple[Arm, Arm]]:
    """(direct, slackwater) of one pair after another; the order within a pair alternates."""
    texts, tokens = prompts(options.requests), options.max_tokens

    async def rate(arm: str) -> Arm:
        await asyncio.sleep(options.pause)
        before = await steps_of(installation)
        if arm == "direct":
            seconds, produced = await direct(installation, texts, tokens, options.concurrency)
        else:
            seconds, produced = await through(installation, texts, tokens)
        assert produced == len(texts) * tokens, (arm, produced)
        steps = await steps_of(installation) - before
        say(f"  {arm:10} {produced} tokens in {seconds:6.2f} s = {produced / seconds:6.1f} tok/s, {steps} steps")
        return Arm(produced / seconds, produced / steps)

    await direct(installation, texts[: options.concurrency], tokens, options.concurrency)  # warm-up, not counted
    for number in range(options.pairs):
        say(f"pair {number + 1} of {options.pairs}")
        order = ("direct", "slackwater") if number % 2 == 0 else ("slackwater", "direct")
        rates = {arm: await rate(arm) for arm in order}
        yield rates["direct"], rates["slackwater"]


async def run(options: argparse.Namespace) -> dict[str, object]:
    """Run all pairs and summarize them."""
    if options.quick:
        options.pairs, options.requests, options.max_tokens, options.pause = 1, 8, 8, 1.0
    folder = Path(tempfile.mkdtemp(prefix="slackwater-bench-"))
    folder.chmod(0o755)
    try:
        async with UpInstallation(folder, options.concurrency) as installation:
            measured = [pair async for pair in pairs(installation, options)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    ratio, low, high = interval([ours.tokens_per_second / theirs.tokens_per_second for theirs, ours in measured])
    fullness = interval([ours.tokens_per_step / theirs.tokens_per_step for theirs, ours in measured])
    return {
        "direct_tok_s": round(interval([theirs.tokens_per_second for theirs, _ in measured])[0], 1),
        "slackwater_tok_s": round(interval([ours.tokens_per_second for _, ours in measured])[0], 1),
        "ratio": round(ratio, 4),
        "ratio_low": round(low, 4),
        "ratio_high": round(high, 4),
        "tokens_per_step_ratio": round(fullness[0], 4),
        "pairs": len(measured),
        "requests": options.requests,
        "max_tokens": options.max_tokens,
        "concurrency": options.concurrency,
        "pause_seconds": options.pause,
        "model": MODEL,
    }


def flags(parser: argparse.ArgumentParser) -> None:
    """What only this benchmark has. With --quick: one pair of 8 requests."""
    parser.add_argument("--pairs", type=int, default=5, help="pairs of arms (5)")
    parser.add_argument("--requests", type=int, default=96, help="requests of each arm (96)")
    parser.add_argument("--max-tokens", type=int, default=64, help="tokens of each answer (64)")
    parser.add_argument("--concurrency", type=int, default=16, help="requests in the engine at the same time (16)")
    parser.add_argument("--pause", type=float, default=15.0, help="seconds without a request before each arm (15)")


if __name__ == "__main__":
    command.main("end_to_end", __doc__, lambda options: asyncio.run(run(options)), minutes=8, flags=flags)
