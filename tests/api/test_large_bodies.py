"""Claims about submits whose items are too large for rows: all in the store and the rows, or nothing in either."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from app.db.pool import Connection, Database
from app.queue import ingest
from app.settings import Settings
from app.storage.store import Store
from tests.api.support import RUN, SUBMIT, run_all
from tests.disks import small_disk

NDJSON = {"content-type": "application/x-ndjson"}
LARGE = {"prompt": "x" * 3000, "max_tokens": 5, "external_reference": "large"}
SMALL = {"prompt": "x", "max_tokens": 5}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Bodies beyond 2 KB go to the store."""
    return settings.model_copy(update={"object_kb": 2})


async def objects(settings: Settings) -> dict[str, int]:
    return {key: size async for key, size in Store.of(settings).list("")}


def payload(database_url: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(database_url) as conn:
        return conn.execute("select batch_id, stored, body from item_payload order by batch_id, seq").fetchall()


def lines(*items: Any) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


@pytest.mark.parametrize("form", ["json", "ndjson"])
async def test_only_large_items_go_to_the_store_and_their_rows_hold_the_keys(
    client: httpx.AsyncClient, settings: Settings, database_url: str, form: str
) -> None:
    if form == "json":
        answer = await client.post(SUBMIT, json={"requests": [SMALL, LARGE, SMALL, LARGE]})
    else:
        answer = await client.post(SUBMIT, content=lines(SMALL, LARGE, SMALL, LARGE), headers=NDJSON)
    assert answer.status_code == 200, answer.text
    rows = payload(database_url)
    assert [stored for _, stored, _ in rows] == [False, True, False, True]
    assert all(len(body) < 100 for _, _, body in rows)
    assert set(await objects(settings)) == {body.decode() for _, stored, body in rows if stored}
    assert [f"/{batch}/{seq}" in body.decode() for seq, (batch, stored, body) in enumerate(rows) if stored] == [
        True
    ] * 2
    assert json.loads(await Store.of(settings).get(rows[1][2].decode())) == LARGE


async def test_a_submit_that_is_refused_after_a_large_item_leaves_no_object(
    client: httpx.AsyncClient, settings: Settings, database_url: str
) -> None:
    content = lines(*[LARGE] * 5, {"prompt": 7})
    assert (await client.post(SUBMIT, content=content, headers=NDJSON)).status_code == 400
    assert await objects(settings) == {}
    assert payload(database_url) == []


async def test_a_repeated_submit_under_its_key_leaves_the_objects_of_the_first_only(
    client: httpx.AsyncClient, settings: Settings
) -> None:
    key = {"idempotency-key": "one"}
    first = await client.post(SUBMIT, json={"requests": [LARGE]}, headers=key)
    before = await objects(settings)
    assert len(before) == 1
    again = await client.post(SUBMIT, json={"requests": [LARGE]}, headers=key)
    assert again.json() == first.json()
    other = await client.post(SUBMIT, json={"requests": [LARGE, LARGE]}, headers=key)
    assert other.status_code == 422
    assert await objects(settings) == before


async def test_when_the_database_refuses_the_objects_are_taken_back(
    client: httpx.AsyncClient, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object) -> None:
        raise psycopg.errors.DiskFull("no space")

    monkeypatch.setattr(ingest, "enqueue", full)
    assert (await client.post(SUBMIT, json={"requests": [LARGE]})).status_code == 507
    assert await objects(settings) == {}


async def test_when_the_answer_to_the_commit_is_lost_the_objects_stay(
    client: httpx.AsyncClient, settings: Settings, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    transaction = Database.transaction
    assert (await client.post(SUBMIT, json={"requests": [SMALL]})).status_code == 200  # the account's line is known

    @asynccontextmanager
    async def lost(database: Database) -> AsyncIterator[Connection]:
        async with transaction(database) as conn:
            yield conn
        raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(Database, "transaction", lost)
    assert (await client.post(SUBMIT, json={"requests": [LARGE]})).status_code == 503
    _, (_, stored, key) = payload(database_url)
    assert stored
    assert set(await objects(settings)) == {key.decode()}


async def test_a_store_without_room_answers_507_and_nothing_is_stored(
    client: httpx.AsyncClient, settings: Settings, database_url: str
) -> None:
    with small_disk(settings.data_dir / "objects", 0.1):
        answer = await client.post(SUBMIT, content=lines(*[LARGE] * 50), headers=NDJSON)
        assert answer.status_code == 507, answer.text
        assert "object store is full" in answer.json()["errors"][0]["message"]
        assert payload(database_url) == []
        assert await objects(settings) == {}
        assert (await client.post(SUBMIT, content=lines(LARGE), headers=NDJSON)).status_code == 200


async def test_a_store_that_is_away_answers_503_to_submits_that_need_it_only(
    client: httpx.AsyncClient, settings: Settings, database_url: str
) -> None:
    folder = settings.data_dir / "objects"
    await objects(settings)  # the store is made
    folder.rename(folder.with_name("gone"))
    Path(folder).write_text("in the way")
    answer = await client.post(SUBMIT, json={"requests": [LARGE]})
    assert (answer.status_code, answer.headers["x-should-retry"]) == (503, "true")
    assert payload(database_url) == []
    assert (await client.post(SUBMIT, json={"requests": [SMALL]})).status_code == 200


async def test_large_answers_are_polled_like_others(
    client: httpx.AsyncClient, settings: Settings, database: Database, database_url: str
) -> None:
    request_id = (await client.post(SUBMIT, json={"requests": [SMALL] * 30})).json()["result"]["request_id"]
    await run_all(database)
    before = (await client.post(RUN, json={"request_id": request_id})).json()
    with psycopg.connect(database_url, autocommit=True) as conn:
        for batch, seq, body in conn.execute(
            "select batch_id, seq, body from item_result where seq % 3 > 0"
        ).fetchall():
            await Store.of(settings).put(f"result/{seq}", body)
            conn.execute(
                "update item_result set stored = true, body = %s where batch_id = %s and seq = %s",
                (f"result/{seq}".encode(), batch, seq),
            )
    assert (await client.post(RUN, json={"request_id": request_id})).json() == before
