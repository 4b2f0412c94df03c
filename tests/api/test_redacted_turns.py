"""Claims about redacted turns: a conversation has one mapping of placeholders."""

from unittest.mock import AsyncMock

import httpx
import pytest

from app.admission.control import AdmissionControl
from app.audit import log
from app.db.pool import Database
from app.settings import Settings
from testing.fakes import embeddings_and_responses, tool_calls
from testing.fakes.engine import FakeEngine
from tests.api.test_conversations import asked, engine, items, new, say
from tests.api.test_queued_turns import queue, work
from tests.api.test_redaction import Apply, apply, reader
from workers.steward.turns import Turns

__all__ = ["apply", "engine", "reader"]
RULE = """
[[rule]]
id = "mails"
when = { account = "acme" }
sensitive = { default = "off", email = "tokenize" }
"""
ADA, BOB, EVE = "ada@hidden.example", "bob@hidden.example", "eve@hidden.example"


async def stored(database: Database) -> str:
    """All that is stored of turns and of the items of batches."""
    async with database.durable() as conn:
        rows = await (await conn.execute("select input, output, vault from turn")).fetchall()
        rows += await (await conn.execute("select body, vault from item_payload")).fetchall()
    return repr(rows)


async def test_a_conversation_has_one_mapping_of_placeholders(
    client: httpx.AsyncClient,
    reader: httpx.AsyncClient,
    engine: FakeEngine,
    database: Database,
    settings: Settings,
    apply: Apply,
) -> None:
    await apply(RULE)
    talk = await new(client, items=[{"role": "user", "content": f"I am {ADA}"}])
    first = await say(reader, f"write to {BOB} and {ADA}", conversation=talk)
    assert asked(engine) == ["I am [EMAIL_1]", "write to [EMAIL_2] and [EMAIL_1]"]
    assert first["output"][0]["content"][0]["text"] == f"echo: write to {BOB} and {ADA}"
    await queue(reader, f"and {EVE}, not {BOB}", conversation=talk)
    [texts] = await work(database, settings)
    assert texts[-1] == "and [EMAIL_3], not [EMAIL_2]"
    assert (await items(reader, talk))[-1] == f"echo: and {EVE}, not {BOB}"
    assert (await items(client, talk))[-1] == "echo: and [EMAIL_3], not [EMAIL_2]"
    assert not [mail for mail in (ADA, BOB, EVE) if mail in await stored(database)]


async def test_what_a_background_turn_answers_is_redacted_before_the_next_one_reads_it(
    client: httpx.AsyncClient,
    reader: httpx.AsyncClient,
    database: Database,
    settings: Settings,
    apply: Apply,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await apply(RULE)
    talk = await new(client)
    monkeypatch.setattr(embeddings_and_responses, "last_input_text", lambda body: f"ask {EVE}, not [EMAIL_1]")
    await queue(client, "one", conversation=talk)
    await queue(client, f"two for {BOB}", conversation=talk)
    texts = await work(database, settings)
    told = "echo: ask [EMAIL_1], not [LITERAL_1]"
    assert texts == [["one"], ["one", told, "two for [EMAIL_2]"]]
    assert (await items(client, talk))[:3] == ["one", told, "two for [EMAIL_2]"]
    assert (await items(reader, talk))[:3] == ["one", f"echo: ask {EVE}, not [EMAIL_1]", f"two for {BOB}"]
    assert not [mail for mail in (BOB, EVE) if mail in await stored(database)]


async def test_all_that_a_background_turn_says_is_restored_as_it_was_said_though_it_waited_for_an_answer_with_other_values(
    client: httpx.AsyncClient,
    reader: httpx.AsyncClient,
    database: Database,
    settings: Settings,
    apply: Apply,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await apply(RULE)
    talk = await new(client)
    monkeypatch.setattr(embeddings_and_responses, "last_input_text", lambda body: f"ask {EVE}")
    await queue(client, "one", conversation=talk)
    second = await queue(client, f"two for {ADA}", conversation=talk, instructions=f"Write to {BOB}, not to {ADA}")
    await work(database, settings)
    shown, hidden = [(await each.get(f"/v1/responses/{second['id']}")).json() for each in (reader, client)]
    assert shown["instructions"] == f"Write to {BOB}, not to {ADA}"
    assert "[EMAIL_" in hidden["instructions"]
    assert not [mail for mail in (ADA, BOB, EVE) if mail in await stored(database)]


async def test_a_turn_that_holds_what_a_newer_rule_refuses_does_not_run(
    client: httpx.AsyncClient, engine: FakeEngine, database: Database, settings: Settings, apply: Apply
) -> None:
    talk = await new(client, items=[{"role": "user", "content": f"I am {ADA}"}])
    made = [await queue(client, text, conversation=talk) for text in ("one", "two")]
    await apply(RULE.replace("tokenize", "refuse"))
    [first] = await work(database, settings)
    assert first == [f"I am {ADA}", "one"], "it ran already when the rule came"
    assert (await client.get(f"/v1/responses/{made[1]['id']}")).json()["status"] == "cancelled"


async def test_a_call_that_a_background_turn_loses_is_in_the_audit_log_though_nobody_has_polled(
    client: httpx.AsyncClient,
    database: Database,
    settings: Settings,
    apply: Apply,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await apply('[[rule]]\nid = "no-shell"\ndeny = { tools = ["shell"] }\n')
    calls = tool_calls.items([("shell", '{"planted": 1}')])
    plain = embeddings_and_responses.response
    monkeypatch.setattr(embeddings_and_responses, "response", lambda body: plain(body) | {"output": calls})
    made = await queue(client, "one", conversation=await new(client))
    with monkeypatch.context() as patch:
        patch.setattr(Turns, "look", AsyncMock())
        await work(database, settings)
    control = AdmissionControl.of(database, settings)
    await Turns(database, settings, control).look()
    await control.audit.store()
    shown = await client.get(f"/v1/responses/{made['id']}")
    assert "planted" not in shown.text
    async with database.relaxed() as conn:
        rows = [each for each in await log.latest(conn) if each.act == "policy.withheld"]
    assert [(each.target, each.account) for each in rows] == [("no-shell", "acme")]
    assert made["id"].removeprefix("resp_") in str(rows[0].correlation).replace("-", "")
