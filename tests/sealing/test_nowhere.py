"""The claim about secrets and personal data in all that callers and engines say: with redaction and encryption on, they are
nowhere on disk, in no log, trace, metric or webhook, and a permitted reader gets them back exactly.

Whatever a deployment writes or sends is searched byte by byte: the database's files, WAL and log, spools, objects, logs of the
level `debug`, spans, metrics, webhooks.
"""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
import structlog

from app import telemetry
from app.api.openai import files as files_route
from app.crypto import secret_key
from app.engines import catalogue
from app.events import KINDS
from app.policy import service as policies
from app.settings import Settings
from app.tenants import service as tenants
from app.tenants.key_scope import KeyScope
from app.tracing import recorder
from app.tracing.otlp import Exporter
from app.webhooks.egress import Egress
from testing.fakes import otlp_receiver
from tests.api import in_process
from tests.api.support import BATCHES, MODEL, RUN, SUBMIT
from tests.gpu.world import World
from tests.sealing.support import on_disk
from tests.webhooks.support import receiving, send_due, subscribe
from workers.notifier.delivery import Sender

MAIL, KEY, CARD = "nowhere.person@hidden.example", "sk-nowherenowherenowhere0123456789", "5500 0000 0000 0004"
PATIENT, SENTENCE = "P-88100", "Yd5-nowhere-sentence-of-a-prompt-that-every-answer-repeats"
SECRETS = (MAIL, KEY, CARD, PATIENT)
TEXT = f"{SENTENCE}: write to {MAIL} about {CARD} with {KEY} for {PATIENT}; not [EMAIL_1]"
LONG = f"{TEXT} {'and so on ' * 400}"
HIDDEN = f"{SENTENCE}: write to [EMAIL_1] about [CARD_1] with [SECRET_1] for [PATIENT_1]; not [LITERAL_1]"
BREAK = "this request is refused by the engine"
RULE = """
[[rule]]
id = "clinic"
sensitive = { default = "tokenize", patterns = { patient = 'P-[0-9]{5}' } }
"""
REFERENCE = "shown-reference-of-the-first-item"  # it may be seen, which shows that the search sees something


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Everything is sealed, larger bodies go to the store, spools to files, and logs say all that they can say."""
    more = {"object_kb": 2, "spool_memory_mb": 0.000001, "log_level": "debug", "trace_item_share": 1.0}
    return settings.model_copy(update={"encrypt": "on", **more})


@pytest.fixture
def log(settings: Settings) -> Iterator[Path]:
    """The log file of this process."""
    before, place = structlog.get_config(), telemetry.log_file(settings.data_dir, "all")
    place.parent.mkdir(parents=True)
    with place.open("a") as stream:
        telemetry.configure(settings, "all", stream)
        structlog.configure(cache_logger_on_first_use=False)
        yield place
        structlog.configure(**before)


@pytest.fixture
def collector() -> Iterator[otlp_receiver.Receiver]:
    with otlp_receiver.receiver() as found:
        recorder.use(Exporter(found.url, "test/0"))
        yield found
        recorder.close()


@pytest.fixture
async def reader(client: httpx.AsyncClient, world: World) -> AsyncIterator[httpx.AsyncClient]:
    """A client whose key may restore."""
    async with world.database.transaction() as conn:
        await policies.apply(conn, RULE, catalogue.load(world.settings.models_file), "test")
        key = await tenants.create_key(conn, secret_key(world.settings), "acme", "reader", scope=KeyScope(restore=True))
    await in_process.application().state.parts.admission.policy.renew()
    transport = httpx.ASGITransport(app=in_process.application(), raise_app_exceptions=False)
    headers = {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://api", headers=headers) as reader:
        yield reader


def file_line(number: int, text: str) -> bytes:
    body = {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 5}
    whole = {"custom_id": f"r{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}
    return orjson.dumps(whole) + b"\n"


async def say_everything(client: httpx.AsyncClient, reader: httpx.AsyncClient) -> tuple[str, str]:
    """Prompts on every surface. Returns the ids of a native batch and of a batch of a file."""
    items = [{"prompt": TEXT, "max_tokens": 5, "external_reference": REFERENCE}, {"prompt": LONG, "max_tokens": 5}]
    native = await client.post(SUBMIT, json={"requests": [*items, {"prompt": f"{BREAK} {TEXT}", "max_tokens": 5}]})
    assert native.status_code == 200, native.text
    lines = b"".join(file_line(n, text) for n, text in enumerate((TEXT, LONG, f"{BREAK} {TEXT}")))
    sent = await client.post("/v1/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", lines)})
    asked = {"input_file_id": sent.json()["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    made = await client.post("/v1/batches", json=asked)
    assert made.status_code == 200, made.text
    kind = {"content-type": "application/x-ndjson"}
    assert (await client.post(SUBMIT, content=orjson.dumps(items[1]) + b"\n", headers=kind)).status_code == 200
    background = await client.post("/v1/responses", json={"model": MODEL, "input": TEXT, "background": True})
    assert background.status_code == 200, background.text
    chat = {"model": MODEL, "messages": [{"role": "user", "content": TEXT}]}
    for body in (chat, chat | {"stream": True}):
        answered = await client.post("/v1/chat/completions", json=body, headers=SPOKEN)
        assert answered.status_code == 200, answered.text
    whole = await reader.post("/v1/chat/completions", json=chat)
    assert whole.json()["choices"][0]["message"]["content"] == f"echo: {TEXT}"
    broken = await client.post("/v1/chat/completions", json=chat | {"messages": [{"role": "user", "content": BREAK}]})
    assert broken.status_code == 400
    return native.json()["result"]["request_id"], made.json()["id"]


SPOKEN = {  # headers that are read, passed on, or ignored
    "user-agent": f"agent of {MAIL}",
    "x-planted": KEY,
    "baggage": f"who={MAIL}",
    "tracestate": f"a={KEY}",
    "traceparent": f"00-{KEY}",
    "cookie": f"who={MAIL}",
    "referer": f"http://host.example/{MAIL}?key={KEY}",
    "x-forwarded-for": MAIL,
    "x-correlation-id": MAIL,
}


async def say_what_is_refused(client: httpx.AsyncClient) -> None:
    """Secrets in every place where they are no part of a prompt. Each request is refused or answered, and forgotten."""
    hello: dict[str, Any] = {"requests": [{"prompt": "hello", "max_tokens": 5}]}
    chat = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}
    named = {"file": (f"{MAIL}.jsonl", file_line(0, "hello"))}
    for headers in (
        {"x-session-id": MAIL},
        {"idempotency-key": KEY},
        {"cf-aig-metadata": json.dumps({"who": MAIL})},
        {"x-slackwater-workflow": KEY},
    ):
        assert (await client.post(SUBMIT, json=hello, headers=headers)).status_code == 400, headers
    for answer in (
        await client.post(f"{SUBMIT}&tags={MAIL}", json=hello),
        await client.post(SUBMIT, json={"requests": [{"prompt": "hello", "external_reference": MAIL}]}),
        await client.post("/v1/files", data={"purpose": "batch"}, files=named),
        await client.post("/v1/files", data={"purpose": KEY}, files={"file": ("a.jsonl", b"{}\n")}),
        await client.post("/v1/chat/completions", json=chat | {"metadata": {"workflow": MAIL}}),
        await client.post("/v1/chat/completions", json=chat | {"messages": [{"role": f"{MAIL}\n", "content": KEY}]}),
        await client.post("/v1/chat/completions", content=f'{{"model": "{MAIL}", "messages": "{KEY}'),
        await client.post("/v1/chat/completions", json=chat, headers={"authorization": f"Bearer {KEY}"}),
        await client.get(f"/v1/files/{MAIL}/content"),
        await client.get(f"/v1/{KEY}/{MAIL}?who={CARD}"),
        await client.post(RUN, json={"request_id": MAIL}),
    ):
        assert 400 <= answer.status_code < 500, answer.text
    await client.get(f"/v1/files?after={MAIL}", headers=SPOKEN)


async def break_down(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors that nobody expects, whose texts have what must not be seen."""
    for error in (
        RuntimeError(f"cannot read {MAIL} {KEY} {CARD}"),
        ValueError(f"not a number: {TEXT!r}"),
        KeyError(SENTENCE),
    ):

        def breaks(*_: object, of: Exception = error, **__: object) -> None:
            raise of

        monkeypatch.setattr(files_route.files, "listing", breaks)
        failed = await client.get(f"/v1/files?after={MAIL}")
        assert failed.status_code == 500
        assert not [secret for secret in (*SECRETS, SENTENCE) if secret in failed.text]
    monkeypatch.undo()


async def deliver(world: World, settings: Settings) -> None:
    async with Egress.of(settings) as egress:
        sender = Sender(world.database, egress, secret_key(settings), settings)
        await send_due(sender, world.database)
        await sender.drain()


async def test_what_was_planted_is_nowhere_and_restored_exactly_for_a_permitted_reader(
    log: Path,
    collector: otlp_receiver.Receiver,
    client: httpx.AsyncClient,
    reader: httpx.AsyncClient,
    world: World,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refusal = f"cannot read {SENTENCE} of {MAIL}"
    world.engine.script({"match": BREAK, "mode": "status", "status": 400, "message": refusal, "times": 99})
    with receiving() as receiver:
        async with world.database.transaction() as conn:
            await subscribe(conn, settings, receiver.url, tenant_id=world.tenant, kinds=list(KINDS))
        async with world.worker() as running:
            await world.until("count(*) > 0 from engine where state = 'ready'")
            native, of_file = await say_everything(client, reader)
            await say_what_is_refused(client)
            await break_down(client, monkeypatch)
            await world.until("count(*) = 4 from batch where finalized_at is not null")
            worker_metrics = running.process.page().decode()
        await deliver(world, settings)
        sent = [f"{each.headers} {each.body.decode()}" for each in receiver.requests]
    metrics = worker_metrics + (await client.get("/metrics")).text
    recorder.close()
    spans = [repr(span) for span in collector.spans]

    for planted in (*SECRETS, SENTENCE):
        assert await on_disk(world.database, settings.data_dir, text=planted) == [], planted
        assert not [each for each in (*sent, *spans, metrics) if planted in each], planted

    assert await on_disk(world.database, text=REFERENCE), "the search sees what is in the clear"
    written = log.read_text()
    assert written.count("request.failed") == 3, "the errors are logged"
    assert "[EMAIL]" in written
    assert {
        kind for kind in ("batch.queued", "item.succeeded", "item.failed") if any(kind in each for each in sent)
    } == {
        "batch.queued",
        "item.succeeded",
        "item.failed",
    }
    assert {span.name.split()[0] for span in collector.spans} >= {"chat"}
    assert "slackwater_sensitive_values_total" in metrics

    url = f"{BATCHES}/{native}/results"
    hidden, shown = [
        [orjson.loads(line) for line in (await each.get(url)).text.splitlines()] for each in (client, reader)
    ]
    assert hidden[0]["result"]["response"] == f"echo: {HIDDEN}"
    assert shown[0]["result"]["response"] == f"echo: {TEXT}"
    assert shown[1]["result"]["response"] == f"echo: {LONG}"
    batch = (await client.get(f"/v1/batches/{of_file}")).json()
    output = (await reader.get(f"/v1/files/{batch['output_file_id']}/content")).text.splitlines()
    assert json.loads(output[0])["response"]["body"]["choices"][0]["message"]["content"] == f"echo: {TEXT}"
    errors = (await reader.get(f"/v1/files/{batch['error_file_id']}/content")).text
    assert refusal in errors, "an engine's own words are sealed, not redacted"
