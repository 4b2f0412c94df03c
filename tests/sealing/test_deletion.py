"""Claims about deletion: nothing is left in a row, a vault, an object or a file, whichever deletion it was and whatever made a
copy.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from app.batches import accounts, lifecycle
from app.db.pool import Database
from app.policy.vaults import Vaults, of_item
from app.sealing.keyring import Keyring
from app.settings import Settings
from app.storage.store import Store
from testing.fakes.engine import FakeEngine
from tests.api.support import BATCHES, MODEL, SUBMIT, run_all, uploaded
from tests.api.test_conversations import engine, new, say
from tests.api.test_queued_turns import queue, work
from tests.api.test_redaction import Apply, apply
from tests.pipelines.test_served import Played, echo
from tests.sealing.support import holders

__all__ = ["apply", "engine"]
CANARY, HIDDEN = "Cy3-canary-that-somebody-wants-to-be-gone", "@hidden.example"
MAIL = "canary.person" + HIDDEN
SAID = f"{CANARY} of {MAIL}"
Client = httpx.AsyncClient


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Larger bodies are objects."""
    return settings.model_copy(update={"object_kb": 1})


@pytest.fixture(autouse=True)
async def policy(apply: Apply) -> None:
    await apply('[[rule]]\nid = "hide"\nsensitive = "tokenize"\n')


async def copies(database: Database, settings: Settings) -> list[str]:
    """Where the canary or the value is: tables, samples of their values, vaults, files of the data directory."""
    found = []
    async with database.durable() as conn:
        tables = await (await conn.execute("select tablename from pg_tables where schemaname = 'public'")).fetchall()
        for (table,) in [("pg_stats",), *tables]:
            query = (
                f"select count(*) from {table} t where t::text like any (array['%{CANARY}%', '%{CANARY.encode().hex()}%',"
                f" '%{HIDDEN}%', '%{HIDDEN.encode().hex()}%'])"
            )
            [(count,)] = await (await conn.execute(query.encode())).fetchall()
            found += [table] if count else []
        items = "select 'item', tenant_id, batch_id, seq, null, p.vault from item_payload p join batch using (batch_id)"
        turns = "select 'turn', tenant_id, null, null, turn_id, vault from turn"
        for what, tenant_id, batch_id, seq, turn_id, vault in await (
            await conn.execute(f"{items} union all {turns}".encode())
        ).fetchall():
            place = turn_id.bytes if turn_id else of_item(batch_id, seq)
            opened = Vaults(settings.secret_key.get_secret_value().encode(), tenant_id).opened(vault, place)
            found += [f"a vault of an {what}"] if any(value.endswith(HIDDEN) for value in opened.values()) else []
        await conn.execute("analyze")  # what it samples now must be gone the next time
    return found + holders(settings.data_dir, text=CANARY) + holders(settings.data_dir, text=HIDDEN)


Deletion = Callable[[Client, Database, Settings], Awaitable[Any]]


async def items_of(client: Client, talk: str) -> list[dict[str, Any]]:
    return list((await client.get(f"/v1/conversations/{talk}/items?order=asc&limit=100")).json()["data"])


async def an_item(client: Client, database: Database, settings: Settings) -> None:
    talk = await new(client)
    await say(client, SAID, conversation=talk)
    await queue(client, "and next? " + "long " * 500, conversation=talk)
    await work(database, settings)
    await say(client, "and then?", conversation=talk)
    assert await copies(database, settings)
    for item in await items_of(client, talk):
        if CANARY in json.dumps(item):
            gone = await client.delete(f"/v1/conversations/{talk}/items/{item['id']}")
            assert gone.status_code == 200, gone.text
    assert len(await items_of(client, talk)) == 4


async def a_response(client: Client, database: Database, settings: Settings) -> None:
    talk = await new(client)
    first = await say(client, SAID, conversation=talk)
    await queue(client, "and next?", conversation=talk)
    await queue(client, "fails?", conversation=talk)
    await work(database, settings)
    assert (await client.delete(f"/v1/responses/{first['id']}")).status_code == 200


async def a_queued_response(client: Client, database: Database, settings: Settings) -> None:
    talk = await new(client)
    first = await queue(client, SAID, conversation=talk)
    await queue(client, "and next?", conversation=talk)
    await work(database, settings)
    assert (await client.delete(f"/v1/responses/{first['id']}")).status_code == 200


async def a_response_that_others_continue(client: Client, database: Database, settings: Settings) -> None:
    first = await say(client, SAID)
    second = await queue(client, "and next? " + "long " * 500, previous_response_id=first["id"])
    await work(database, settings)
    await say(client, "and then?", previous_response_id=second["id"])
    assert await copies(database, settings)
    assert (await client.delete(f"/v1/responses/{first['id']}")).status_code == 200


async def a_response_between_others_and_the_first(client: Client, database: Database, settings: Settings) -> None:
    first = await say(client, SAID)
    second = await say(client, "and next?", previous_response_id=first["id"])
    await say(client, "and then?", previous_response_id=second["id"])
    for each in (second, first):
        assert (await client.delete(f"/v1/responses/{each['id']}")).status_code == 200


async def a_failed_turn_after_it(client: Client, database: Database, settings: Settings) -> None:
    talk = await new(client)
    first = await say(client, SAID, conversation=talk)
    await queue(client, "and next?", conversation=talk)
    await work(database, settings, fail=True)
    assert (await client.delete(f"/v1/responses/{first['id']}")).status_code == 200


async def a_conversation(client: Client, database: Database, settings: Settings) -> None:
    talk = await new(client)
    await say(client, SAID, conversation=talk)
    await queue(client, SAID * 50, conversation=talk)
    await work(database, settings)
    assert (await client.delete(f"/v1/conversations/{talk}")).status_code == 200


async def a_conversation_that_responses_continue(client: Client, database: Database, settings: Settings) -> None:
    talk = await new(client)
    first = await say(client, SAID, conversation=talk)
    second = await say(client, "and next?", previous_response_id=first["id"])
    await say(client, "and then?", previous_response_id=second["id"])
    assert (await client.delete(f"/v1/conversations/{talk}")).status_code == 200


async def a_turn_whose_later_turn_a_response_continues(client: Client, database: Database, settings: Settings) -> None:
    talk = await new(client)
    first = await say(client, SAID, conversation=talk)
    later = await say(client, "and next?", conversation=talk)
    await say(client, "and then?", previous_response_id=later["id"])
    assert (await client.delete(f"/v1/responses/{first['id']}")).status_code == 200


async def a_response_while_one_that_continues_it_runs(client: Client, database: Database, settings: Settings) -> None:
    first = await say(client, SAID)
    await queue(client, "and next? " + "long " * 500, previous_response_id=first["id"])
    assert (await client.delete(f"/v1/responses/{first['id']}")).status_code == 200
    await work(database, settings)


async def the_file_of_a_batch_that_was_refused(client: Client, database: Database, settings: Settings) -> None:
    body = {"model": CANARY, "messages": [{"role": "user", "content": SAID}], "max_tokens": 5}
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body}
    file = await uploaded(client, json.dumps(line).encode() + b"\n")
    order = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    made = (await client.post("/v1/batches", json=order)).json()
    assert CANARY in json.dumps(made["errors"])
    assert await copies(database, settings)
    assert (await client.delete(f"/v1/files/{file}")).status_code == 200
    left = (await client.get(f"/v1/batches/{made['id']}")).json()
    assert (left["status"], left["errors"]["data"][0]["code"]) == ("failed", "file_deleted")


async def a_batch(client: Client, database: Database, settings: Settings) -> None:
    body = {"requests": [{"prompt": SAID, "max_tokens": 5}, {"prompt": SAID * 50, "max_tokens": 5}]}
    sent = await client.post(SUBMIT, json=body)
    assert sent.status_code == 200, sent.text
    await run_all(database, answer=CANARY)
    assert await copies(database, settings)
    gone = await client.delete(f"{BATCHES}/{sent.json()['result']['request_id']}")
    assert gone.status_code == 200, gone.text


async def a_file_and_its_batch(client: Client, database: Database, settings: Settings) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": SAID * 50}], "max_tokens": 5}
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body}
    file = await uploaded(client, json.dumps(line).encode() + b"\n")
    order = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    made = (await client.post("/v1/batches", json=order)).json()
    await run_all(database, answer=CANARY)
    assert await copies(database, settings)
    output = (await client.get(f"/v1/batches/{made['id']}")).json()["output_file_id"]
    for each in (file, output):
        gone = await client.delete(f"/v1/files/{each}")
        assert gone.status_code == 200, gone.text


async def a_pipeline(client: Client, database: Database, settings: Settings) -> None:
    ask = {"id": "ask", "model": MODEL, "body": {"messages": [{"role": "user", "content": "{{item.text}}"}]}}
    outside = {"id": "out", "external": {"timeout": "1h"}, "body": {"of": "{{item.text}} {{text}}"}}
    definition = {"input": {"items": [{"custom_id": "a", "text": SAID}]}, "stages": [ask, outside]}
    made = await client.post("/v1/pipelines", json={"name": "x", "completion_window": "24h"} | definition)
    assert made.status_code == 200, made.text
    pipeline = made.json()["id"]
    await Played(database, settings, echo).play()
    assert await copies(database, settings)
    assert (await client.post(f"/v1/pipelines/{pipeline}/cancel")).status_code == 200
    await Played(database, settings, echo).play()
    gone = await client.delete(f"/v1/pipelines/{pipeline}")
    assert gone.status_code == 200, gone.text


async def an_account(client: Client, database: Database, settings: Settings) -> None:
    await an_item_that_stays(client, database, settings)
    await a_file_that_stays(client)
    async with database.transaction() as conn:
        await accounts.close(conn, "acme")
    while not await accounts.sweep(database, Store.of(settings), Keyring.of(settings)):
        await lifecycle.tick(database)


async def an_item_that_stays(client: Client, database: Database, settings: Settings) -> None:
    talk = await new(client)
    await say(client, SAID, conversation=talk)
    await queue(client, SAID * 50, conversation=talk)
    await work(database, settings)
    await say(client, SAID)
    body = {"requests": [{"prompt": SAID * 50, "max_tokens": 5}, {"prompt": SAID, "max_tokens": 5}]}
    assert (await client.post(SUBMIT, json=body)).status_code == 200
    await run_all(database, answer=CANARY)


async def a_file_that_stays(client: Client) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": SAID}], "max_tokens": 5}
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body}
    await uploaded(client, json.dumps(line).encode() + b"\n")


KINDS = [
    an_item,
    a_response,
    a_queued_response,
    a_response_that_others_continue,
    a_response_between_others_and_the_first,
    a_failed_turn_after_it,
    a_conversation,
    a_conversation_that_responses_continue,
    a_turn_whose_later_turn_a_response_continues,
    a_response_while_one_that_continues_it_runs,
    the_file_of_a_batch_that_was_refused,
    a_batch,
    a_file_and_its_batch,
    a_pipeline,
    an_account,
]


@pytest.mark.parametrize("delete", KINDS, ids=[each.__name__ for each in KINDS])
async def test_nothing_is_left_of_what_was_deleted(
    client: Client, engine: FakeEngine, database: Database, settings: Settings, delete: Deletion
) -> None:
    await delete(client, database, settings)
    assert await copies(database, settings) == []
