"""Claims about redacted turns: a conversation has one mapping of placeholders."""

import httpx

from app.db.pool import Database
from app.settings import Settings
from testing.fakes.engine import FakeEngine
from tests.api.test_conversations import asked, engine, items, new, say
from tests.api.test_queued_turns import queue, work
from tests.api.test_redaction import Apply, apply, reader

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
