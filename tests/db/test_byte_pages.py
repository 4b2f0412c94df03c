"""A page of bodies holds a bounded number of bytes, whoever reads it and however slowly."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from psycopg import AsyncCursor
from psycopg.rows import TupleRow

from app.db import byte_pages, day_tables
from app.db.byte_pages import PAGE_BYTES
from app.db.pool import Database
from app.queue import reads, response_log, rewriting
from app.sealing.keyring import Keyring
from app.settings import Settings
from app.storage.store import Store
from tests.queue import support
from tests.sets import examples

MB = 1 << 20
ANSWERS = """
insert into item_result (batch_id, seq, run, ok, attempt, body, stored)
select %(batch)s, g, %(run)s, 1, 1, %(body)s, %(stored)s from generate_series(%(first)s::int, %(last)s) g"""


async def answered(database: Database, sizes: dict[range, bytes], *, stored: bool = False) -> int:
    """A batch with one answer for each number. Returns its id."""
    items = max(numbers.stop for numbers in sizes)
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
    batch = await support.submit(database, tenant, pool, items)
    async with database.relaxed() as conn:
        for numbers, body in sizes.items():
            values = {"batch": batch.batch_id, "run": 1, "first": numbers.start, "last": numbers.stop - 1}
            await day_tables.execute(conn, ANSWERS, batch.batch_id, values | {"body": body, "stored": stored})
    return batch.batch_id


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of the bodies of each page that is read from the database."""
    found: list[int] = []
    read = byte_pages.read

    async def counting(cursor: AsyncCursor[TupleRow], limit: int) -> tuple[list[tuple[Any, ...]], bool]:
        rows, more = await read(cursor, limit)
        found.append(sum(len(value) for row in rows for value in row if isinstance(value, bytes)))
        return rows, more

    monkeypatch.setattr(byte_pages, "read", counting)
    return found


async def slowly(pages: AsyncIterator[list[reads.ItemResult]], read: list[int]) -> tuple[list[int], int]:
    """The numbers of all items, and the most bytes that were held: what was read less what the reader is done with."""
    numbers, done, most = list[int](), 0, 0
    async for page in pages:
        for _ in range(20):
            await asyncio.sleep(0.001)  # the next page is read meanwhile
        most = max(most, sum(read) - done)
        done += sum(len(item.body or b"") for item in page)
        numbers += [item.seq for item in page]
    return numbers, most


@pytest.mark.slow
async def test_a_slow_reader_of_hundreds_of_answers_of_a_megabyte_makes_the_process_hold_eight(
    database: Database, read_bytes: list[int]
) -> None:
    answers = examples(200, 600)
    batch_id = await answered(database, {range(answers): bytes(MB)})
    numbers, most = await slowly(reads.results(database, batch_id, 1, page=500), read_bytes)
    assert numbers == [*range(answers)]
    assert max(read_bytes) <= PAGE_BYTES
    assert most <= 2 * PAGE_BYTES <= 8 * MB


async def test_a_body_larger_than_a_page_is_one(database: Database, read_bytes: list[int]) -> None:
    sizes = {range(2): bytes(100), range(2, 4): bytes(PAGE_BYTES + 1), range(4, 8): bytes(100)}
    batch_id = await answered(database, sizes)
    numbers, _ = await slowly(reads.results(database, batch_id, 1, page=5), read_bytes)
    assert numbers == [*range(8)]
    assert read_bytes == [200, PAGE_BYTES + 1, PAGE_BYTES + 1, 400]


async def test_small_answers_fill_pages_by_their_number(database: Database, read_bytes: list[int]) -> None:
    batch_id = await answered(database, {range(10): b"{}"})
    numbers, _ = await slowly(reads.results(database, batch_id, 1, page=5), read_bytes)
    assert numbers == [*range(10)]
    assert read_bytes == [10, 10, 0]


async def test_large_objects_are_fetched_one_by_one_and_small_ones_together(
    database: Database, settings: Settings
) -> None:
    store = Store.of(settings)
    for name, size in (("small", 300_000), ("large", 3 * MB)):
        await store.put(name, bytes(size))
    names = {range(5): b"small", range(5, 8): b"large", range(8, 10): b"small"}
    batch_id = await answered(database, names, stored=True)
    pages = [page async for page in reads.results(database, batch_id, 1, store=store)]
    assert [item.seq for page in pages for item in page] == [*range(10)]
    assert [len(item.body or b"") for page in pages for item in page] == [300_000] * 5 + [3 * MB] * 3 + [300_000] * 2
    assert max(sum(len(item.body or b"") for item in page) for page in pages) <= PAGE_BYTES
    assert max(map(len, pages)) == 4


async def test_what_redaction_reads_of_a_page_is_bounded_with_the_results_of_every_run(database: Database) -> None:
    batch_id = await answered(database, {range(20): bytes(MB)})
    async with database.relaxed() as conn:
        second = {"batch": batch_id, "run": 2, "first": 0, "last": 9, "body": bytes(MB), "stored": False}
        await day_tables.execute(conn, ANSWERS, batch_id, second)
    after, most, seen = 0, 0, 0
    while items := await rewriting.items(database, batch_id, after, 100):
        results = await rewriting.results(database, batch_id, items[0].seq, items[-1].seq)
        most = max(most, sum(len(result.body) for result in results))
        seen += len(results)
        after = items[-1].seq + 1
    assert seen == 30
    assert most <= PAGE_BYTES


async def test_events_of_a_stream_are_read_a_bounded_page_at_a_time(
    database: Database, settings: Settings, read_bytes: list[int]
) -> None:
    batch_id = await answered(database, {range(1): b"{}"})
    async with database.relaxed() as conn:
        for _ in range(10):
            await response_log.begin_events(conn, batch_id, [b'{"x": "%s"}' % (b"x" * MB)])
        found, after = 0, -1
        while page := await response_log.events(conn, batch_id, after, Keyring.of(settings)):
            found, after = found + len(page), page[-1][0]
    assert found == 10
    assert max(read_bytes) <= PAGE_BYTES
