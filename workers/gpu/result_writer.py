"""Stores the results of the chunks in hand, and ends the leases of those that are through."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import orjson
import structlog

from app.db.pool import Database
from app.db.transient_errors import TRANSIENT, away
from app.engines.outcome import FAILED
from app.errors import StorageError
from app.queue import service as queue
from app.queue.response_log import is_incomplete
from app.queue.types import Lease, Result
from app.settings import Settings
from app.storage import object_names
from app.storage.store import Store
from app.webhooks import emitter
from workers.gpu.open_chunk import OpenChunk

DATABASE_PAUSE_SECONDS = 0.5
FLUSH_ROWS, FLUSH_BYTES = 64, 8 * 2**20  # of one statement; a result beyond the bytes goes alone
FAULTS = 3  # tries of a statement that fails for no reason that passes
MB = 2**20
RETRY_SECONDS = (60.0, 600.0)  # first and longest rest of items after a round of transient errors

log = structlog.get_logger()


class ResultWriter:
    """The flush loop over the puller's `chunks`, which it shares and from which it takes what is finished or lost."""

    def __init__(self, settings: Settings, database: Database, chunks: dict[int, OpenChunk]) -> None:
        self._flush_seconds = settings.flush_seconds
        self._object_bytes = settings.object_kb * 1024
        self._answer_bytes = settings.answer_mb * MB
        self._item_retries = settings.item_retries
        self._objects = Store.of(settings)
        self._database = database
        self._chunks = chunks
        self._news = asyncio.Event()  # there is something to do
        self._due = asyncio.Event()  # and it should not wait for more

    def note(self) -> None:
        """There is a result: store it soon, together with those that follow."""
        self._news.set()

    def hurry(self) -> None:
        """Store what there is now."""
        self._due.set()
        self._news.set()

    def drop(self, chunk: OpenChunk) -> None:
        """Forget a chunk whose lease is lost, and abort its requests."""
        chunk.closing = True
        chunk.pending.clear()
        chunk.results.clear()
        chunk.abort()
        self._forget(chunk)

    async def run(self) -> None:
        """Flush until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._flush_seconds):
                    await self._due.wait()
            self._due.clear()
            try:
                failed = [chunk for chunk in list(self._chunks.values()) if not await self._tried(chunk)]
            except TRANSIENT as error:
                log.warning("database.unavailable", verb="flush", error=str(error).strip())
                failed = list(self._chunks.values())
            if failed:
                await asyncio.sleep(DATABASE_PAUSE_SECONDS)
                self.hurry()

    async def _tried(self, chunk: OpenChunk) -> bool:
        """Store a chunk's results. False: to be tried again, and other chunks' are not. Raises when the database is away."""
        try:
            await self._store(chunk)
        except StorageError as error:
            log.warning("objects.unavailable", error=str(error.__cause__ or error).strip())
            return False
        except TRANSIENT as error:
            if away(error):
                raise
            log.warning("chunk.not_stored", chunk=chunk.lease.chunk_id, error=str(error).strip())
            return False
        except Exception as error:
            self._refused(chunk, error)
            return False
        return True

    def _refused(self, chunk: OpenChunk, error: Exception) -> None:
        """What is not taken however often it is offered: its item is run again, and in the last round its result is an error."""
        chunk.faults += 1
        log.error("chunk.not_stored", chunk=chunk.lease.chunk_id, tries=chunk.faults, exc_info=error)
        if chunk.faults < FAULTS:
            return
        if chunk.faults >= 2 * FAULTS or not chunk.results:
            self.drop(chunk)  # its lease, unknown to us then, is ended after the next heartbeats
        elif chunk.faults == FAULTS and chunk.lease.retries < self._item_retries:
            chunk.retried.add(chunk.results.pop(0).seq)
        elif chunk.faults == FAULTS:
            words = f"its answer of {len(chunk.results[0].body)} bytes could not be stored: {type(error).__name__}"
            chunk.results[0] = _failed(chunk.results[0], words)

    async def _store(self, chunk: OpenChunk) -> None:
        """Flush the chunk's results; finish it if it is through; drop it if its lease is lost."""
        while results := _next(chunk):
            results = chunk.results[: len(results)] = await self._offloaded(chunk.lease, results)
            if not await self._flushed(chunk, results):
                log.warning("chunk.lost", chunk=chunk.lease.chunk_id, results=len(results))
                return self.drop(chunk)
            del chunk.results[: len(results)]
            chunk.faults = 0
        if chunk.idle and self._chunks.get(chunk.lease.chunk_id) is chunk:
            await self._finish(chunk)
        return None

    async def _flushed(self, chunk: OpenChunk, results: list[Result]) -> bool:
        """Whether the lease held. Where somebody asked for them, the events of the items are written with their results."""
        if not chunk.tells:
            async with self._database.durable() as conn:
                return await queue.flush(conn, chunk.lease, results)
        async with self._database.transaction() as conn:
            held = await queue.flush(conn, chunk.lease, results)
            if held:
                seqs = [result.seq for result in results]
                await emitter.emit_items(conn, batch_id=chunk.lease.batch_id, run=chunk.lease.run, seqs=seqs)
        return held

    async def _offloaded(self, lease: Lease, results: list[Result]) -> list[Result]:
        """The results, those with large bodies pointing at objects that hold them. One too large for a row is an error."""
        limit, fence = self._object_bytes, (lease.chunk_id, lease.token, lease.worker_id)
        large = {
            r.seq: object_names.result(lease.batch_id, lease.run, r.seq, fence, incomplete=is_incomplete(r.body))
            for r in results
            if limit and not r.stored and len(r.body) > limit
        }
        await self._objects.put_all((large[r.seq], r.body) for r in results if r.seq in large)
        kept = [replace(r, body=large[r.seq].encode(), stored=True) if r.seq in large else r for r in results]
        return [_failed(r, self._too_large(len(r.body))) if len(r.body) > self._answer_bytes else r for r in kept]

    def _too_large(self, size: int) -> str:
        return (
            f"the answer has {size / MB:.1f} MB, more than the {self._answer_bytes // MB} MB of SLACKWATER_ANSWER_MB: ask for "
            "less by max_tokens, or let large answers lie in the object store by SLACKWATER_OBJECT_KB"
        )

    async def _finish(self, chunk: OpenChunk) -> None:
        """Relaxed: if a server crash takes it back, the next heartbeat shows the lease again, and we finish it again."""
        first, longest = RETRY_SECONDS
        async with self._database.relaxed() as conn:
            done = await queue.finish(
                conn,
                chunk.lease,
                backoff_seconds=chunk.backoff_seconds,
                suspects=chunk.suspects,
                retried=chunk.retried,
                retry_seconds=min(first * 4**chunk.lease.retries, longest),
                split=chunk.split,
            )
        self._forget(chunk)
        returned = None if done is None else done.returned
        log.debug("chunk.finished", chunk=chunk.lease.chunk_id, held=done is not None, returned=returned)

    def _forget(self, chunk: OpenChunk) -> None:
        """Meanwhile the same chunk may be ours under a newer lease; that one stays."""
        if self._chunks.get(chunk.lease.chunk_id) is chunk:
            del self._chunks[chunk.lease.chunk_id]


def _next(chunk: OpenChunk) -> list[Result]:
    """The results that go in one statement now. After one was refused they go one by one."""
    found: list[Result] = []
    size = 0
    for result in chunk.results[: 1 if chunk.faults else FLUSH_ROWS]:
        size += len(result.body)
        if found and size > FLUSH_BYTES:
            break
        found.append(result)
    return found


def _failed(result: Result, message: str) -> Result:
    """The item's error in place of its answer; as other errors it counts no tokens."""
    body = orjson.dumps({"code": FAILED, "message": message})
    return replace(result, ok=False, prompt_tokens=0, cached_tokens=0, completion_tokens=0, body=body)
