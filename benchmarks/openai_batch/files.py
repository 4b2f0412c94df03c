"""Arm: upload of a large file, first result of its batch, download of a large output file; usage of the API process."""

import asyncio
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from openai import OpenAI
from openai.types import Batch

from benchmarks.harness import Testbed, say
from benchmarks.openai_batch import lines
from benchmarks.openai_batch.process_usage import ProcessUsage
from benchmarks.openai_batch.slackwater_service import SlackwaterService, installation
from benchmarks.openai_batch.slot_engine import engine, until_final
from benchmarks.queue.workload import pool_at, worker_processes

FIRST_SECONDS, DRAIN_SECONDS = 60.0, 600.0
FLUSH_ROWS = 64


def files(testbed: Testbed, count: int, size: int, slots: int) -> dict[str, Any]:
    """Measure one file of `count` lines of `size` bytes."""
    content = lines.write(testbed.folder / "input.jsonl", count, size)
    small = lines.write(testbed.folder / "small.jsonl", 10, size)
    with engine(slots) as fake, installation(testbed, fake.url, slots) as ours:
        _warm(ours.client, small)
        with content.open("rb") as file, ProcessUsage(ours.pid) as upload:
            uploaded = ours.client.files.create(file=file, purpose="batch")
        say(f"upload: {count / upload.seconds:,.0f} lines/s, {upload.growth_mb:.0f} MB more; {_cpu(upload)}")
        with ProcessUsage(ours.pid) as create:
            batch = _create(ours.client, uploaded.id)
        if batch.status not in ("validating", "in_progress"):
            raise SystemExit(f"the batch is {batch.status}: {batch.errors}")
        say(f"create: {count / create.seconds:,.0f} lines/s, {create.growth_mb:.0f} MB more; {_cpu(create)}")
        waited, way = _first(ours.client, batch.id)
        say(f"first result {waited:.2f} s after the create's answer, by {way}")
        ours.stop()
        batch = _drained(ours, batch)
        download = _downloads(ours, batch, count)
    return {
        "lines": count,
        "line_bytes": size,
        "validate_lines_s": round(count / upload.seconds),
        "queue_lines_s": round(count / create.seconds),
        "in_progress_lines_s": round(count / (upload.seconds + create.seconds)),
        "rss_growth_mb": round(max(upload.growth_mb, create.growth_mb), 1),
        "upload_lines_cpu_s": round(count / upload.cpu_seconds),
        "queue_lines_cpu_s": round(count / create.cpu_seconds),
        "first_result_s": round(create.seconds + waited, 2),
        "first_result_after_create_s": round(waited, 2),
        "first_result_by": way,
        **download,
    }


def _cpu(watch: ProcessUsage) -> str:
    return f"CPU seconds: API {watch.cpu_seconds:.2f}, client {watch.own_cpu_seconds:.2f} of {watch.seconds:.2f}"


def _create(client: OpenAI, file_id: str) -> Batch:
    return client.batches.create(
        input_file_id=file_id,
        endpoint=lines.CHAT,
        completion_window="24h",
        extra_body={"partial_results": True},
    )


def _warm(client: OpenAI, content: Path) -> None:
    """Run a small batch, so that the resident memory is not that of a fresh process."""
    with content.open("rb") as file:
        batch = _create(client, client.files.create(file=file, purpose="batch").id)
    if until_final(client, batch.id, FIRST_SECONDS) is None:
        raise SystemExit(f"a batch of ten lines did not end within {FIRST_SECONDS:.0f} s")


def _first(client: OpenAI, batch_id: str) -> tuple[float, str]:
    """Seconds until the first result, and where it was seen: in the output file, or in `request_counts`."""
    began = monotonic()
    while monotonic() < began + FIRST_SECONDS:
        batch = client.batches.retrieve(batch_id)
        if batch.output_file_id is not None:
            if client.files.content(batch.output_file_id).read():
                return monotonic() - began, "output file"
        elif batch.request_counts and batch.request_counts.completed:
            return monotonic() - began, "request_counts"
        sleep(0.02)
    raise SystemExit(f"no result within {FIRST_SECONDS:.0f} s")


def _drained(ours: SlackwaterService, batch: Batch) -> Batch:
    """Answer all lines with workers that generate results of about 800 bytes. Returns the final batch."""
    pool_id = asyncio.run(pool_at(ours.settings.database_url))
    with worker_processes(ours.settings.database_url, pool_id, FLUSH_ROWS) as workers:
        workers.race()
    found = until_final(ours.client, batch.id, DRAIN_SECONDS)
    if found is None or found.status != "completed" or not found.output_file_id:
        raise SystemExit(f"the batch did not complete: {found}")
    return found


def _downloads(ours: SlackwaterService, batch: Batch, count: int) -> dict[str, Any]:
    """Read the output file twice. The rate is that of the faster read, the memory growth the larger one."""
    reads = [_download(ours, str(batch.output_file_id), count) for _ in range(2)]
    watch, size = min(reads, key=lambda read: read[0].seconds)
    return {
        "download_lines_s": round(count / watch.seconds),
        "download_lines_cpu_s": round(count / watch.cpu_seconds),
        "download_line_bytes": round(size / count),
        "download_rss_growth_mb": round(max(read.growth_mb for read, _ in reads), 1),
    }


def _download(ours: SlackwaterService, file_id: str, count: int) -> tuple[ProcessUsage, int]:
    found = size = 0
    with ProcessUsage(ours.pid) as watch, ours.client.files.with_streaming_response.content(file_id) as answer:
        for block in answer.iter_bytes():
            found += block.count(b"\n")
            size += len(block)
    if found != count:
        raise SystemExit(f"the output file has {found} of {count} lines")
    say(f"download: {count / watch.seconds:,.0f} lines/s, {watch.growth_mb:.0f} MB more; {_cpu(watch)}")
    return watch, size
