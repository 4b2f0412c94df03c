"""Arms of benchmarks.queue about submits: over HTTP and in process, the memory of an upload, polls during submits."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import monotonic, sleep
from typing import Any

from app.db.pool import Database
from benchmarks.harness import Api, Testbed, api, part, say
from benchmarks.queue.workload import ITEM_BYTES, Submitter, body, line, pool_at, worker_processes
from benchmarks.statistics import percentiles

# ---------------------------------------------------------------- over HTTP


def http_ingest(testbed: Testbed, items: int, repeats: int) -> dict[str, Any]:
    """Items per second through the API process, from the first byte sent to the answer, which follows the commit."""
    settings = testbed.settings(testbed.database())
    sent, rates = body(items), []
    with api(settings) as (_, key):
        client = Api(settings, key)
        client.submit_lines(line(0), ITEM_BYTES)
        for _ in range(repeats):
            began = monotonic()
            client.submit_lines(sent, len(sent))
            rates.append(items / (monotonic() - began))
            say(f"http ingest: {rates[-1]:,.0f} items/s")
    return {"http_ingest_items_s": round(median(rates)), "http_ingest_samples": [round(rate) for rate in rates]}


def upload_memory(testbed: Testbed, megabytes: int) -> dict[str, Any]:
    """The largest growth of a fresh API process's resident memory during one NDJSON upload."""
    items = megabytes * 10**6 // ITEM_BYTES
    settings = testbed.settings(testbed.database(), ndjson_body_mb=2 * megabytes, batch_items=2 * items)
    with api(settings) as (process, key):
        client = Api(settings, key)
        client.submit_lines(line(0), ITEM_BYTES)
        before = _memory_mb(process.pid, "VmRSS")
        Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # resets the peak
        began = monotonic()
        client.submit_lines((line(number) for number in range(items)), items * ITEM_BYTES)
        seconds, growth = monotonic() - began, _memory_mb(process.pid, "VmHWM") - before
    say(f"upload of {megabytes} MB in {seconds:.1f} s: API process grew from {before:.0f} MB by {growth:.0f} MB")
    return {"upload_rss_growth_mb": round(growth, 1), "upload_rss_before_mb": round(before, 1), "upload_mb": megabytes}


def _memory_mb(pid: int, name: str) -> float:
    rows = dict(row.split(":", 1) for row in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(rows[name].split()[0]) / 1024


# ---------------------------------------------------------------- in process


def service_ingest(testbed: Testbed, items: int, repeats: int) -> dict[str, Any]:
    """Items per second through app.batches.submit, without HTTP."""
    settings, sent = testbed.settings(testbed.database()), body(items)

    async def measure() -> list[float]:
        async with Database(settings.database_url) as database:
            submitter = await Submitter.of(settings, database)
            await submitter.submit(line(0))
            return [items / await submitter.submit(sent) for _ in range(repeats)]

    rates = asyncio.run(measure())
    say(f"service ingest: {', '.join(f'{rate:,.0f}' for rate in rates)} items/s")
    return {"service_ingest_items_s": round(median(rates)), "service_ingest_samples": [round(rate) for rate in rates]}


# ---------------------------------------------------------------- polling a busy installation


def poll(testbed: Testbed, items: int) -> dict[str, Any]:
    """Latency of status polls while four workers drain one batch, and other batches are submitted over HTTP."""
    settings = testbed.settings(testbed.database())
    sent, latencies, stop = body(items // 4), [], threading.Event()
    with api(settings) as (_, key), part(settings, "workers.steward"):
        client = Api(settings, key)
        request_id = client.submit_lines(body(items), items * ITEM_BYTES)
        ingested = threading.Thread(target=_ingest_until, args=(stop, Api(settings, key), sent))
        pool_id = asyncio.run(pool_at(settings.database_url))
        with worker_processes(settings.database_url, pool_id, 64) as workers:
            workers.go()
            ingested.start()
            try:
                latencies = list(_polls(client, request_id))
            finally:
                stop.set()
                ingested.join()
            workers.reports()
    p50, p99 = percentiles(latencies)
    say(f"poll: p50 {p50:.1f} ms, p99 {p99:.1f} ms of {len(latencies)}")
    return {"poll_p50_ms": round(p50, 2), "poll_p99_ms": round(p99, 2), "poll_samples": len(latencies)}


def _polls(client: Api, request_id: str) -> Iterator[float]:
    while True:
        began = monotonic()
        status = client.poll(request_id).get("status")
        if status not in ("queued", "running"):
            return
        yield (monotonic() - began) * 1e3
        sleep(0.01)


def _ingest_until(stop: threading.Event, client: Api, sent: bytes) -> None:
    while not stop.is_set():
        client.submit_lines(sent, len(sent))
