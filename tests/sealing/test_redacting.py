"""Claims about what a rule finds that came later than what is stored: it is replaced everywhere, and can be restored exactly."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from app.admission.stored import Search
from app.audit import log
from app.batches.redacting import NO_KEY
from app.cli import redact
from app.crypto import secret_key
from app.db.pool import Database
from app.engines.service import ensure_pool
from app.pipelines import outside
from app.policy.vaults import Vaults, of_item
from app.queue import response_log
from app.queue.bodies import StoredBodies
from app.sealing.keyring import Keyring
from app.sessions import redacting
from app.settings import Settings
from testing.fakes.engine import FakeEngine
from tests.api.support import BATCHES, MODEL, SUBMIT, run_all, uploaded
from tests.api.test_conversations import asked, engine, new, say
from tests.api.test_queued_turns import queue, work
from tests.api.test_redaction import Apply, apply, reader
from tests.cli.conftest import local
from tests.cli.support import Run
from tests.pipelines.test_served import Played, echo
from tests.queue import support
from tests.sealing.test_deletion import MAIL, copies, items_of

__all__ = ["apply", "engine", "local", "reader"]
Client = httpx.AsyncClient
SAID = f"Write to {MAIL}, not to [EMAIL_1]."
LONG = f"{SAID} " * 50  # an object
RULE = '[[rule]]\nid = "late"\nsensitive = "tokenize"\n'


@pytest.fixture
def settings(settings: Settings, request: pytest.FixtureRequest) -> Settings:
    """Larger bodies are objects. The parameter says whether all is sealed."""
    keys = f"file://{settings.data_dir}/keys"
    return settings.model_copy(
        update={"object_kb": 1, "encrypt": getattr(request, "param", "off"), "key_provider": keys}
    )


async def search(database: Database, settings: Settings, *, apply: bool) -> dict[str, Any]:
    """What a call finds, by place."""
    async with database.durable() as conn:
        [account] = await redact.accounts(conn, settings, "acme", record=apply)
    found = Search(apply, lambda: None)
    await redact.search_account(database, settings, account, found)
    assert all(place.searched for place in found.places.values())
    return {n: (p.having, p.redacted, dict(p.left)) for n, p in found.places.items() if p.having or p.left}


Shown = Callable[[Client], Awaitable[str]]
Store = Callable[[Client, Database, Settings], Awaitable[Shown]]


def shows(*paths: str) -> Shown:
    """What a reader sees there."""

    async def show(client: Client) -> str:
        answers = [await client.get(path) for path in paths]
        assert {answer.status_code for answer in answers} == {200}, [answer.text for answer in answers]
        return "".join(answer.text for answer in answers)

    return show


async def a_batch(client: Client, database: Database, settings: Settings) -> Shown:
    body = {"requests": [{"prompt": SAID, "max_tokens": 5}, {"prompt": LONG, "max_tokens": 5}, {"prompt": "nothing"}]}
    request_id = (await client.post(SUBMIT, json=body)).json()["result"]["request_id"]
    await run_all(database, answer=SAID, keyring=Keyring.of(settings))
    return shows(f"{BATCHES}/{request_id}/results")


async def a_file(client: Client, database: Database, settings: Settings) -> Shown:
    body = {"model": MODEL, "messages": [{"role": "user", "content": LONG}], "max_tokens": 5}
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body}
    file = await uploaded(client, json.dumps(line).encode() + b"\n\nno JSON\n")
    return shows(f"/v1/files/{file}/content")


async def a_conversation(client: Client, database: Database, settings: Settings) -> Shown:
    talk = await new(client)
    await say(client, SAID, conversation=talk)
    await queue(client, f"{SAID} And next?", conversation=talk)
    await work(database, settings)
    return shows(f"/v1/conversations/{talk}/items?order=asc&limit=100")


async def responses(client: Client, database: Database, settings: Settings) -> Shown:
    first = await say(client, SAID)
    second = await queue(client, f"{SAID} And next?", previous_response_id=first["id"])
    await work(database, settings)
    third = await say(client, "and then?", previous_response_id=second["id"])
    return shows(*(f"/v1/responses/{each['id']}/input_items?order=asc" for each in (first, second, third)))


async def a_pipeline(client: Client, database: Database, settings: Settings) -> Shown:
    ask = {"id": "ask", "model": MODEL, "body": {"messages": [{"role": "user", "content": "{{item.text}}"}]}}
    file = await uploaded(client, json.dumps({"custom_id": "a", "text": SAID}).encode() + b"\n")
    definition = {"input": {"file_id": file}, "stages": [ask], "name": "x", "completion_window": "24h"}
    made = await client.post("/v1/pipelines", json=definition)
    assert made.status_code == 200, made.text
    await Played(database, settings, echo).play()
    return shows(f"/v1/pipelines/{made.json()['id']}/results")


KINDS: list[tuple[str, Store]] = [
    *((sealed, each) for each in (a_batch, a_file, a_conversation, responses) for sealed in ("off", "on")),
    ("off", a_pipeline),
]


def values(shown: str) -> list[Any]:
    """What is shown, without how it is spelled."""
    found = []
    while shown := shown.lstrip():
        value, end = json.JSONDecoder().raw_decode(shown)
        found, shown = [*found, value], shown[end:]
    return found


@pytest.mark.parametrize(
    ("settings", "store"),
    KINDS,
    ids=[f"{store.__name__}-{'sealed' if sealed == 'on' else 'clear'}" for sealed, store in KINDS],
    indirect=["settings"],
)
async def test_what_is_stored_is_redacted_everywhere_and_restored_for_who_may_read_it(
    client: Client,
    reader: Client,
    engine: FakeEngine,
    database: Database,
    settings: Settings,
    apply: Apply,
    store: Store,
) -> None:
    shown = await store(client, database, settings)
    before = await shown(client)
    assert MAIL in before
    await apply(RULE)
    checked = await search(database, settings, apply=False)
    assert sum(having for having, *_ in checked.values()) > 0
    assert await shown(client) == before, "a check changes nothing"
    done = await search(database, settings, apply=True)
    assert {place: (having, having, {}) for place, (having, *_) in checked.items()} == done
    assert [place for place in await copies(database, settings) if not place.startswith("a vault")] == []
    assert MAIL not in await shown(client)
    again = await search(database, settings, apply=False)
    assert again == {}
    if store is not a_file:
        assert values(await shown(reader)) == values(before), "a restored answer is written again"


async def test_what_the_rule_refuses_is_removed_and_what_it_reports_or_what_is_a_name_stays(
    client: Client, database: Database, settings: Settings, apply: Apply
) -> None:
    item = {"prompt": f"{MAIL} 078-05-1120 4111 1111 1111 1111", "external_reference": f"of {MAIL}"}
    request_id = (await client.post(SUBMIT, json={"requests": [item]})).json()["result"]["request_id"]
    await run_all(database, answer="078-05-1120 and 4111 1111 1111 1111")
    await apply('[[rule]]\nid = "late"\nsensitive = { ssn = "refuse", card = "report", email = "tokenize" }\n')
    why = {"a name, label or definition cannot become another one: delete what has it": 1}
    found = await search(database, settings, apply=True)
    assert found == {"names and labels": (1, 0, why), "items of batches": (1, 1, {})}
    results = (await client.get(f"{BATCHES}/{request_id}/results")).json()
    assert results["result"]["response"] == "[SSN] and 4111 1111 1111 1111"


async def test_what_a_worker_has_or_what_changes_meanwhile_is_left_for_the_next_call(
    client: Client, database: Database, settings: Settings, apply: Apply, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.post(SUBMIT, json={"requests": [{"prompt": SAID}]})
    await apply(RULE)
    async with database.durable() as conn:
        pool = await ensure_pool(conn, MODEL)
        lease = await support.claim(conn, pool, await support.make_worker(database, pool))
        assert await search(database, settings, apply=True) == {
            "items of batches": (1, 0, {"a worker has it: call again once it has ended": 1})
        }
        await conn.execute("update chunk set state = 'ready', worker_id = null")

    async def first(*_: object) -> None:
        async with database.durable() as conn:
            await conn.execute("update item_payload set body = body || ' '")

    with monkeypatch.context() as patched:
        patched.setattr("app.batches.redacting._Batch._make_key", first)
        assert await search(database, settings, apply=True) == {
            "items of batches": (1, 0, {"it changed meanwhile: call again": 1})
        }
    assert lease is not None
    assert await search(database, settings, apply=True) == {"items of batches": (1, 1, {})}
    assert [place for place in await copies(database, settings) if not place.startswith("a vault")] == []


async def test_a_conversation_is_left_while_a_turn_waits(
    client: Client, engine: FakeEngine, database: Database, settings: Settings, apply: Apply
) -> None:
    talk = await new(client)
    await say(client, SAID, conversation=talk)
    await queue(client, "and next?", conversation=talk)
    await apply(RULE)
    found = await search(database, settings, apply=True)
    [why] = found["turns of conversations"][2]
    assert "runs or waits" in why
    assert MAIL in json.dumps(await items_of(client, talk))


async def test_new_placeholders_are_not_those_of_a_turn_that_begins_meanwhile(
    client: Client, engine: FakeEngine, database: Database, settings: Settings, apply: Apply
) -> None:
    talk = await new(client)
    await say(client, SAID, conversation=talk)
    await apply(RULE)
    await say(client, "write to another.person@hidden.example", conversation=talk)
    await search(database, settings, apply=True)
    texts = [item["content"][0]["text"] for item in await items_of(client, talk)]
    assert texts[0] == "Write to [EMAIL_50000], not to [LITERAL_50000]."
    assert texts[2] == "write to [EMAIL_2]"  # the second value that its request had


PIECES = ("To ", MAIL[:7], MAIL[7:])
STREAMS: dict[str, list[dict[str, Any]]] = {
    "responses": [
        {"type": "response.output_text.delta", "delta": piece, "logprobs": [{"token": piece}]} for piece in PIECES
    ],
    "chat": [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in PIECES],
    "completions": [{"choices": [{"index": 0, "text": piece, "logprobs": {"tokens": [piece]}}]} for piece in PIECES],
    "calls": [
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 1, "function": {"arguments": piece}}]}}]}
        for piece in ('{"to": "', *PIECES, '"}')
    ],
}


@pytest.mark.parametrize("stream", STREAMS)
async def test_a_value_is_found_in_events_though_it_begins_in_one_and_ends_in_another(
    client: Client, database: Database, settings: Settings, apply: Apply, stream: str
) -> None:
    await queue(client, "hello")
    await work(database, settings)
    async with database.durable() as conn:
        [(batch_id,)] = await (await conn.execute("select batch_id from batch")).fetchall()
        await response_log.begin_events(conn, batch_id, [json.dumps(each).encode() for each in STREAMS[stream]])
    await apply(RULE)
    assert (await search(database, settings, apply=True))["items of batches"] == (1, 1, {})
    assert [place for place in await copies(database, settings) if not place.startswith("a vault")] == []
    async with database.durable() as conn:
        events = [event for _, event in await response_log.events(conn, batch_id, -1, Keyring.of(settings))]
    assert json.dumps(events).count("To [EMAIL_1]") == 1
    assert MAIL[:7] not in json.dumps(events)


async def test_a_call_that_ended_before_it_noted_the_size_of_a_file_is_made_good(
    client: Client, database: Database, settings: Settings, apply: Apply
) -> None:
    shown = await a_file(client, database, settings)
    await apply(RULE)
    await search(database, settings, apply=True)
    async with database.durable() as conn:
        await conn.execute("update file set bytes = 1")
    await search(database, settings, apply=True)
    async with database.durable() as conn:
        assert await (await conn.execute("select bytes from file")).fetchone() == (len((await shown(client)).encode()),)


async def test_the_command_says_what_it_found_and_what_it_did(
    client: Client, database: Database, settings: Settings, apply: Apply, local: Run
) -> None:
    said = await asyncio.to_thread(local, "redact", "--check")
    assert (said.exit_code, "No rule in force redacts" in said.output) == (1, True)
    said = await asyncio.to_thread(local, "redact", "--check", "--account", "nobody")
    assert (said.exit_code, "nobody" in said.output, "No rule" in said.output) == (1, True, False)
    await client.post(SUBMIT, json={"requests": [{"prompt": SAID}]})
    await apply(RULE)
    said = await asyncio.to_thread(local, "redact", "--check")
    assert said.exit_code == 1
    assert "acme\titems of batches\t1\t1\t0\temail 1" in said.output
    assert "slackwater redact --apply" in said.output
    said = await asyncio.to_thread(local, "redact", "--apply", "--account", "acme")
    assert (said.exit_code, "1 record redacted." in said.output) == (0, True), said.output
    said = await asyncio.to_thread(local, "redact", "--check", "--json")
    assert said.exit_code == 0
    assert {each["with_values"] for each in json.loads(said.output)} == {0}
    async with database.durable() as conn:
        acts = [entry.act for entry in await log.latest(conn)]
    assert acts.count("account.redact") == 1


async def test_the_items_of_a_turn_that_waits_are_left_and_what_it_says_stays_what_it_said(
    client: Client, reader: Client, database: Database, settings: Settings, apply: Apply
) -> None:
    talk = await new(client)
    await queue(client, f"I am {MAIL}. " * 50, conversation=talk)
    second = await queue(client, f"and {SAID}", conversation=talk, instructions=f"Mind {MAIL}. {LONG}")
    await apply(RULE)
    found = await search(database, settings, apply=True)
    assert [
        place["a turn of its conversation runs or waits: call again once it has ended"]
        for _, _, place in found.values()
    ]
    await work(database, settings)
    await search(database, settings, apply=True)
    assert [place for place in await copies(database, settings) if not place.startswith("a vault")] == []
    shown = (await reader.get(f"/v1/responses/{second['id']}")).json()
    assert shown["instructions"] == f"Mind {MAIL}. {LONG}"
    items = await items_of(reader, talk)
    assert [items[0]["content"][0]["text"], items[2]["content"][0]["text"]] == [f"I am {MAIL}. " * 50, f"and {SAID}"]


async def test_a_turn_that_ran_while_its_conversation_was_redacted_hides_nothing_from_the_next_one(
    client: Client,
    reader: Client,
    engine: FakeEngine,
    database: Database,
    settings: Settings,
    apply: Apply,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    talk = await new(client)
    await say(client, SAID, conversation=talk)
    await apply(RULE)
    written = redacting._written

    async def late(*given: Any) -> bool:
        await say(client, "a turn between", conversation=talk)
        return await written(*given)

    with monkeypatch.context() as patched:
        patched.setattr(redacting, "_written", late)
        await search(database, settings, apply=True)
    await say(reader, "and now?", conversation=talk)
    assert SAID in [item["content"][0]["text"] for item in await items_of(reader, talk)]
    assert "[EMAIL_50000]" in json.dumps(asked(engine)), "it is no literal"


async def test_an_answer_from_outside_and_a_redaction_at_once_lose_no_value(
    client: Client,
    reader: Client,
    database: Database,
    settings: Settings,
    apply: Apply,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outside_stage = {"id": "out", "external": {"timeout": "1h"}, "body": {"of": "{{item.text}}"}}
    definition = {"input": {"items": [{"custom_id": "a", "text": SAID}]}, "stages": [outside_stage]}
    made = await client.post("/v1/pipelines", json={"name": "x", "completion_window": "24h"} | definition)
    pipeline = made.json()["id"]
    await Played(database, settings, echo).play()
    await apply(RULE)
    redacted = outside._redacted

    async def late(*given: Any) -> Any:
        found = await redacted(*given)
        monkeypatch.setattr(outside, "_redacted", redacted)
        await search(database, settings, apply=True)
        return found

    monkeypatch.setattr(outside, "_redacted", late)
    answer = {"answer": {"text": "from another.person@hidden.example"}}
    given = await client.post(f"/v1/pipelines/{pipeline}/items/out/0/answer", json=answer)
    assert given.status_code == 200, given.text
    await Played(database, settings, echo).play()
    shown = (await reader.get(f"/v1/pipelines/{pipeline}/results")).text
    assert "another.person@hidden.example" in shown
    assert [place for place in await copies(database, settings) if not place.startswith("a vault")] == []
    async with database.durable() as conn:
        find = "select batch_id, vault, tenant_id from stage join batch using (batch_id) join item_payload using (batch_id)"
        rows = await conn.execute(f"{find} where stage.name = 'out'".encode())
        [(batch_id, vault, tenant)] = await rows.fetchall()
        opened = await StoredBodies(conn, Keyring.of(settings), batch_id).vault(0, vault)
    values = Vaults(secret_key(settings), tenant).opened(opened, of_item(batch_id, 0)).values()
    assert {MAIL, "another.person@hidden.example"} <= set(values)


async def test_a_file_whose_values_cannot_be_read_is_left_as_it_is(
    client: Client, database: Database, settings: Settings, apply: Apply
) -> None:
    await apply(RULE)
    shown = await a_file(client, database, settings)
    before = await shown(client)
    assert "[EMAIL_1]" in before
    await apply(RULE.replace('"tokenize"', '{ default = "tokenize", patterns = { word = "Write" } }'))
    other = settings.model_copy(update={"secret_key": SecretStr("another secret key, with 32 bytes.")})
    found = await search(database, other, apply=True)
    assert found["files"] == (0, 0, {NO_KEY: 1})
    assert await shown(client) == before


async def test_names_and_what_is_said_of_broken_lines_are_found_too(
    client: Client, database: Database, settings: Settings, apply: Apply
) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
    line = {"custom_id": MAIL, "method": "POST", "url": "/v1/chat/completions", "body": body}
    broken = line | {"custom_id": "b", "body": body | {"model": MAIL}}
    file = await uploaded(client, b"".join(json.dumps(each).encode() + b"\n" for each in (line, broken)))
    order = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    refused = (await client.post("/v1/batches", json=order)).json()
    assert MAIL in json.dumps(refused["errors"])
    await client.post(SUBMIT, json={"requests": [{"prompt": "hi", "session_id": MAIL}]})
    await apply(RULE)
    found = await search(database, settings, apply=True)
    assert found["names and labels"][0] == 2, "a custom_id and a session"
    assert found["errors of files"][:2] == (2, 2)
    assert MAIL not in (await client.get(f"/v1/batches/{refused['id']}")).text
