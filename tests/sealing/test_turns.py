"""Claims about sealed turns: their keys follow a rotation, and go with what they seal."""

import httpx
import pytest

from app.batches import key_rotation
from app.db.pool import Database
from app.settings import Settings
from testing.fakes.engine import FakeEngine
from tests.api.test_conversations import asked, engine, new, say
from tests.api.test_queued_turns import queue, work
from tests.sealing.support import on_disk

__all__ = ["engine"]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"encrypt": "on"})


async def test_sealed_turns_are_read_again_after_a_rotation_and_never_after_their_deletion(
    client: httpx.AsyncClient, engine: FakeEngine, database: Database, settings: Settings
) -> None:
    talk = await new(client)
    await say(client, "planted one", conversation=talk)
    await queue(client, "planted two", conversation=talk)
    plain = await say(client, "planted three")
    assert len(await work(database, settings)) == 1
    async with database.durable() as conn:
        rows = await (await conn.execute("select input, output from turn")).fetchall()
    assert len(rows) == 3
    assert "planted" not in repr(rows)
    rotated = await key_rotation.rotate(database, settings, "acme")
    assert rotated.rewrapped >= 3
    await say(client, "four", conversation=talk)
    assert asked(engine) == ["planted one", "echo: planted one", "planted two", "echo: planted two", "four"]
    child = await say(client, "five", previous_response_id=plain["id"])
    assert asked(engine) == ["planted three", "echo: planted three", "five"]
    assert (await client.delete(f"/v1/responses/{child['id']}")).status_code == 200
    assert (await client.get(f"/v1/responses/{plain['id']}")).status_code == 200, "they have one key"
    for gone in (f"/v1/responses/{plain['id']}", f"/v1/conversations/{talk}"):
        assert (await client.delete(gone)).status_code == 200
    async with database.durable() as conn:
        assert await (await conn.execute("select from turn_key")).fetchall() == []
    assert await on_disk(database, settings.data_dir, text="planted one") == []
