"""Stores the results of the open chunks, and ends the leases of finished chunks."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

import orjson
import structlog

from app.causes import cause
from app.db.pool import Database
from app.db.transient_errors import TRANSIENT, away
from app.engines.outcome import FAILED, ErrorClass
from app.errors import StorageError
from app.queue import service as queue
from app.queue.bodies import is_incomplete
from app.queue.types import Fence, Result
from app.settings import Settings
from app.storage import object_names
from app.storage.store import Store
from app.usage_counts import UsageCounts
from app.webhooks import emitter
from workers.gpu.open_chunk import OpenChunk
from workers.gpu.tuning import MB, TUNING, WorkerTuning

DATABASE_PAUSE_SECONDS = 0.5
FLUSH_ROWS = 64  # results in one statement
FAULTS = 3  # tries of a statement whose error is not transient

log = structlog.get_logger()


class ResultWriter:
    """The flush loop over the puller's `chunks`. It removes the chunks that are finished or lost.

    `engine_id`: the engine that the results are of; None: not known. `stored`: of all results.
    """

    def __init__(
        self, settings: Settings, database: Database, chunks: dict[int, OpenChunk], tuning: WorkerTuning = TUNING
    ) -> None:
        self.engine_id: int | None = None
        self._tuning = tuning
        self._strays: set[Fence] = set()
        self._flush_seconds = settings.flush_seconds
        self._object_bytes = settings.object_kb * 1024
        self._answer_bytes = settings.answer_mb * MB
        self._item_retries = settings.item_retries
        self._objects = Store.of(settings)
        self._database = database
        self._chunks = chunks
        self.stored = UsageCounts()
        self._work = asyncio.Event()  # there is work
        self._due = asyncio.Event()  # the work must not wait for more results

    def note(self) -> None:
        """Store the new result soon, together with those that follow."""
        self._work.set()

    def hurry(self) -> None:
        """Store all results now."""
        self._due.set()
        self._work.set()

    @property
    def unfinished(self) -> bool:
        """Whether there are leases that have not ended."""
        return bool(self._chunks or self._strays)

    def end(self, fence: Fence) -> None:
        """End a lease that no open chunk has. All its items go back to the queue."""
        if fence not in self._strays:
            log.warning("chunk.stray", chunk=fence.chunk_id, batch=fence.batch_id)
            self._strays.add(fence)
            self.hurry()

    def drop_all(self) -> None:
        """Forget all leases, because the worker's own lease has lapsed."""
        self._strays.clear()
        for chunk in list(self._chunks.values()):
            self.drop(chunk)

    def drop(self, chunk: OpenChunk) -> None:
        """Forget a chunk whose lease is lost, and abort its requests."""
        chunk.closing = True
        chunk.pending.clear()
        chunk.results.clear()
        chunk.abort()
        self._forget(chunk)
        if chunk.span is not None:
            chunk.span.closed(None, chunk.engine_seconds)

    async def run(self) -> None:
        """Flush until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._flush_seconds):
                    await self._due.wait()
            self._due.clear()
            try:
                failed = not await self._strays_ended()
                for chunk in list(self._chunks.values()):
                    failed |= not await self._tried(chunk)
            except TRANSIENT as error:
                log.warning("database.unavailable", verb="flush", error=cause(error))
                failed = True
            if failed:
                await asyncio.sleep(DATABASE_PAUSE_SECONDS)
                self.hurry()

    async def _tried(self, chunk: OpenChunk) -> bool:
        """Store a chunk's results. False: try this chunk again. Raises if the database cannot be reached."""
        try:
            await self._store(chunk)
        except StorageError as error:
            log.warning("objects.unavailable", error=str(error.__cause__ or error).strip())
            return False
        except TRANSIENT as error:
            if away(error):
                raise
            log.warning("chunk.not_stored", chunk=chunk.lease.chunk_id, error=cause(error))
            return False
        except Exception as error:
            self._refused(chunk, error)
            return False
        return True

    def _refused(self, chunk: OpenChunk, error: Exception) -> None:
        """After `FAULTS` errors that are not transient, run the item once more; after that, store an error as its result."""
        chunk.faults += 1
        log.error("chunk.not_stored", chunk=chunk.lease.chunk_id, tries=chunk.faults, exc_info=error)
        if chunk.faults < FAULTS:
            return
        if chunk.faults >= 2 * FAULTS or not chunk.results:
            self.drop(chunk)  # two heartbeats later its lease is ended as a stray one
        elif chunk.faults == FAULTS and chunk.lease.retries < min(1, self._item_retries):
            chunk.retried.add(chunk.results.pop(0).seq)
        elif chunk.faults == FAULTS:
            message = f"its answer of {len(chunk.results[0].body)} bytes could not be stored: {type(error).__name__}"
            chunk.results[0] = _failed(chunk.results[0], message)

    async def _store(self, chunk: OpenChunk) -> None:
        """Flush the chunk's results. Then finish it if it is idle, or drop it if its lease is lost."""
        while results := _next(chunk, self._tuning.flush_bytes):
            results = chunk.results[: len(results)] = await self._offloaded(chunk, results)
            if not await self._flushed(chunk, results):
                log.warning("chunk.lost", chunk=chunk.lease.chunk_id, results=len(results))
                return self.drop(chunk)
            chunk.note_stored(results)
            self.stored += counted(results)
            del chunk.results[: len(results)]
            chunk.faults = 0
        if chunk.idle and self._chunks.get(chunk.lease.chunk_id) is chunk:
            await self._finish(chunk)
        return None

    async def _flushed(self, chunk: OpenChunk, results: list[Result]) -> bool:
        """Whether the lease held. If the batch has item events, they are written in the same transaction."""
        rows = chunk.sealed(results)
        if not chunk.has_events:
            async with self._database.durable() as conn:
                return await queue.flush(conn, chunk.lease, rows, engine_id=self.engine_id, feeds=chunk.feeds)
        async with self._database.transaction() as conn:
            held = await queue.flush(conn, chunk.lease, rows, engine_id=self.engine_id, feeds=chunk.feeds)
            if held:
                seqs = [result.seq for result in results]
                await emitter.emit_items(conn, batch_id=chunk.lease.batch_id, run=chunk.lease.run, seqs=seqs)
        return held

    async def _offloaded(self, chunk: OpenChunk, results: list[Result]) -> list[Result]:
        """The results, with large bodies moved to the object store. A body that is too large for a row becomes an error."""
        lease = chunk.lease
        limit, fence = self._object_bytes, (lease.chunk_id, lease.token, lease.worker_id)
        large = {
            r.seq: object_names.result(lease.batch_id, lease.run, r.seq, fence, incomplete=is_incomplete(r.body))
            for r in results
            if limit and not r.stored and len(r.body) > limit
        }
        await self._objects.put_all((large[r.seq], r.body) for r in chunk.sealed(results) if r.seq in large)
        kept = [r._replace(body=large[r.seq].encode(), stored=True) if r.seq in large else r for r in results]
        return [_failed(r, self._too_large(len(r.body))) if len(r.body) > self._answer_bytes else r for r in kept]

    def _too_large(self, size: int) -> str:
        return (
            f"the answer has {size / MB:.1f} MB, more than the {self._answer_bytes // MB} MB of SLACKWATER_ANSWER_MB: set a "
            "smaller max_tokens, or store large answers in the object store with SLACKWATER_OBJECT_KB"
        )

    async def _finish(self, chunk: OpenChunk) -> None:
        """A relaxed commit: if a crash of the server loses it, the next heartbeats list the lease, and it is ended again."""
        first, longest = self._tuning.item_retry_seconds
        async with self._database.relaxed() as conn:
            done = await queue.finish(
                conn,
                chunk.lease,
                backoff_seconds=chunk.backoff_seconds,
                suspects=chunk.suspects,
                retried=chunk.retried,
                retry_seconds=min(first * 4**chunk.lease.retries, longest),
                split=chunk.split,
                times=chunk.times,
            )
        self._forget(chunk)
        self.stored.engine_ms += chunk.times.engine_ms if done is not None else 0
        returned = None if done is None else done.returned
        if chunk.span is not None:
            chunk.span.closed(returned, chunk.engine_seconds)
        log.debug("chunk.finished", chunk=chunk.lease.chunk_id, held=done is not None, returned=returned)

    async def _strays_ended(self) -> bool:
        """End the stray leases. False: try again. Raises if the database cannot be reached."""
        for fence in list(self._strays):
            try:
                async with self._database.relaxed() as conn:
                    await queue.finish(conn, fence)
            except TRANSIENT as error:
                if away(error):
                    raise
                log.warning("chunk.not_stored", chunk=fence.chunk_id, error=cause(error))
                return False
            except Exception as error:  # the next heartbeats list it again
                log.error("chunk.not_stored", chunk=fence.chunk_id, tries=1, exc_info=error)
            self._strays.discard(fence)
        return True

    def _forget(self, chunk: OpenChunk) -> None:
        """Remove the chunk, unless the same chunk is open under a newer lease."""
        if self._chunks.get(chunk.lease.chunk_id) is chunk:
            del self._chunks[chunk.lease.chunk_id]


def counted(results: Iterable[Result]) -> UsageCounts:
    """What these results used. The time of the engine is that of whole chunks, so it is not part of it."""
    sums = UsageCounts()
    for result in results:
        retried = result.attempt > 1
        sums += UsageCounts(
            1,
            int(result.ok),
            result.prompt_tokens,
            result.cached_tokens,
            result.completion_tokens,
            retried=int(retried),
            retried_ok=int(retried and result.ok),
            yields=result.yields,
        )
    return sums


def _next(chunk: OpenChunk, flush_bytes: int) -> list[Result]:
    """The results of the next statement. After an error it has one result."""
    found: list[Result] = []
    size = 0
    for result in chunk.results[: 1 if chunk.faults else FLUSH_ROWS]:
        size += len(result.body)
        if found and size > flush_bytes:
            break
        found.append(result)
    return found


def _failed(result: Result, message: str) -> Result:
    """The item's result as an error, which counts no tokens."""
    body = orjson.dumps({"code": FAILED, "message": message})
    error = ErrorClass.NOT_STORED.value
    return result._replace(
        ok=False, prompt_tokens=0, cached_tokens=0, completion_tokens=0, body=body, error=error, details=None
    )
