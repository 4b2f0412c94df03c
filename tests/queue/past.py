"""Old days with batches, for tests of retention."""

import itertools
import uuid
from datetime import date, timedelta
from typing import Any

from app.clock import now
from app.db.pool import Connection, Database
from app.events import BatchData, EventKind
from app.queue import copy_format, ingest, retention
from app.queue.chunking import cut
from app.storage.store import Store
from app.webhooks import emitter
from tests.queue import support

KEEP = 30
TABLES = ("batch", "item_payload", "item_result", "event", "delivery", "attempt")
_numbers = itertools.count(1)


class Past:
    """Makes old days and their batches in a database."""

    def __init__(self, database: Database, conn: Connection, tenant: int, pool: int, store: Store) -> None:
        self.database = database
        self.conn = conn
        self.tenant = tenant
        self.pool = pool
        self.store = store

    async def day(self, ago: int) -> date:
        """Create the two partitions of a day."""
        found = now().date() - timedelta(days=ago)
        low = (found - date(2024, 1, 1)).days << 36
        for parent in ("item_payload", "item_result"):
            await self.conn.execute(
                f"create table {parent}_{found:%Y%m%d} partition of {parent} for values from ({low}) to ({low + (1 << 36)})"
            )
        return found

    async def batch(
        self, day: date, *, final_ago: float | None = None, tenant: int | None = None, items: int = 5
    ) -> uuid.UUID:
        """A batch of that day with its `batch.queued` event. `final_ago`: run it, and let it have ended so many days ago."""
        batch_id = ((day - date(2024, 1, 1)).days << 36) + next(_numbers)
        owner = tenant or self.tenant
        batch = ingest.NewBatch(batch_id, uuid.uuid4(), owner, self.pool, "toy", "/v1/chat/completions", items, 86_400)
        payload = [copy_format.payload_row(batch_id, seq, None, None, 10, b'{"prompt":"x"}') for seq in range(items)]
        async with self.database.transaction() as conn:
            body = [copy_format.HEADER, *payload, copy_format.TRAILER]
            await ingest.enqueue(conn, batch, body, cut([10] * items, max_tokens=99, max_items=3))
            data = BatchData(request_id=str(batch.request_id), account_id="acme")
            await emitter.emit(
                conn, tenant_id=owner, kind=EventKind.BATCH_QUEUED, model="toy", batch_id=batch_id, run=1, data=data
            )
        if final_ago is not None:
            await support.drain(self.database, self.pool, await support.make_worker(self.database, self.pool))
            await support.settle(self.database)
            await self.conn.execute(
                "update batch set finalized_at = now() - %s * interval '1 day' where batch_id = %s",
                (final_ago, batch_id),
            )
        return batch.request_id

    async def retire(self, days: int = KEEP) -> retention.RetentionOutcome:
        """Run retention once."""
        return await retention.run(self.database.url, days, self.store)

    async def one(self, query: str, *values: object) -> Any:
        """The first value of the first row."""
        row = await (await self.conn.execute(query, values)).fetchone()
        return row and row[0]

    async def counts(self) -> dict[str, int]:
        """Rows by table."""
        return {table: await self.one(f"select count(*) from {table}") for table in TABLES}

    async def tables(self, day: date) -> set[str]:
        """The day's tables, whether attached or not."""
        query = "select relname from pg_class where relkind = 'r' and relname like %s"
        return {row[0] for row in await (await self.conn.execute(query, (f"item\\_%{day:%Y%m%d}",))).fetchall()}


async def deliver(past: Past) -> None:
    """Mark all deliveries as delivered, with one attempt each."""
    await past.conn.execute("update delivery set state = 'delivered'")
    await past.conn.execute(
        "insert into attempt (delivery_id, n, started_at, duration_ms) select delivery_id, 1, now(), 1 from delivery"
    )
