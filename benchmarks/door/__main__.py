"""The time that the door adds to the first token at vLLM's own server, on this machine.

    python -m benchmarks.door --json [--quick]

bare   vLLM's HTTP server (its routes, validation, uvicorn, uvloop) with a fake chat that answers at once
door   the same behind the door without keys, which announces each request to a socket
keys   the same behind the door with an API key, which the door renews at a fake API every second

One request at a time, in turns of all three in random order, so that other load affects all alike. The client has a core of its
own if there are two. The keys `…_processor_…` are the door's own processor time, measured
without a server. Progress goes to stderr. The last line of stdout is one JSON object.
"""

import argparse
import asyncio
import os
import random
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import orjson
import uvloop
from aiohttp import web

from app import processes
from benchmarks import command
from benchmarks.door.own_time import own_time
from benchmarks.gateway.http_client import HttpCaller, HttpTarget
from benchmarks.gateway.installation import CHAT, running
from benchmarks.harness import say
from benchmarks.statistics import interval, percentiles
from workers.engine.door.announcer import SOCKETS
from workers.engine.door.keys import PATH
from workers.engine.door.settings import DoorSettings

ARMS = ("bare", "door", "keys")
KEY = "sk_sw_benchmark_key"
PAUSE_SECONDS = 0.001  # between two requests, so that the server has finished with the last one
WARM_UP = 100
SMALL, LARGE = 3_000, 100_000  # bytes of a body


async def measure(targets: dict[str, HttpTarget], rounds: int, body: bytes) -> dict[str, list[float]]:
    """Milliseconds to the first token of each request, by arm; the n-th of each arm were sent in the same turn."""
    found: dict[str, list[float]] = {arm: [] for arm in targets}
    callers = {arm: HttpCaller(target) for arm, target in targets.items()}
    order, rng = list(targets), random.Random(7)
    for number in range(WARM_UP + rounds):
        rng.shuffle(order)
        for arm in order:
            answer = await callers[arm].post(body)
            if number >= WARM_UP:
                found[arm].append(answer.first_ms)
            await asyncio.sleep(PAUSE_SECONDS)
    for caller in callers.values():
        await caller.__aexit__()
    return found


def added(found: dict[str, list[float]], prefix: str) -> dict[str, Any]:
    """Added p50 is the median of the differences within a turn, with its interval; added p99 that of the percentiles."""
    figures: dict[str, Any] = {}
    _, base99 = percentiles(found["bare"])
    for arm, values in found.items():
        p50, p99 = percentiles(values)
        figures |= {f"{prefix}{arm}_ttft_p50_ms": round(p50, 3), f"{prefix}{arm}_ttft_p99_ms": round(p99, 3)}
        say(f"{prefix}{arm}: first token p50 {p50:.3f} ms, p99 {p99:.3f} ms")
        if arm != "bare":
            pairs = [mine - base for mine, base in zip(values, found["bare"], strict=True)]
            middle, low, high = interval(pairs, draws=500)
            figures[f"{prefix}{arm}_added_ttft_p50_ms"] = round(middle, 3)
            figures[f"{prefix}{arm}_added_ttft_p50_interval_ms"] = [round(low, 3), round(high, 3)]
            figures[f"{prefix}{arm}_added_ttft_p99_ms"] = round(p99 - base99, 3)
            figures[f"{prefix}{arm}_added_ttft_p99_by_part_ms"] = _by_part(values, found["bare"])
    return figures


def _by_part(values: list[float], base: list[float], parts: int = 5) -> list[float]:
    """The differences of p99 in consecutive parts of the run, sorted: how much of them is noise."""
    size = len(values) // parts
    cuts = [slice(size * n, size * (n + 1)) for n in range(parts)]
    return sorted(round(percentiles(values[cut])[1] - percentiles(base[cut])[1], 3) for cut in cuts)


@asynccontextmanager
async def key_api() -> AsyncIterator[str]:
    """The API as a door sees it: every key is live and has a limit, so that it is counted."""

    async def answer(request: web.Request) -> web.Response:
        known = {
            "key_id": "k",
            "account": "local",
            "requests_per_minute": 10**9,
            "requests": 0,
            "tokens": 0,
            "seconds": 30,
        }
        return web.json_response({"keys": [known] * len((await request.json())["keys"]), "worker": None})

    app = web.Application()
    app.router.add_post(PATH, answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@contextmanager
def worker_socket(folder: Path) -> Iterator[None]:
    """The worker's socket, read and thrown away on the client's loop."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(str(folder / SOCKETS.replace("*", "benchmark")))
        bound.setblocking(False)
        loop = asyncio.get_running_loop()
        loop.add_reader(bound, lambda: bound.recv(65536))
        yield
        loop.remove_reader(bound)


async def own_times(api: str, folder: Path, rounds: int) -> dict[str, Any]:
    """The door's own processor time, without a server."""
    kinds = {
        "door": DoorSettings(token="t.t", page_dir=folder),
        "keys": DoorSettings(token="t.t", page_dir=folder, api=api),
    }
    found: dict[str, Any] = {}
    for arm, settings in kinds.items():
        for prefix, size in (("", SMALL), ("large_", LARGE)):
            times = await own_time(settings, KEY, question(size), rounds)
            say(f"{prefix}{arm}: processor time until the first token, added {times}")
            found |= {f"{prefix}{arm}_processor_{name}": value for name, value in times.items()}
    return found


def question(size: int) -> bytes:
    """A chat of about so many bytes."""
    text = "the quick brown fox " * (size // 20)
    return orjson.dumps({"model": "fake", "messages": [{"role": "user", "content": text}], "stream": True})


async def measured(rounds: int) -> dict[str, Any]:
    """Start the server, and measure with a body of 3 kB and with one of 100 kB."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    if len(cores) > 1:
        os.sched_setaffinity(0, {cores[-1]})
    figures: dict[str, Any] = {"rounds": rounds, "client_core": cores[-1], "server_core": cores[0]}
    with tempfile.TemporaryDirectory() as folder, worker_socket(Path(folder)):
        async with key_api() as api:
            ports = [processes.free_port() for _ in ARMS]
            flags = ["--ports", ",".join(map(str, ports)), "--core", str(cores[0]), "--api", api, "--page-dir", folder]
            with running([sys.executable, "-m", "benchmarks.door.server", *flags]) as server:
                assert server.stdout
                while (line := await asyncio.to_thread(server.stdout.readline)).strip() != "ready":
                    if not line:
                        raise SystemExit("the server did not start")
                shown = (("authorization", f"Bearer {KEY}"),)
                targets = {
                    arm: HttpTarget(f"http://127.0.0.1:{port}{CHAT}", shown)
                    for arm, port in zip(ARMS, ports, strict=True)
                }
                for size, count, prefix in ((SMALL, rounds, ""), (LARGE, rounds // 4, "large_")):
                    figures |= added(await measure(targets, count, question(size)), prefix)
            figures |= await own_times(api, Path(folder), rounds)
    worst = [max(figures[f"{arm}_added_ttft_{p}_ms"] for arm in ("door", "keys")) for p in ("p50", "p99")]
    return {"door_added_ttft_p50_ms": worst[0], "door_added_ttft_p99_ms": worst[1], **figures}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """All arms, which take turns."""
    return uvloop.run(measured(300 if options.quick else 5000))


if __name__ == "__main__":
    command.main("door", __doc__, run, minutes=3)
