"""Claims about a sealed body in whose place somebody who can write has put one in the clear: it is neither shown nor run."""

import json

import httpx
import orjson
import pytest

from app.db.pool import Database
from app.sealing.keyring import Keyring
from app.settings import Settings
from app.storage.store import Store
from testing.fakes.engine import FakeEngine
from tests.api.support import BATCHES, COMPLETION, MODEL, SUBMIT, run_all
from tests.api.test_conversations import engine, new, say
from tests.gpu.world import World

__all__ = ["engine"]

FORGED = orjson.dumps(COMPLETION).replace(b"Paris", b"FORGED")


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Everything is sealed, and larger bodies go to the store."""
    return settings.model_copy(update={"encrypt": "on", "object_kb": 2})


async def submit(client: httpx.AsyncClient, prompt: str = "one") -> str:
    answer = await client.post(SUBMIT, json={"requests": [{"prompt": prompt, "max_tokens": 5}]})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["result"]["request_id"])


async def exchange(database: Database, statement: str, body: bytes) -> None:
    async with database.durable() as conn:
        assert (await conn.execute(statement.encode(), (body,))).rowcount == 1


async def test_an_answer(client: httpx.AsyncClient, database: Database, settings: Settings) -> None:
    request_id = await submit(client)
    await run_all(database, keyring=Keyring.of(settings))
    assert "Paris" in (await client.post(SUBMIT, json={"request_id": request_id})).text
    await exchange(database, "update item_result set body = %s", FORGED)
    for read in (
        await client.post(SUBMIT, json={"request_id": request_id}),
        await client.get(f"/v1/files/{await output_file(client, request_id)}/content"),
    ):
        assert read.status_code == 410, read.text
        assert "is sealed, and this is in the clear" in read.text


async def output_file(client: httpx.AsyncClient, request_id: str) -> str:
    found = (await client.get("/v1/batches")).json()["data"]
    return str(found[0]["output_file_id"])


async def test_a_prompt_is_not_run(client: httpx.AsyncClient, world: World) -> None:
    request_id = await submit(client)
    await exchange(world.database, "update item_payload set body = %s", orjson.dumps({"prompt": "FORGED"}))
    async with world.worker():
        await world.until("exists (select from batch_key where failure like '%%in the clear%%')")
        why = (await client.get(f"{BATCHES}/{request_id}/why")).json()["result"]
    assert "in the clear" in json.dumps(why)
    assert not world.engine.count


async def test_an_object(client: httpx.AsyncClient, world: World) -> None:
    request_id = await submit(client, "a long prompt " * 400)
    async with world.worker():
        await world.until("count(*) = 1 from batch where finalized_at is not null")
    store = Store.of(world.settings)
    answers = [name async for name, _ in store.list("result")]
    assert len(answers) == 1
    await store.put(answers[0], FORGED)
    read = await client.post(SUBMIT, json={"request_id": request_id})
    assert read.status_code == 410, read.text


async def test_a_turn(client: httpx.AsyncClient, engine: FakeEngine, database: Database) -> None:
    talk = await new(client)
    await say(client, "one", conversation=talk)
    await exchange(database, "update turn set output = %s", orjson.dumps([{"type": "message", "content": "FORGED"}]))
    read = await client.get(f"/v1/conversations/{talk}/items")
    assert read.status_code == 410, read.text
    assert "FORGED" not in read.text


@pytest.mark.parametrize("key_id", ["null", "gen_random_uuid()"])
async def test_a_turn_under_no_key_or_an_unknown_one(
    client: httpx.AsyncClient, database: Database, engine: FakeEngine, key_id: str
) -> None:
    talk = await new(client)
    await say(client, "one", conversation=talk)
    last = await say(client, "two", conversation=talk)
    loose = await say(client, "three", previous_response_id=last["id"])
    for response in (last, loose):
        turn_id = response["id"].removeprefix("resp_")
        forged = f"update turn set key_id = {key_id}, vault = null, input = %s where turn_id = '{turn_id}'"
        await exchange(database, forged, orjson.dumps([{"role": "user", "content": "FORGED"}]))
        ran = len(engine.bodies)
        for answer in (
            await client.get(f"/v1/responses/{response['id']}/input_items"),
            await client.get(f"/v1/conversations/{talk}/items"),
            await client.post("/v1/responses", json=ask(conversation=talk)),
            await client.post("/v1/responses", json=ask(previous_response_id=response["id"])),
        ):
            assert (answer.status_code, "FORGED" in answer.text) == (410, False), answer.text
        assert len(engine.bodies) == ran


def ask(**more: str) -> dict[str, str]:
    return {"model": MODEL, "input": "and?", **more}
