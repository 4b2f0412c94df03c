"""Claims about redaction on every surface: planted secrets rest nowhere, and a permitted reader gets them back exactly."""

import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import orjson
import psycopg
import pytest

from app.batches import lifecycle
from app.crypto import secret_key
from app.db.pool import Database
from app.detection import detectors
from app.engines import catalogue
from app.engines.service import ensure_pool
from app.policy import service as policies
from app.queue import service
from app.queue.types import Result
from app.settings import Settings
from app.tenants import service as tenants
from app.tenants.key_scope import KeyScope
from testing.fakes.engine import FakeEngine
from tests.api import in_process
from tests.api.support import BATCHES, MODEL, RUN, SUBMIT, frames, uploaded
from tests.gateway.support import Registry
from tests.queue import support

# No other test may write these: the server's log of changes is searched, in which all databases of a process are.
MAIL, CARD, KEY = "wrenhollow.person@hidden.example", "4916 7382 0541 9625", "sk-wrenhollowwrenhollow0123456789"
PATIENT = 'P-"777'
PLANTED = (MAIL, CARD, KEY, PATIENT, PATIENT.replace('"', '\\"'), "wrenhollow")
TEXT = f"Write to {MAIL} and {MAIL} about {CARD} with {KEY} for {PATIENT}; not [EMAIL_1]"
MESSAGES = [{"role": "user", "content": TEXT}]
RULE = """
[[rule]]
id = "clinic"
when = { account = "acme" }
sensitive = { default = "tokenize", ssn = "refuse", patterns = { patient = 'P-"\\d+' } }
contact = "dpo@example.com"
"""
REDACTED = "Write to [EMAIL_1] and [EMAIL_1] about [CARD_1] with [SECRET_1] for [PATIENT_1]; not [LITERAL_1]"
Apply = Callable[[str], Awaitable[None]]


@pytest.fixture
async def apply(database: Database, settings: Settings, client: httpx.AsyncClient) -> Apply:
    """Puts a policy in force, and lets this process read it."""

    async def put(text: str) -> None:
        async with database.transaction() as conn:
            await policies.apply(conn, text, catalogue.load(settings.models_file), "test")
        await in_process.application().state.parts.admission.policy.renew()

    return put


@pytest.fixture
async def reader(settings: Settings, database: Database, client: httpx.AsyncClient) -> AsyncIterator[httpx.AsyncClient]:
    """A client whose key may restore."""
    async with database.transaction() as conn:
        key = await tenants.create_key(conn, secret_key(settings), "acme", "reader", scope=KeyScope(restore=True))
    transport = httpx.ASGITransport(app=in_process.application(), raise_app_exceptions=False)
    headers = {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://api", headers=headers) as reader:
        yield reader


@pytest.fixture
async def engine(database: Database) -> AsyncIterator[FakeEngine]:
    """An engine that a live worker has reported ready. It repeats the prompt."""
    async with FakeEngine() as engine:
        engine.answer_tokens = 40
        await Registry(database).ready(engine)
        yield engine


async def answer_all(database: Database, settings: Settings) -> list[bytes]:
    """Play the worker and the steward: each answer repeats its prompt, as text and in a tool call. Returns what it was given."""
    given = []
    async with database.durable() as conn:
        pool = await ensure_pool(conn, MODEL)
        worker = await support.make_worker(database, pool)
        while lease := await support.claim(conn, pool, worker):
            outcome = []
            for item in await service.load(conn, lease):
                given.append(bytes(item.body))
                given_item = orjson.loads(item.body)
                if "messages" not in given_item:  # an invalid line
                    outcome.append(
                        Result(item.seq, False, 1, 0, 0, 0, b'{"code":5006,"message":"no"}', error="invalid")
                    )
                    continue
                text = given_item["messages"][0]["content"]
                call = {
                    "id": "c",
                    "type": "function",
                    "function": {"name": "f", "arguments": json.dumps({"who": text})},
                }
                message = {"role": "assistant", "content": text, "tool_calls": [call]}
                choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
                body = {"id": "x", "object": "chat.completion", "choices": choices}
                body["usage"] = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
                outcome.append(Result(item.seq, True, 1, 3, 1, 5, json.dumps(body).encode()))
            assert await service.flush(conn, lease, outcome)
            await service.finish(conn, lease)
    async with database.transaction() as conn:
        await lifecycle.settle(conn)
    return given


def searched(settings: Settings, database: Database, log: str, *values: str) -> int:
    """No value is in a byte of the database's files and WAL, of spool and objects, or in the log. Returns how many files have a
    placeholder, which shows that the search sees bodies.
    """
    with psycopg.connect(settings.database_url, autocommit=True) as conn:
        conn.execute("checkpoint")
        [(folder,)] = conn.execute("show data_directory").fetchall()
        [(oid,)] = conn.execute("select oid::text from pg_database where datname = current_database()").fetchall()
    places = [Path(folder) / "base" / oid, Path(folder) / "pg_wal", settings.data_dir]
    redacted = 0
    for path in (path for place in places for path in place.rglob("*") if path.is_file()):
        content = path.read_bytes()
        redacted += b"[EMAIL_1] and [EMAIL_1]" in content
        for value in values:
            assert value.encode() not in content, f"{value} in {path}"
    assert not [value for value in values if value in log]
    return redacted


def file_line(custom_id: str, text: str = TEXT) -> bytes:
    body = {"model": MODEL, "messages": [{"role": "user", "content": text}]}
    whole = {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body}
    return orjson.dumps(whole) + b"\n"


def of_file(file: str, **more: Any) -> dict[str, Any]:
    return {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h", **more}


@pytest.mark.parametrize("form", ["json", "ndjson"])
async def test_a_native_batch_is_stored_redacted_and_restored_for_a_permitted_reader_only(
    client: httpx.AsyncClient,
    reader: httpx.AsyncClient,
    apply: Apply,
    database: Database,
    settings: Settings,
    capfd: pytest.CaptureFixture[str],
    form: str,
) -> None:
    await apply(RULE)
    item = {"messages": MESSAGES, "external_reference": "first"}
    if form == "json":
        sent = await client.post(SUBMIT, json={"requests": [item]}, headers={"idempotency-key": "k"})
    else:
        kind = {"content-type": "application/x-ndjson", "idempotency-key": "k"}
        sent = await client.post(SUBMIT, content=orjson.dumps(item) + b"\n", headers=kind)
    assert sent.status_code == 200, sent.text
    [given] = await answer_all(database, settings)
    assert orjson.loads(given)["messages"][0]["content"] == REDACTED
    request_id = sent.json()["result"]["request_id"]
    url = f"{BATCHES}/{request_id}/results"
    hidden, shown = [(await each.get(url)).json() for each in (client, reader)]
    assert hidden["result"]["response"] == REDACTED
    assert shown["result"]["response"] == TEXT
    [call] = shown["result"]["tool_calls"]
    arguments = call["arguments"] if "arguments" in call else call["function"]["arguments"]
    assert (orjson.loads(arguments) if isinstance(arguments, str) else arguments) == {"who": TEXT}
    polled = await reader.post(RUN, json={"request_id": request_id})
    assert polled.json()["result"]["responses"][0]["result"]["response"] == TEXT
    assert searched(settings, database, "".join(capfd.readouterr()), *PLANTED)


async def test_a_file_is_rewritten_before_it_is_spooled_and_its_batch_restored(
    client: httpx.AsyncClient,
    reader: httpx.AsyncClient,
    apply: Apply,
    database: Database,
    settings: Settings,
    capfd: pytest.CaptureFixture[str],
) -> None:
    await apply(RULE)
    broken = b'{"custom_id": "bad", "body": "' + MAIL.encode() + b"\n"
    file = await uploaded(client, file_line("one") + broken + file_line("two", "nothing here").rstrip())
    kept = (await client.get(f"/v1/files/{file}/content")).content
    lines = [orjson.loads(text) for text in (kept.split(b"\n")[0], kept.split(b"\n")[2])]
    assert lines[0]["body"]["messages"][0]["content"] == REDACTED
    assert "vault" not in lines[1]
    made = (await client.post("/v1/batches", json=of_file(file, validation="lenient"))).json()
    given = await answer_all(database, settings)
    assert orjson.loads(given[0])["messages"][0]["content"] == REDACTED
    output = (await client.get(f"/v1/batches/{made['id']}")).json()["output_file_id"]
    texts = {}
    for each in (client, reader):
        content = (await each.get(f"/v1/files/{output}/content")).content
        size = (await each.get(f"/v1/files/{output}")).json()["bytes"]
        assert size == len(content)
        assert (await each.get(f"/v1/files/{output}/content", headers={"range": "bytes=0-9"})).content == content[:10]
        answers = {(line := orjson.loads(text))["custom_id"]: line for text in content.splitlines()}
        texts[each] = answers["one"]["response"]["body"]["choices"][0]["message"]["content"]
    assert texts == {client: REDACTED, reader: TEXT}
    assert searched(settings, database, "".join(capfd.readouterr()), *PLANTED)


async def test_a_file_from_before_the_rule_is_redacted_when_its_batch_is_created(
    client: httpx.AsyncClient, reader: httpx.AsyncClient, apply: Apply, database: Database, settings: Settings
) -> None:
    file = await uploaded(client, file_line("one"))
    await apply(RULE)
    made = (await client.post("/v1/batches", json=of_file(file))).json()
    [given] = await answer_all(database, settings)
    assert orjson.loads(given)["messages"][0]["content"] == REDACTED
    output = (await client.get(f"/v1/batches/{made['id']}")).json()["output_file_id"]
    assert TEXT.encode().replace(b'"', b'\\"') in (await reader.get(f"/v1/files/{output}/content")).content


async def test_a_synchronous_request_is_redacted_for_the_engine_and_restored_whole_and_streamed(
    client: httpx.AsyncClient, reader: httpx.AsyncClient, apply: Apply, engine: FakeEngine
) -> None:
    await apply(RULE)
    body = {"model": MODEL, "messages": MESSAGES}
    for each, text in ((client, REDACTED), (reader, TEXT)):
        whole = await each.post("/v1/chat/completions", json=body)
        assert whole.status_code == 200, whole.text
        assert text in whole.json()["choices"][0]["message"]["content"]
        streamed = await each.post("/v1/chat/completions", json=body | {"stream": True})
        deltas = [frame["choices"][0]["delta"] for frame in frames(streamed.text)[:-1] if frame["choices"]]
        assert text in "".join(delta.get("content") or "" for delta in deltas)
        native = await each.post(RUN, json={"messages": MESSAGES, "stream": True})
        assert text in "".join(frame.get("response", "") for frame in frames(native.text)[:-1])
    assert all(given["messages"][0]["content"] == REDACTED for given in engine.bodies)


async def test_a_flex_call_and_a_background_response_are_stored_redacted(
    client: httpx.AsyncClient, reader: httpx.AsyncClient, apply: Apply, database: Database, settings: Settings
) -> None:
    await apply(RULE)
    body = {"model": MODEL, "input": TEXT, "background": True, "instructions": f"for {MAIL}"}
    made = await client.post("/v1/responses", json=body)
    assert made.status_code == 200, made.text
    hidden, shown = [(await each.get(f"/v1/responses/{made.json()['id']}")).json() for each in (client, reader)]
    assert "[EMAIL_1]" in hidden["instructions"]
    assert MAIL not in json.dumps(hidden)
    assert shown["instructions"] == body["instructions"]
    inputs = (await reader.get(f"/v1/responses/{made.json()['id']}/input_items")).json()
    assert inputs["data"][0]["content"][0]["text"] == TEXT
    searched(settings, database, "", *PLANTED)


@pytest.mark.parametrize("where", ["reference", "tags", "metadata", "session", "key"])
async def test_a_hit_in_what_is_stored_as_it_is_refuses_the_request_and_nothing_is_stored(
    client: httpx.AsyncClient,
    apply: Apply,
    database: Database,
    settings: Settings,
    capfd: pytest.CaptureFixture[str],
    where: str,
) -> None:
    await apply(RULE)
    item = {"prompt": "hello", "external_reference": MAIL} if where == "reference" else {"prompt": "hello"}
    headers = {
        "metadata": {"cf-aig-metadata": json.dumps({"who": MAIL})},
        "session": {"x-session-id": MAIL},
        "key": {"idempotency-key": KEY},
    }.get(where, {})
    tags = "&tags=wrenhollow@hidden.example" if where == "tags" else ""
    refused = await client.post(SUBMIT + tags, json={"requests": [item]}, headers=headers)
    assert refused.status_code == 400, refused.text
    assert refused.json()["errors"][0]["code"] == 5006
    assert "rule clinic" in refused.text
    assert "dpo@example.com" in refused.text
    assert "wrenhollow" not in refused.text
    async with database.relaxed() as conn:
        assert (await (await conn.execute("select count(*) from batch")).fetchone()) == (0,)
    searched(settings, database, "".join(capfd.readouterr()), "wrenhollow", MAIL, KEY)


async def test_hits_in_file_names_custom_ids_and_metadata_of_openai_routes_are_refused(
    client: httpx.AsyncClient, apply: Apply, settings: Settings, database: Database
) -> None:
    await apply(RULE)
    hit = {"file": (f"{MAIL}.jsonl", file_line("one"))}
    name = await client.post("/v1/files", data={"purpose": "batch"}, files=hit)
    line = await client.post("/v1/files", data={"purpose": "batch"}, files={"file": ("a.jsonl", file_line(MAIL))})
    ssn = file_line("one", "123-45-6789")
    mode = await client.post("/v1/files", data={"purpose": "batch"}, files={"file": ("a.jsonl", ssn)})
    data = await client.post("/v1/files", data={"purpose": "user_data"}, files={"file": ("a.txt", MAIL.encode())})
    part = await client.post("/v1/uploads", json={"purpose": "batch", "bytes": 9, "filename": "a.jsonl"})
    file = await uploaded(client, file_line("one"))
    meta = await client.post("/v1/batches", json=of_file(file, metadata={"who": MAIL}))
    sync = await client.post("/v1/chat/completions", json={"model": MODEL, "messages": MESSAGES, "user": "123-45-6789"})
    own = {"model": MODEL, "messages": [{"role": "user", "content": "x"}], "metadata": {"workflow": MAIL}}
    named = await client.post("/v1/chat/completions", json=own)
    for refused in (name, line, mode, data, part, meta, sync, named):
        assert refused.status_code == 400, refused.text
        assert refused.json()["error"]["code"] == "sensitive_data"
        assert MAIL not in refused.text
    searched(settings, database, "", *PLANTED)


async def test_an_invalid_request_is_refused_without_repeating_its_values(
    client: httpx.AsyncClient, apply: Apply
) -> None:
    await apply(RULE)
    body = {"model": MODEL, "messages": [{"role": f"{MAIL}\n", "content": "x"}]}
    refused = await client.post("/v1/chat/completions", json=body)
    assert refused.status_code == 400
    assert MAIL not in refused.text


@pytest.mark.parametrize(("words", "in_thread"), [(1, False), (20_000, True)])
async def test_a_large_request_is_searched_in_a_thread(
    client: httpx.AsyncClient, apply: Apply, monkeypatch: pytest.MonkeyPatch, words: int, in_thread: bool
) -> None:
    await apply(RULE.replace('ssn = "refuse"', 'email = "refuse"'))
    searched_by, find = set[int](), detectors.Detectors.find

    def noted(self: detectors.Detectors, text: bytes) -> list[detectors.Hit]:
        if MAIL.encode() in text:
            searched_by.add(threading.get_ident())
        return find(self, text)

    monkeypatch.setattr(detectors.Detectors, "find", noted)
    messages = [{"role": "user", "content": "word " * words + MAIL}]
    for path in ("/v1/chat/completions", "/v1/responses"):
        field = "messages" if "chat" in path else "input"
        refused = await client.post(path, json={"model": MODEL, field: messages})
        assert refused.status_code == 400, refused.text
    assert (threading.get_ident() not in searched_by, bool(searched_by)) == (in_thread, True)


async def test_without_detectors_requests_are_503_and_nothing_is_stored(
    client: httpx.AsyncClient, apply: Apply, database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    await apply(RULE)
    monkeypatch.setattr(detectors, "re2", None)
    detectors.detectors_of.cache_clear()
    for answer in (
        await client.post(SUBMIT, json={"requests": [{"prompt": TEXT}]}),
        await client.post("/v1/files", data={"purpose": "batch"}, files={"file": ("a.jsonl", file_line("one"))}),
        await client.post("/v1/chat/completions", json={"model": MODEL, "messages": MESSAGES}),
    ):
        assert answer.status_code == 503, answer.text
        assert answer.json()["errors"][0]["code"] == 5001
    searched(settings, database, "", *PLANTED)


async def test_the_same_batch_again_is_the_same_and_one_with_other_values_is_not(
    client: httpx.AsyncClient, apply: Apply
) -> None:
    await apply(RULE)
    key = {"idempotency-key": "once"}
    first, again, other = [
        await client.post(SUBMIT, json={"requests": [{"prompt": f"mail {mail}"}]}, headers=key)
        for mail in ("a@x.de", "a@x.de", "b@x.de")
    ]
    assert first.json()["result"]["request_id"] == again.json()["result"]["request_id"]
    assert other.status_code == 422


async def test_other_accounts_and_reports_leave_requests_as_they_are(
    client: httpx.AsyncClient, apply: Apply, engine: FakeEngine
) -> None:
    await apply(RULE.replace('"acme"', '"else"') + '[[rule]]\nid = "watch"\nsensitive = "report"\n')
    answer = await client.post("/v1/chat/completions", json={"model": MODEL, "messages": MESSAGES})
    assert TEXT in answer.json()["choices"][0]["message"]["content"]
    metrics = (await client.get("/metrics")).text
    assert 'slackwater_sensitive_values_total{kind="card",mode="report"}' in metrics


async def test_bodies_in_the_object_store_are_redacted(settings: Settings, database: Database) -> None:
    async with database.transaction() as conn:
        await policies.apply(conn, RULE, catalogue.load(settings.models_file), "test")
        key = await tenants.create_key(conn, secret_key(settings), "acme", "reader", scope=KeyScope(restore=True))
    async with in_process.running(settings.model_copy(update={"object_kb": 1}), str(key)) as (_, reader):
        item = {"messages": [{"role": "user", "content": TEXT + " x" * 600}]}
        sent = await reader.post(SUBMIT, json={"requests": [item]})
        async with database.relaxed() as conn:
            cursor = await conn.execute("select stored, vault is not null from item_payload")
            assert await cursor.fetchall() == [(True, True)]
        assert b"[EMAIL_1]" in b"".join(path.read_bytes() for path in settings.data_dir.rglob("*") if path.is_file())
        searched(settings, database, "", *PLANTED)
        assert sent.status_code == 200
