"""How soon batches are done beside calm synchronous traffic, on a real engine.

    python -m benchmarks.calm --json

One real vLLM, started and owned by `slackwater up`. Synchronous chat requests arrive at the engine as a Poisson process;
batches of mixed sizes arrive at Slackwater as another. Printed: the share of batches that were done within five minutes of
their submit (the time within which Workers AI says that most of its own are done), and how long they took.
"""

import argparse
import asyncio
import json
import random
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import monotonic

import httpx

from benchmarks.machine import describe
from benchmarks.pipeline import MODEL, Installation, prompts

WITHIN_SECONDS = 300.0
ACCOUNT = "calm"


def say(line: str) -> None:
    """Progress, apart from the result."""
    print(line, file=sys.stderr, flush=True)


async def synchronous(engine: str, options: argparse.Namespace, until: float, chance: random.Random) -> list[float]:
    """Seconds that each synchronous request took."""
    taken: list[float] = []
    async with httpx.AsyncClient(base_url=engine, timeout=600) as client, asyncio.TaskGroup() as group:

        async def one(text: str) -> None:
            began = monotonic()
            messages = [{"role": "user", "content": text}]
            body = {"model": MODEL, "messages": messages, "max_tokens": 32, "ignore_eos": True}
            (await client.post("/v1/chat/completions", json=body)).raise_for_status()
            taken.append(monotonic() - began)

        for text in prompts(100_000):
            await asyncio.sleep(chance.expovariate(options.sync_per_second))
            if monotonic() > until:
                break
            group.create_task(one(text))
    return taken


async def batches(
    installation: Installation, options: argparse.Namespace, until: float, chance: random.Random
) -> list[tuple[int, float]]:
    """(items, seconds from submit to the poll that shows it done) of each batch."""
    headers = {"authorization": f"Bearer {await asyncio.to_thread(installation.key, ACCOUNT)}"}
    path = f"/client/v4/accounts/{ACCOUNT}/ai/run/{MODEL}"
    done: list[tuple[int, float]] = []
    async with (
        httpx.AsyncClient(base_url=installation.base, headers=headers, timeout=60) as client,
        asyncio.TaskGroup() as group,
    ):

        async def one(items: int) -> None:
            texts = prompts(items)
            requests = [{"prompt": text, "max_tokens": 64, "ignore_eos": True} for text in texts]
            began = monotonic()
            made = await client.post(path, params={"queueRequest": "true"}, json={"requests": requests})
            request_id = made.raise_for_status().json()["result"]["request_id"]
            while True:
                answer = (await client.post(path, json={"request_id": request_id})).json()["result"]
                if answer.get("status") not in ("queued", "running"):
                    break
                await asyncio.sleep(0.5)
            assert all(response["success"] for response in answer["responses"])
            done.append((items, monotonic() - began))
            say(f"  {items:4} items in {done[-1][1]:6.1f} s")

        while monotonic() < until:
            group.create_task(one(chance.choice(options.sizes)))
            await asyncio.sleep(chance.expovariate(options.batches_per_minute / 60))
    return done


async def run(options: argparse.Namespace) -> dict[str, object]:
    """Both streams for the given time, then the wait for the last batch."""
    folder = Path(tempfile.mkdtemp(prefix="slackwater-bench-"))
    folder.chmod(0o755)
    chance = random.Random(options.seed)
    try:
        async with Installation(folder, 16) as installation:
            say(f"engine is up; {options.seconds} s of traffic")
            until = monotonic() + options.seconds
            sync = asyncio.create_task(
                synchronous(installation.engine_url, options, until, random.Random(chance.random()))
            )
            done = await batches(installation, options, until, chance)
            taken = await sync
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    seconds = sorted(took for _, took in done)
    return {
        "benchmark": "calm",
        "share_within_5_minutes": round(sum(took <= WITHIN_SECONDS for took in seconds) / len(seconds), 4),
        "batches": len(done),
        "items": sum(items for items, _ in done),
        "batch_p50_s": round(median(seconds), 1),
        "batch_max_s": round(seconds[-1], 1),
        "sync_requests": len(taken),
        "sync_p50_s": round(median(taken), 2),
        "seconds": options.seconds,
        "sync_per_second": options.sync_per_second,
        "batches_per_minute": options.batches_per_minute,
        "sizes": options.sizes,
        "seed": options.seed,
        "model": MODEL,
        "machine": describe(),
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="for uniformity; stdout is always one JSON line")
    parser.add_argument("--seconds", type=float, default=240, help="length of the traffic")
    parser.add_argument("--sync-per-second", type=float, default=0.3, help="mean rate of synchronous requests")
    parser.add_argument("--batches-per-minute", type=float, default=6, help="mean rate of submits")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 4, 16, 64], help="items of a batch, chosen evenly")
    parser.add_argument("--seed", type=int, default=7)
    print(json.dumps(asyncio.run(run(parser.parse_args()))))


if __name__ == "__main__":
    main()
