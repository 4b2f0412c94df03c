"""Claims about checkpoints: a long conversation gets a summary in idle time, and keeps its turns."""

from typing import Any
from uuid import UUID

import httpx
import orjson
import pytest

from app.admission import quotas
from app.admission.control import AdmissionControl
from app.batches import lifecycle
from app.db.pool import Database
from app.engines import catalogue
from app.engines.service import ensure_pool
from app.policy import service as policies
from app.queue import chunk_sweeps, service
from app.queue.types import Result
from app.sessions import checkpoints, reading, sql
from app.settings import Settings
from app.tenants.service import Tenant
from testing.fakes import embeddings_and_responses
from testing.fakes.engine import FakeEngine
from tests.api import in_process
from tests.api.support import MODEL
from tests.api.test_conversations import engine, items, new, say
from tests.queue import support
from workers.steward import turns
from workers.steward.turns import Turns

__all__ = ["engine"]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "LEAST_SAVED", 0)
    monkeypatch.setattr(turns, "SWEEP_SECONDS", 0.0)


async def rows(database: Database, query: str) -> list[tuple[Any, ...]]:
    async with database.durable() as conn:
        return await (await conn.execute(query.encode())).fetchall()


async def long_talk(client: httpx.AsyncClient, steward: Turns) -> str:
    """A conversation of which a summary is being made."""
    talk = await new(client)
    for n in range(checkpoints.EVERY_TURNS + 2):
        await say(client, f"turn {n}", conversation=talk)
    await steward.look()
    return talk


async def test_a_deleted_conversation_leaves_no_summary_that_is_being_made(
    client: httpx.AsyncClient, engine: FakeEngine, database: Database, settings: Settings
) -> None:
    steward = Turns(database, settings, AdmissionControl.of(database, settings))
    talk = await long_talk(client, steward)
    assert len(await rows(database, "select from item_payload")) == 1
    assert (await client.delete(f"/v1/conversations/{talk}")).status_code == 200
    assert await rows(database, "select from item_payload") == []
    assert await rows(database, "select from batch where finalized_at is null") == []
    talk = await long_talk(client, steward)
    async with database.durable() as conn:
        pool = await ensure_pool(conn, MODEL)
        lease = await support.claim(conn, pool, await support.make_worker(database, pool))
        assert lease is not None
    for _ in range(2):
        refused = await client.delete(f"/v1/conversations/{talk}")
        assert (refused.status_code, "try again" in refused.text) == (409, True)
    async with database.durable() as conn:
        await service.finish(conn, lease)
        await chunk_sweeps.sweep(conn)
        async with database.transaction() as inner:
            await lifecycle.settle(inner)
    assert (await client.delete(f"/v1/conversations/{talk}")).status_code == 200
    assert await rows(database, "select from item_payload") == []


async def test_a_summary_of_an_item_that_is_deleted_meanwhile_is_stopped_and_made_anew(
    client: httpx.AsyncClient, engine: FakeEngine, database: Database, settings: Settings
) -> None:
    steward = Turns(database, settings, AdmissionControl.of(database, settings))
    talk = await long_talk(client, steward)
    first = (await client.get(f"/v1/conversations/{talk}/items?order=asc")).json()["data"][0]
    assert (await client.delete(f"/v1/conversations/{talk}/items/{first['id']}")).status_code == 200
    await steward.look()
    [(body,)] = await rows(database, "select body from item_payload")
    assert b"turn 1" in body
    assert b'"turn 0"' not in body
    assert await rows(database, "select from session where checkpoint_batch is null") == []


async def test_full_conversations_get_their_summary_whatever_else_is_long(
    client: httpx.AsyncClient,
    engine: FakeEngine,
    database: Database,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that need none do not take the places of a round."""
    monkeypatch.setattr(checkpoints, "_SLICE", 1)
    short, full = [await new(client) for _ in range(2)]
    for talk in (short, full):
        for n in range(4):
            await say(client, f"turn {n}", conversation=talk)
    async with database.durable() as conn:
        window = catalogue.load(settings.models_file).models[MODEL].context_window
        query = "update turn set prompt_tokens = %s where session_id = %s and n = 4"
        await conn.execute(query, (window, full.removeprefix("conv_")))
        await conn.execute(query, (5, short.removeprefix("conv_")))
    await Turns(database, settings, AdmissionControl.of(database, settings)).look()
    [(asked,)] = await rows(database, "select session_id from session where checkpoint_batch is not null")
    assert asked.hex == full.removeprefix("conv_")


async def test_a_long_conversation_goes_on_from_a_summary(
    client: httpx.AsyncClient, engine: FakeEngine, database: Database, settings: Settings
) -> None:
    talk = await new(client)
    for n in range(checkpoints.EVERY_TURNS + 2):
        await say(client, f"turn {n}", conversation=talk, instructions="Be brief.")
    steward = Turns(database, settings, AdmissionControl.of(database, settings))
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


async def test_the_turns_for_which_a_summary_stands_are_not_added_up_again(
    client: httpx.AsyncClient, engine: FakeEngine, database: Database, settings: Settings
) -> None:
    steward = Turns(database, settings, AdmissionControl.of(database, settings))
    talk = await long_talk(client, steward)
    session_id, [(tenant_id,)] = UUID(talk.removeprefix("conv_")), await rows(database, "select tenant_id from session")
    keeper = in_process.application().state.parts.keeper(Tenant(tenant_id, "acme"))
    before = (await reading.read(keeper, session_id)).held
    async with database.transaction() as conn:
        await conn.execute("update batch set state = 'completed', finalized_at = now() where kind = 'checkpoint'")
        taken = "select session_id, checkpoint_batch as batch_id, 'told'::bytea as summary from session"
        [values] = await (await conn.execute(taken)).fetchall()
        await conn.execute(sql.CHECKPOINT_TAKEN, dict(zip(("session_id", "batch_id", "summary"), values, strict=True)))
        await conn.execute("update turn set original = repeat('x', 5000)::bytea where n in (1, 10)")
    session = await reading.state(keeper, session_id)
    assert session.held == before + 5000  # of the tenth turn alone


async def test_a_summary_belongs_to_the_key_and_the_labels_of_its_conversation(
    client: httpx.AsyncClient, engine: FakeEngine, database: Database, settings: Settings
) -> None:
    client.headers["x-slackwater-workflow"] = "legal"
    client.headers["x-slackwater-critical"] = "false"
    put = await client.put("/client/v4/accounts/acme/ai/budgets/legal", json={"max_tokens": 10**6, "workflow": "legal"})
    assert put.status_code == 200, put.text
    await long_talk(client, Turns(database, settings, AdmissionControl.of(database, settings)))
    query = """select l.kind, l.workflow, l.critical, l.key_id = (select key_id from api_key), cardinality(c.budgets) > 0
      from chunk c join batch b using (batch_id) join line l on l.line_id = coalesce(c.line_id, b.line_id)"""
    assert await rows(database, query) == [("checkpoint", "legal", False, True, True)]


async def test_a_rule_can_name_summaries(
    client: httpx.AsyncClient, engine: FakeEngine, database: Database, settings: Settings
) -> None:
    async with database.transaction() as conn:
        text = '[[rule]]\nid = "none"\nwhen = { kind = ["checkpoint"] }\ndeny = "no summaries"\n'
        await policies.apply(conn, text, catalogue.load(settings.models_file), "test")
    await long_talk(client, Turns(database, settings, AdmissionControl.of(database, settings)))
    assert await rows(database, "select from item_payload") == []


async def test_a_summary_passes_the_quotas_of_its_account(
    client: httpx.AsyncClient, engine: FakeEngine, database: Database, settings: Settings
) -> None:
    async with database.transaction() as conn:
        await quotas.change(conn, "acme", quotas.Quota(queued_tokens=1))
    await long_talk(client, Turns(database, settings, AdmissionControl.of(database, settings)))
    assert await rows(database, "select from item_payload") == []
