"""Claims about batches after their retention has ended."""

import uuid
from datetime import date, timedelta

import httpx
import psycopg

from app.clock import now
from app.db.pool import Database
from app.queue import retention
from app.settings import Settings
from app.storage.store import Store
from tests.api.support import RUN, SUBMIT, TWO, run_all


async def test_a_batch_that_was_dropped_reads_like_an_unknown_one_and_frees_its_idempotency_key(
    client: httpx.AsyncClient, database: Database, database_url: str, settings: Settings
) -> None:
    key = {"idempotency-key": "monday"}
    request_id = (await client.post(SUBMIT, json={"requests": TWO}, headers=key)).json()["result"]["request_id"]
    await run_all(database)
    assert (await client.post(RUN, json={"request_id": request_id})).status_code == 200
    move_to_the_past(database_url, days=40)
    assert (await client.post(RUN, json={"request_id": request_id})).status_code == 200
    assert sum((await retention.run(database_url, 30, Store.of(settings))).dropped.values()) == 1
    gone, unknown = [await client.post(RUN, json={"request_id": each}) for each in (request_id, str(uuid.uuid4()))]
    assert (gone.status_code, gone.text) == (404, unknown.text)
    again = await client.post(SUBMIT, json={"requests": TWO}, headers=key)
    assert again.status_code == 200
    assert again.json()["result"]["request_id"] != request_id


def move_to_the_past(database_url: str, days: int) -> None:
    """Move the submit and the end of all batches this many days back."""
    day = now().date() - timedelta(days=days)
    low = (day - date(2024, 1, 1)).days << 36
    with psycopg.connect(database_url) as conn:
        for parent in ("item_payload", "item_result"):
            name = f"{parent}_{day:%Y%m%d}"
            conn.execute(f"create table {name} partition of {parent} for values from ({low}) to ({low + (1 << 36)})")
        for table in ("item_payload", "item_result", "event", "batch"):
            conn.execute(f"update {table} set batch_id = batch_id - {days}::bigint * (1::bigint << 36)")
        conn.execute("update batch set finalized_at = finalized_at - %s * interval '1 day'", (days,))
