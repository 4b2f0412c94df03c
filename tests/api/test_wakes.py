"""Claims about when workers are told that work has come."""

from collections.abc import Iterator, Mapping

import httpx
import psycopg
import pytest

from app.db.pool import Database
from app.queue import wakes
from app.settings import Settings
from tests.api.support import BATCHES, MODEL, SUBMIT


class Told:
    """What was told, and how many chunks others could see ready at that moment."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.models: list[tuple[str, int]] = []
        self.visible: list[int] = []

    def listen(self, chunks: Mapping[str, int]) -> None:
        if not chunks:
            return
        self.models += chunks.items()
        with psycopg.connect(self._url) as conn:
            row = conn.execute("select count(*) from chunk where state = 'ready'").fetchone()
        assert row is not None
        self.visible.append(row[0])


@pytest.fixture
def told(settings: Settings) -> Iterator[Told]:
    told = Told(settings.database_url)
    wakes.listen(told.listen)
    yield told
    wakes.forget(told.listen)


async def submit(client: httpx.AsyncClient, items: int = 3) -> str:
    body = {"requests": [{"prompt": f"item {n}"} for n in range(items)]}
    answer = await client.post(SUBMIT, json=body)
    assert answer.status_code == 200
    return str(answer.json()["result"]["request_id"])


async def test_a_submit_a_resume_and_a_retry_tell_of_their_chunks_once_all_can_see_them(
    client: httpx.AsyncClient, database: Database, told: Told
) -> None:
    request_id = await submit(client)
    assert (told.models, told.visible) == ([(MODEL, 1)], [1])
    await client.post(f"{BATCHES}/{request_id}/pause")
    assert len(told.models) == 1
    await client.post(f"{BATCHES}/{request_id}/resume")
    assert (told.models[1:], told.visible[1:]) == ([(MODEL, 1)], [1])
    await client.post(f"{BATCHES}/{request_id}/cancel")
    assert len(told.models) == 2
    retried = await client.post(f"{BATCHES}/{request_id}/retry")
    assert retried.status_code == 200, retried.text
    assert (told.models[2:], told.visible[2:]) == ([(MODEL, 1)], [1])


async def test_chunks_that_wait_for_money_wake_nobody(
    client: httpx.AsyncClient, database: Database, told: Told
) -> None:
    budget = await client.put("/client/v4/accounts/acme/ai/budgets/b", json={"max_tokens": 1_000_000})
    assert budget.status_code == 200
    await submit(client)
    assert told.models == []
    async with database.relaxed() as conn:
        assert await (await conn.execute("select state from chunk")).fetchall() == [("unreserved",)]


async def test_a_repeated_submit_that_stores_nothing_tells_nobody(client: httpx.AsyncClient, told: Told) -> None:
    body = {"requests": [{"prompt": "hello"}]}
    for _ in range(2):
        assert (await client.post(SUBMIT, json=body, headers={"idempotency-key": "same"})).status_code == 200
    assert len(told.models) == 1
