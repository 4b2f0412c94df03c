"""One worker process of the drain arms: `python -m benchmarks.queue.drain_worker URL POOL_ID ROWS_PER_FLUSH [KEY_PROVIDER]`.

It calls the queue as workers/gpu does, but without an engine: it generates the results itself. Like the GPU worker, whose
claim and flush loops run at the same time, it holds two chunks at a time. It exits when the queue is empty.
"""

import asyncio
import os
import random
import sys
from collections import Counter
from contextlib import suppress
from time import monotonic

import orjson

from app.db.pool import Database
from app.queue import bodies, heartbeat
from app.queue import service as queue
from app.queue.heartbeat import Heartbeat
from app.queue.types import Item, Lease, Result
from app.sealing.keyring import Keyring
from app.settings import Settings
from benchmarks.prompts import WORDS

LANES = 2
LEASE_SECONDS, HEARTBEAT_SECONDS = 10.0, 2.0  # the defaults of app.settings
_TEXTS = [" ".join(random.Random(n).choices(WORDS, k=75)) for n in range(64)]


def answer(item: Item) -> Result:
    """A chat completion of about 800 bytes."""
    prompt, completion = len(item.body) // 4, 120
    body = {
        "id": f"chatcmpl-{item.seq:08d}",
        "object": "chat.completion",
        "created": 1790000000,
        "model": item.model,
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": _TEXTS[item.seq % 64][:500]},
            }
        ],
        "usage": {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion},
        "system_fingerprint": "vllm-0.32.0-5b2f0e7c",
    }
    return Result(item.seq, True, 1, prompt, 0, completion, orjson.dumps(body))


async def finish(database: Database, lease: Lease) -> bool:
    """End the lease on a relaxed connection, as workers/gpu/result_writer.py does."""
    async with database.relaxed() as conn:
        return await queue.finish(conn, lease) is not None


async def run_one(
    database: Database, keyring: Keyring, pool_id: int, worker_id: int, rows: int, spent: Counter[str]
) -> int | None:
    """Claim, load, flush and finish one chunk. Returns its number of items; None if there was no chunk."""
    began = monotonic()
    async with database.relaxed() as conn:
        leases = await queue.claim(conn, pool_id, worker_id)
        if not leases:
            return None
        [lease] = leases
        claimed = monotonic()
        items = await queue.load(conn, lease)
    items, seal = await bodies.opened(keyring, lease.batch_id, items)
    loaded = monotonic()
    results = [answer(item) for item in items]
    made = monotonic()
    if seal is not None:
        results = [r._replace(body=seal.result(r.seq, lease.run, r.body)) for r in results]
    feeds = any(item.feeds for item in items)
    for first in range(0, len(results), rows):
        async with database.durable() as conn:
            if not await queue.flush(conn, lease, results[first : first + rows], feeds=feeds):
                raise SystemExit("a lease was lost: the machine is too busy for this benchmark")
    flushed = monotonic()
    if not await finish(database, lease):
        raise SystemExit("a lease was lost: the machine is too busy for this benchmark")
    verbs = {"claim": claimed - began, "load": loaded - claimed, "make": made - loaded, "flush": flushed - made}
    spent.update({**verbs, "finish": monotonic() - flushed, "chunks": 1})
    return len(items)


async def lane(
    database: Database, keyring: Keyring, pool_id: int, worker_id: int, rows: int, spent: Counter[str]
) -> tuple[int, float]:
    """Run chunks until two claims in a row find none and none waits for money. Returns (items, second of the last finish)."""
    items, misses, finished = 0, 0, monotonic()
    while misses < 2:
        done = await run_one(database, keyring, pool_id, worker_id, rows, spent)
        if done is None:
            misses += not await waiting_for_money(database, pool_id)
            await asyncio.sleep(0.02)
            continue
        items, misses, finished = items + done, 0, monotonic()
    return items, finished


async def waiting_for_money(database: Database, pool_id: int) -> bool:
    """Whether chunks of the pool wait for money."""
    async with database.relaxed() as conn:
        rows = await conn.execute("select from chunk where pool_id = %s and state = 'unreserved' limit 1", [pool_id])
        return await rows.fetchone() is not None


async def _beat(database: Database, worker_id: int) -> None:
    while True:
        await asyncio.sleep(HEARTBEAT_SECONDS)
        async with database.relaxed() as conn:
            if not await heartbeat.send(conn, [Heartbeat(worker_id)], LEASE_SECONDS):
                raise SystemExit("the worker's lease lapsed")


async def main(url: str, pool_id: int, rows: int, keys: str) -> None:
    """Work from `go` until the queue is empty. Report items, the end, and the seconds spent in each verb."""
    async with Database(url, size=4, application="slackwater bench") as database:
        async with database.durable() as conn:
            worker_id = await queue.register_worker(
                conn, pool_id=pool_id, host="bench", pid=os.getpid(), lease_seconds=60
            )
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        beating = asyncio.create_task(_beat(database, worker_id))
        spent: Counter[str] = Counter()
        keyring = Keyring.of(Settings(key_provider=keys))
        lanes = [lane(database, keyring, pool_id, worker_id, rows, spent) for _ in range(LANES)]
        done = await asyncio.gather(*lanes)
        items, finished = sum(items for items, _ in done), max(end for _, end in done)
        beating.cancel()
        with suppress(asyncio.CancelledError):
            await beating
        async with database.relaxed() as conn:
            await queue.retire_worker(conn, worker_id)
    print(orjson.dumps({"items": items, "end": finished, "spent": spent}).decode(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] if len(sys.argv) > 4 else ""))
