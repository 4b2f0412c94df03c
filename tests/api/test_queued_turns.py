"""Claims about background turns: one at a time, in their order, durable from the beginning."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import AsyncMock
from uuid import UUID

import httpx
import orjson
import pytest

from app.admission.control import AdmissionControl
from app.batches import lifecycle
from app.db.pool import Database
from app.engines.service import ensure_pool
from app.queue import service
from app.queue.bodies import opened
from app.queue.types import Result
from app.sealing.keyring import Keyring
from app.sessions import queued, reading
from app.settings import Settings
from app.storage.store import Store
from testing.fakes import embeddings_and_responses
from testing.fakes.engine import FakeEngine
from testing.waiting import eventually
from tests.api.support import MODEL
from tests.api.test_conversations import asked, items, new, say
from tests.gateway.support import Registry
from tests.queue import support
from workers.steward import turns as steward_turns
from workers.steward.turns import Turns


@pytest.fixture
async def engine(database: Database) -> AsyncIterator[FakeEngine]:
    """An engine for the synchronous turns."""
    async with FakeEngine() as engine:
        await Registry(database).ready(engine)
        yield engine


async def work(database: Database, settings: Settings, *, fail: bool = False) -> list[list[Any]]:
    """Play the worker and the steward until nothing is left. Returns the inputs that the worker got, each with its texts."""
    seen = []
    turns = Turns(database, settings, AdmissionControl.of(database, settings))
    async with database.durable() as conn:
        pool = await ensure_pool(conn, MODEL)
        worker = await support.make_worker(database, pool)
        while True:
            await turns.look()
            lease = await support.claim(conn, pool, worker)
            if lease is None:
                return seen
            loaded = await service.load(conn, lease)
            [item], seal = await opened(Keyring.of(settings), lease.batch_id, loaded)
            body = orjson.loads(await Store.of(settings).get(item.body.decode()) if item.stored else item.body)
            given = body["input"]
            seen.append([given] if isinstance(given, str) else [each["content"] for each in given])
            answer = embeddings_and_responses.response(body)
            said = orjson.dumps({"code": 5001, "message": "no"} if fail else answer)
            said = said if seal is None else seal.result(0, lease.run, said)
            assert await service.flush(conn, lease, [Result(0, not fail, 1, 3, 1, 5, said)])
            await service.finish(conn, lease)
            async with database.transaction() as inner:
                turns.ended(await lifecycle.settle(inner))


async def queue(client: httpx.AsyncClient, text: str, **more: Any) -> dict[str, Any]:
    return await say(client, text, background=True, **more)


async def test_background_turns_run_one_after_the_other_each_with_those_before_it(
    client: httpx.AsyncClient, engine: FakeEngine, database: Database, settings: Settings
) -> None:
    talk = await new(client)
    await say(client, "zero", conversation=talk)
    made = [await queue(client, text, conversation=talk) for text in ("one", "two", "three")]
    assert {(each["status"], each["conversation"]["id"]) for each in made} == {("queued", talk)}
    assert await work(database, settings) == [
        ["zero", "echo: zero", "one"],
        ["zero", "echo: zero", "one", "echo: one", "two"],
        ["zero", "echo: zero", "one", "echo: one", "two", "echo: two", "three"],
    ]
    texts = ["zero", "one", "two", "three"]
    assert await items(client, talk) == [each for text in texts for each in (text, f"echo: {text}")]
    done = (await client.get(f"/v1/responses/{made[1]['id']}")).json()
    assert (done["status"], done["conversation"]["id"], done["background"]) == ("completed", talk, True)
    assert (await client.get(f"/v1/conversations/{talk}")).headers["etag"] == '"4"'


async def test_a_turn_waits_in_the_queue_while_a_synchronous_one_runs(
    client: httpx.AsyncClient, engine: FakeEngine, database: Database, settings: Settings
) -> None:
    talk = await new(client)
    engine.script({"match": "slow", "mode": "slow", "seconds": 0.5})
    slow = asyncio.create_task(say(client, "slow", conversation=talk))
    await eventually(lambda: engine.bodies)
    await queue(client, "after", conversation=talk)
    waiting = asyncio.create_task(say(client, "last", conversation=talk))
    await slow
    assert await work(database, settings) == [["slow", "echo: slow", "after"]]
    await waiting
    texts = ["slow", "after", "last"]
    assert await items(client, talk) == [each for text in texts for each in (text, f"echo: {text}")]


async def test_a_cancelled_or_failed_turn_lets_the_next_one_run(
    client: httpx.AsyncClient, engine: FakeEngine, database: Database, settings: Settings
) -> None:
    talk = await new(client)
    await queue(client, "one", conversation=talk)
    gone = await queue(client, "two", conversation=talk)
    assert (await client.post(f"/v1/responses/{gone['id']}/cancel")).json()["status"] == "cancelled"
    assert await work(database, settings, fail=True) == [["one"]]
    await say(client, "three", conversation=talk)
    assert asked(engine) == ["three"], "of the others its prompt has nothing"
    assert await items(client, talk) == ["three", "echo: three"]


async def test_a_response_whose_batch_has_ended_can_be_continued_at_once(
    client: httpx.AsyncClient,
    engine: FakeEngine,
    database: Database,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = await queue(client, "one")
    monkeypatch.setattr(reading, "SETTLE_SECONDS", 60.0)
    with monkeypatch.context() as patch:
        patch.setattr(Turns, "look", AsyncMock())
        await work(database, settings)
    assert (await client.get(f"/v1/responses/{first['id']}")).json()["status"] == "completed"
    true_is_ending, asked = reading.is_ending, []

    async def is_ending(*args: Any) -> bool:
        asked.append(args)
        if len(asked) == 2:  # the steward stores the answer after the turn was read
            await Turns(database, settings, AdmissionControl.of(database, settings)).look()
        return await true_is_ending(*args)

    monkeypatch.setattr(reading, "is_ending", is_ending)
    continued = await say(client, "two", previous_response_id=first["id"])
    assert (continued["output"][0]["content"][0]["text"], len(asked)) == ("echo: two", 2)


async def test_background_responses_continue_and_are_continued(
    client: httpx.AsyncClient, engine: FakeEngine, database: Database, settings: Settings
) -> None:
    first = await queue(client, "one")
    ask = {"model": MODEL, "input": "two", "previous_response_id": first["id"]}
    early = await client.post("/v1/responses", json=ask)
    assert (early.status_code, "wait for its answer" in early.text) == (400, True)
    assert await work(database, settings) == [["one"]]
    second = await queue(client, "two", previous_response_id=first["id"])
    assert await work(database, settings) == [["one", "echo: one", "two"]]
    third = await say(client, "three", previous_response_id=second["id"])
    assert [each["content"] for each in engine.bodies[-1]["input"]] == ["one", "echo: one", "two", "echo: two", "three"]
    assert third["previous_response_id"] == second["id"]


async def test_a_turn_that_cannot_be_started_holds_up_its_own_conversation_alone(
    client: httpx.AsyncClient,
    engine: FakeEngine,
    database: Database,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken, sound = sorted([await new(client) for _ in range(2)])
    for talk in (broken, sound):
        first = await queue(client, "first", conversation=talk)
        await queue(client, "second", conversation=talk)
        await queue(client, "third", conversation=talk)
        assert (await client.post(f"/v1/responses/{first['id']}/cancel")).status_code == 200
    true_start = queued._start

    async def start(steward: queued.Steward, tenant_id: int, session_id: UUID, *rest: Any) -> None:
        if session_id.hex == broken.removeprefix("conv_"):
            raise ValueError("it cannot be rendered")
        await true_start(steward, tenant_id, session_id, *rest)

    turns = Turns(database, settings, AdmissionControl.of(database, settings))
    monkeypatch.setattr(queued, "_start", AsyncMock())
    await turns.look()
    monkeypatch.setattr(queued, "_start", start)
    monkeypatch.setattr(queued, "_SLICE", 1)
    monkeypatch.setattr(steward_turns, "SWEEP_SECONDS", 600)
    for _ in range(2):
        await turns.look()
    async with database.durable() as conn:
        query = b"select session_id from turn where state = 'running'"
        assert [row[0].hex for row in await (await conn.execute(query)).fetchall()] == [sound.removeprefix("conv_")]


async def test_a_background_turn_that_is_sent_again_is_found_whatever_the_version_is_now(
    client: httpx.AsyncClient, engine: FakeEngine, database: Database, settings: Settings
) -> None:
    talk = await new(client)
    headers = {"if-match": '"0"', "idempotency-key": "once"}
    first = await say(client, "one", headers, conversation=talk, background=True)
    await work(database, settings)
    again = await say(client, "one", headers, conversation=talk, background=True)
    assert (again["id"], again["status"]) == (first["id"], "completed")
    body = {"model": MODEL, "input": "two", "conversation": talk, "background": True}
    moved = await client.post("/v1/responses", json=body, headers={"if-match": '"0"'})
    assert (moved.status_code, "at version 1" in moved.text) == (412, True)
    assert await items(client, talk) == ["one", "echo: one"]


async def test_a_background_turn_that_would_wait_cannot_name_a_version(
    client: httpx.AsyncClient, engine: FakeEngine, database: Database, settings: Settings
) -> None:
    """It would run on a later one."""
    talk = await new(client)
    await queue(client, "one", conversation=talk)
    body = {"model": MODEL, "input": "two", "conversation": talk, "background": True}
    refused = await client.post("/v1/responses", json=body, headers={"if-match": '"0"'})
    assert (refused.status_code, "later version than 0" in refused.text) == (412, True)
    await say(client, "three", {"if-match": "*"}, conversation=talk, background=True)
    assert await work(database, settings) == [["one"], ["one", "echo: one", "three"]]


async def test_the_version_is_looked_at_when_the_turn_is_queued(
    client: httpx.AsyncClient,
    engine: FakeEngine,
    database: Database,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not before: another turn may end meanwhile."""
    talk, true_add = await new(client), queued.add

    async def add(*args: Any) -> None:
        async with database.durable() as conn:
            await conn.execute("update session set version = version + 1")
        await true_add(*args)

    monkeypatch.setattr(queued, "add", add)
    body = {"model": MODEL, "input": "two", "conversation": talk, "background": True}
    moved = await client.post("/v1/responses", json=body, headers={"if-match": '"0"'})
    assert moved.status_code == 412
    async with database.durable() as conn:
        assert await (await conn.execute("select from batch")).fetchall() == []


async def test_a_conversation_whose_turn_is_just_being_stored_can_be_deleted(
    client: httpx.AsyncClient, database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk, deletions, end = await new(client), [], queued.end

    async def delayed(*given: Any) -> int:
        async with database.relaxed() as conn:
            ended = await (await conn.execute("select from batch where finalized_at is not null")).fetchone()
        if ended is not None and not deletions:
            deletions.append(asyncio.create_task(client.delete(f"/v1/conversations/{talk}")))
            await asyncio.sleep(0.1)
        return await end(*given)

    await queue(client, "one", conversation=talk)
    monkeypatch.setattr(queued, "end", delayed)
    await work(database, settings)
    assert (await deletions[0]).status_code == 200
