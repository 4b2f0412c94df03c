"""How soon batches complete beside light synchronous traffic, and how accurate their ETAs are.

    python -m benchmarks.completion_time --json            one real vLLM, started and owned by `slackwater up`
    python -m benchmarks.completion_time --fake --json     a scripted engine of a fixed speed, which the result names

Synchronous chat requests arrive at the engine as a Poisson process until the end. Batches of mixed sizes arrive at Slackwater
as another one.
The result has the durations of the batches, and the share that completed within five minutes of their submit. (Cloudflare
states that most batches of Workers AI complete in five minutes.) It compares ETAs with the time that was really left, at
the polls that first show a quarter, a half and three quarters of a batch: the median absolute error as a share of that time,
and how many ETAs of `high` confidence have an error of at most a fifth.
"""

import argparse
import asyncio
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

import httpx

from app import processes
from benchmarks import command
from benchmarks.end_to_end import MODEL, UpInstallation, prompts
from benchmarks.harness import say

WITHIN_SECONDS = 300.0
ACCOUNT = "benchmark"
MARKS = (0.25, 0.5, 0.75)  # shares of a batch's items at which its ETA is noted
HIGH_WITHIN = 0.2
POLL_SECONDS = 0.25
FAKE_SLOTS, FAKE_BATCH, FAKE_TOKEN_SECONDS = 64, 16, 0.04  # enough slots that the gate stays open
REPORTED_OPTIONS = ("seconds", "sync_per_second", "batches_per_minute", "sizes", "max_tokens", "seed")


@dataclass
class Sample:
    """One ETA of a poll. `left`: the seconds that were really left, set at the end."""

    mark: float
    at: float
    eta: float | None
    confidence: str
    left: float = 0.0

    @property
    def error(self) -> float:
        """Absolute error as a share of the time that was left."""
        return abs((self.eta or 0.0) - self.left) / max(self.left, POLL_SECONDS)


@dataclass
class BatchProgress:
    """The polls of one batch, from submit to end."""

    items: int
    began: float = field(default_factory=monotonic)
    seconds: float = 0.0
    samples: list[Sample] = field(default_factory=list)

    def note(self, answer: dict[str, Any]) -> None:
        """Record the ETA of a poll of the unfinished batch."""
        done, estimate = answer["progress"]["succeeded"] / self.items, answer.get("estimate") or {}
        due = [mark for mark in MARKS if mark <= done and mark not in {sample.mark for sample in self.samples}]
        for mark in due:
            eta, confidence = estimate.get("eta_seconds"), estimate.get("confidence", "none")
            self.samples.append(Sample(mark, monotonic(), eta, confidence))

    def end(self) -> None:
        """Record the end of the batch."""
        now = monotonic()
        self.seconds = now - self.began
        for sample in self.samples:
            sample.left = now - sample.at


async def synchronous(
    engine: UpInstallation, per_second: float, ended: asyncio.Event, chance: random.Random
) -> list[float]:
    """The seconds of each synchronous request. They go on until the last batch is done, so that the load is steady."""
    taken: list[float] = []
    async with (
        httpx.AsyncClient(base_url=engine.engine_url, headers=engine.engine_headers(), timeout=600) as client,
        asyncio.TaskGroup() as group,
    ):

        async def one(text: str) -> None:
            began = monotonic()
            messages = [{"role": "user", "content": text}]
            body = {"model": MODEL, "messages": messages, "max_tokens": 32, "ignore_eos": True}
            (await client.post("/v1/chat/completions", json=body)).raise_for_status()
            taken.append(monotonic() - began)

        for text in prompts(100_000):
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), chance.expovariate(per_second))
            if ended.is_set():
                break
            group.create_task(one(text))
    return taken


async def batches(
    installation: UpInstallation, options: argparse.Namespace, until: float, chance: random.Random
) -> list[BatchProgress]:
    """Submit batches until the moment `until`, and follow each to its end."""
    headers = {"authorization": f"Bearer {await asyncio.to_thread(installation.key, ACCOUNT)}"}
    path = f"/client/v4/accounts/{ACCOUNT}/ai/run/{MODEL}"
    done: list[BatchProgress] = []
    async with (
        httpx.AsyncClient(base_url=installation.base, headers=headers, timeout=60) as client,
        asyncio.TaskGroup() as group,
    ):

        async def one(items: int) -> None:
            lengths = random.Random(items)
            tokens = [lengths.randint(options.max_tokens // 2, options.max_tokens) for _ in range(items)]
            requests = [
                {"prompt": text, "max_tokens": most, "ignore_eos": True}
                for text, most in zip(prompts(items), tokens, strict=True)
            ]
            course = BatchProgress(items)
            made = await client.post(path, params={"queueRequest": "true"}, json={"requests": requests})
            request_id = made.raise_for_status().json()["result"]["request_id"]
            while (answer := await polled(client, path, request_id)).get("status") in ("queued", "running"):
                course.note(answer)
                await asyncio.sleep(POLL_SECONDS)
            assert all(response["success"] for response in answer["responses"])
            course.end()
            done.append(course)
            errors = ", ".join(f"{s.mark:.0%}: {s.error:.0%} {s.confidence}" for s in course.samples)
            say(f"  {items:4} items in {course.seconds:6.1f} s; ETA errors: {errors}")

        while monotonic() < until:
            group.create_task(one(chance.choice(options.sizes)))
            await asyncio.sleep(chance.expovariate(options.batches_per_minute / 60))
    return done


async def polled(client: httpx.AsyncClient, path: str, request_id: str) -> dict[str, Any]:
    """The result of one poll."""
    answer: dict[str, Any] = (await client.post(path, json={"request_id": request_id})).raise_for_status().json()
    result: dict[str, Any] = answer["result"]
    return result


def eta_figures(done: list[BatchProgress]) -> dict[str, object]:
    """The errors of the ETAs. Polls without an ETA are only counted."""
    samples = [sample for course in done for sample in course.samples]
    with_eta = [sample for sample in samples if sample.eta is not None]
    high = [sample.error <= HIGH_WITHIN for sample in with_eta if sample.confidence == "high"]

    def middle(found: list[Sample]) -> float | None:
        return round(median(sample.error for sample in found), 3) if found else None

    return {
        **{f"eta_error_at_{mark * 100:.0f}": middle([s for s in with_eta if s.mark == mark]) for mark in MARKS},
        "eta_error": middle(with_eta),
        "etas": len(with_eta),
        "etas_not_told": len(samples) - len(with_eta),
        "high": len(high),
        "high_within_20_percent": round(sum(high) / len(high), 3) if high else None,
    }


@contextmanager
def fake_engine(wanted: bool) -> Iterator[str]:
    """The URL of a scripted engine in its own process; empty if `wanted` is false."""
    if not wanted:
        yield ""
        return
    port = processes.free_port()
    script = json.dumps([{"tokens": 4096}])
    speed = ["--token-seconds", str(FAKE_TOKEN_SECONDS), "--slots", str(FAKE_SLOTS)]
    command = [sys.executable, "-m", "testing.fakes.engine", "--port", str(port), *speed, "--script", script]
    engine = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert engine.stdout is not None
    try:
        yield engine.stdout.readline().decode().strip()
    finally:
        engine.kill()
        engine.wait()


async def run(options: argparse.Namespace) -> dict[str, object]:
    """Submit batches for the given time, beside synchronous requests that go on until the last batch is done."""
    if options.quick:
        options.fake, options.seconds, options.batches_per_minute = True, 10.0, 30.0
    folder = Path(tempfile.mkdtemp(prefix="slackwater-bench-"))
    folder.chmod(0o755)
    chance = random.Random(options.seed)
    try:
        with fake_engine(options.fake) as attach:
            async with UpInstallation(folder, FAKE_BATCH, attach) as installation:
                say(f"engine is up; {options.seconds} s of submits")
                ended, arrivals = asyncio.Event(), random.Random(chance.random())
                sync = asyncio.create_task(synchronous(installation, options.sync_per_second, ended, arrivals))
                done = await batches(installation, options, monotonic() + options.seconds, chance)
                ended.set()
                taken = await sync
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    seconds = sorted(course.seconds for course in done)
    scripted = f"fake: {FAKE_SLOTS} slots, {FAKE_BATCH} of them for batch, {1 / FAKE_TOKEN_SECONDS:.0f} tokens/s each"
    return {
        "engine": scripted if options.fake else MODEL,
        **eta_figures(done),
        "share_within_5_minutes": round(sum(took <= WITHIN_SECONDS for took in seconds) / len(seconds), 4),
        "batches": len(done),
        "items": sum(course.items for course in done),
        "batch_p50_s": round(median(seconds), 1),
        "batch_max_s": round(seconds[-1], 1),
        "sync_requests": len(taken),
        "sync_p50_s": round(median(taken), 2) if taken else None,
        **{name: getattr(options, name) for name in REPORTED_OPTIONS},
    }


def flags(parser: argparse.ArgumentParser) -> None:
    """What only this benchmark has. With --quick: the scripted engine, and 10 seconds."""
    parser.add_argument("--seconds", type=float, default=240, help="how long batches are submitted")
    parser.add_argument("--sync-per-second", type=float, default=0.3, help="mean rate of synchronous requests")
    parser.add_argument("--batches-per-minute", type=float, default=6, help="mean rate of submits")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[1, 4, 16, 64], help="batch sizes in items, each equally likely"
    )
    parser.add_argument(
        "--max-tokens", type=int, default=64, help="maximum tokens of an answer; the minimum is half of it"
    )
    parser.add_argument("--fake", action="store_true", help="use a scripted engine of fixed speed instead of vLLM")
    parser.add_argument("--seed", type=int, default=7)


if __name__ == "__main__":
    command.main("completion_time", __doc__, lambda options: asyncio.run(run(options)), minutes=7, flags=flags)
