"""Claims about sessions of queued requests: their prompts are kept as those of synchronous ones are."""

from typing import Any

import httpx
import pytest

from app.db.pool import Database
from app.engines.service import ensure_pool
from app.queue import service
from app.queue.types import Result
from app.settings import Settings
from tests.api.support import BATCHES, MODEL, RUN
from tests.queue import support
from workers.steward.rounds import Rounds

SESSIONS = "/client/v4/accounts/acme/ai/sessions"


class NoHints:
    """A broker that takes nothing."""

    async def publish(self, *hints: object) -> None:
        """Do nothing."""


class Queue:
    """Plays the GPU worker and the steward. The prompt of the nth item has 10 n tokens more than the first one."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._rounds = Rounds(database, NoHints(), settings)  # type: ignore[arg-type]
        self._prompts = 0

    async def run(self, *, ok: bool = True) -> None:
        """Answer what is queued, or let it fail, and end it."""
        async with self._database.durable() as conn:
            pool = await ensure_pool(conn, MODEL)
            worker = await support.make_worker(self._database, pool)
            while lease := await support.claim(conn, pool, worker):
                results = []
                for item in sorted(await service.load(conn, lease), key=lambda item: item.seq):
                    results.append(Result(item.seq, ok, 1, 100 + 10 * self._prompts, 60, 5, b"{}"))
                    self._prompts += 1
                assert await service.flush(conn, lease, results)
                await service.finish(conn, lease)
        await self._rounds._settle()


@pytest.fixture
def queue(database: Database, settings: Settings) -> Queue:
    return Queue(database, settings)


async def submit(client: httpx.AsyncClient, *items: dict[str, Any], **headers: str) -> str:
    answer = await client.post(f"{RUN}?queueRequest=true", json={"requests": list(items)}, headers=headers)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["result"]["request_id"])


async def sessions(client: httpx.AsyncClient) -> list[tuple[int, int, float | None]]:
    """Turns, the last prompt and the slope of each session, the steepest first."""
    found = (await client.get(SESSIONS, params={"by": "workflow"})).json()["result"]["steepest"]
    return [(each["turns"], each["prompt"], each["slope"]) for each in found]


async def test_items_that_name_a_session_and_single_requests_with_a_header_are_turns_of_it(
    client: httpx.AsyncClient, queue: Queue
) -> None:
    named = [{"prompt": f"turn {n}", "session_id": "agent"} for n in range(3)]
    await submit(client, *named, {"prompt": "of no session"})
    await queue.run()
    for _ in range(2):
        await submit(client, {"prompt": "next"}, **{"x-session-affinity": "agent"})
        await queue.run()
    [(turns, prompt, slope)] = await sessions(client)
    assert (turns, prompt) == (5, 150)
    assert slope == pytest.approx(12, abs=1)


async def test_a_header_of_a_batch_of_many_items_is_no_session_and_failed_items_are_no_turns(
    client: httpx.AsyncClient, queue: Queue
) -> None:
    await submit(client, {"prompt": "a"}, {"prompt": "b"}, **{"x-session-affinity": "agent"})
    await queue.run()
    await submit(client, {"prompt": "c", "session_id": "agent"})
    await queue.run(ok=False)
    assert await sessions(client) == []


async def test_a_retry_adds_only_what_it_has_answered_itself(client: httpx.AsyncClient, queue: Queue) -> None:
    request_id = await submit(client, {"prompt": "a", "session_id": "agent"})
    await queue.run(ok=False)
    assert (await client.post(f"{BATCHES}/{request_id}/retry")).status_code == 200
    await queue.run()
    assert [turns for turns, *_ in await sessions(client)] == [1]
