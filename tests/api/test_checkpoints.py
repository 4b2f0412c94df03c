"""Claims about checkpoints: a long conversation gets a summary in idle time, and keeps its turns."""

import httpx
import orjson
import pytest

from app.batches import lifecycle
from app.db.pool import Database
from app.engines.service import ensure_pool
from app.queue import service
from app.queue.types import Result
from app.sessions import checkpoints
from app.settings import Settings
from testing.fakes import embeddings_and_responses
from testing.fakes.engine import FakeEngine
from tests.api.support import MODEL
from tests.api.test_conversations import engine, items, new, say
from tests.queue import support
from workers.steward import turns
from workers.steward.turns import Turns

__all__ = ["engine"]


async def test_a_long_conversation_goes_on_from_a_summary(
    client: httpx.AsyncClient,
    engine: FakeEngine,
    database: Database,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpoints, "LEAST_SAVED", 0)
    monkeypatch.setattr(turns, "SWEEP_SECONDS", 0.0)
    talk = await new(client)
    for n in range(checkpoints.EVERY_TURNS + 2):
        await say(client, f"turn {n}", conversation=talk, instructions="Be brief.")
    steward = Turns(database, settings)
    await steward.look()
    async with database.durable() as conn:
        pool = await ensure_pool(conn, MODEL)
        worker = await support.make_worker(database, pool)
        lease = await support.claim(conn, pool, worker)
        assert lease is not None
        [item] = await service.load(conn, lease)
        asked = orjson.loads(item.body)
        texts = [each["content"] for each in asked["input"]]
        assert texts[:2] == ["turn 0", "echo: turn 0"]
        assert texts[-2:] == ["echo: turn 7", checkpoints._INSTRUCTION]
        told = {"input": "they counted"}
        answer = embeddings_and_responses.response(asked | told)
        assert await service.flush(conn, lease, [Result(0, True, 1, 3, 1, 5, orjson.dumps(answer))])
        await service.finish(conn, lease)
        async with database.transaction() as inner:
            steward.ended(await lifecycle.settle(inner))
    await say(client, "meanwhile", conversation=talk)
    assert engine.bodies[-1]["input"][0]["content"] == "turn 0"
    await steward.look()
    await say(client, "after", conversation=talk)
    texts = [each["content"] for each in engine.bodies[-1]["input"]]
    assert texts[0].endswith("echo: they counted")
    assert texts[2:] == ["turn 8", "echo: turn 8", "turn 9", "echo: turn 9", "meanwhile", "echo: meanwhile", "after"]
    assert len(await items(client, talk)) == 2 * 12
    async with database.durable() as conn:
        left = await (await conn.execute("select from item_payload")).fetchall()
    assert left == []
