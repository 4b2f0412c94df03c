"""The claim of test_nowhere.py about conversations, pipelines and answers from outside: what callers, models and programs have
said there is nowhere on disk, in no webhook and in no metric, no engine has got it, and a permitted reader gets it back exactly.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import orjson
import pytest

from app.admission.control import AdmissionControl
from app.crypto import secret_key
from app.db.pool import Database
from app.events import KINDS
from app.settings import Settings
from app.webhooks.egress import Egress
from testing.waiting import eventually
from tests.api.support import MODEL
from tests.api.test_conversations import items, new, say
from tests.api.test_redaction import Apply, apply, reader
from tests.gpu.world import World
from tests.sealing.support import on_disk
from tests.webhooks.support import receiving, send_due, subscribe
from workers.notifier.delivery import Sender
from workers.steward.feeder import PipelineKeeper
from workers.steward.turns import Turns

__all__ = ["apply", "reader"]
MAIL, CARD, PATIENT = "flowing.person@hidden.example", "5500 0000 0000 0004", "P-88211"
OUTSIDE_MAIL = "said.outside@hidden.example"
SENTENCE = "Wd9-nowhere-sentence-of-a-flow-that-every-answer-repeats"
TEXT = f"{SENTENCE}: {MAIL}, {CARD} for {PATIENT}; not [EMAIL_1]"
HIDDEN = f"{SENTENCE}: [EMAIL_1], [CARD_1] for [PATIENT_1]; not [LITERAL_1]"
SAID = f"{SENTENCE} outside: {OUTSIDE_MAIL}"
SECRETS = (MAIL, CARD, PATIENT, OUTSIDE_MAIL)
RULE = """
[[rule]]
id = "clinic"
sensitive = { default = "tokenize", patterns = { patient = 'P-[0-9]{5}' } }
"""


@pytest.fixture(params=["on", pytest.param("off", marks=pytest.mark.slow)])
def settings(settings: Settings, request: pytest.FixtureRequest) -> Settings:
    """With encryption, and without it, where the values that the rule finds have to be nowhere, too."""
    more = {"object_kb": 2, "spool_memory_mb": 0.000001, "log_level": "debug"}
    return settings.model_copy(update={"encrypt": request.param, **more})


@asynccontextmanager
async def steward(database: Database, settings: Settings) -> AsyncIterator[None]:
    """What a steward does beside its rounds: pipelines are handed on, and turns begin and end."""
    control = AdmissionControl.of(database, settings)
    pipelines, turns = PipelineKeeper(database, settings, control), Turns(database, settings, control)

    async def look() -> None:
        while True:
            turns._swept = float("-inf")
            await turns.look()
            await asyncio.sleep(0.1)

    tasks = [asyncio.create_task(work) for work in (pipelines.keep(), look())]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def flow() -> dict[str, Any]:
    """A pipeline that asks a model, then a program outside, then a model about its answer, and then picks what is no number."""
    told = [{"role": "user", "content": "{{item.text}}"}]
    return {
        "name": "shown-name",
        "input": {"items": [{"custom_id": "shown-reference", "text": TEXT}]},
        "stages": [
            {"id": "ask", "model": MODEL, "body": {"messages": told}},
            {"id": "run", "external": {"timeout": "1h"}, "body": {"code": "{{text}}", "of": "{{item.text}}"}},
            {
                "id": "after",
                "model": MODEL,
                "body": {"messages": [{"role": "user", "content": "{{json.said}} {{item.text}}"}]},
            },
            {"id": "chosen", "after": "ask", "pick": {"from": "ask", "index": "text"}},
        ],
    }


async def waiting(client: httpx.AsyncClient, pipeline: str) -> dict[str, Any]:
    path = f"/v1/pipelines/{pipeline}/waiting"
    return dict(
        (await eventually(lambda: client.get(path), until=lambda answer: answer.json()["data"])).json()["data"][0]
    )


async def results(client: httpx.AsyncClient, pipeline: str, stage: str) -> dict[str, Any]:
    path = f"/v1/pipelines/{pipeline}/results?stage={stage}"
    [line] = (await eventually(lambda: client.get(path), until=lambda answer: answer.text)).text.splitlines()
    return dict(orjson.loads(line))


async def refuse(client: httpx.AsyncClient) -> None:
    """What is stored as it is may hold no secret."""
    named, items = flow(), [{"custom_id": PATIENT, "text": "x"}]
    for path, body in (
        ("conversations", {"metadata": {"who": MAIL}}),
        ("pipelines", named | {"name": MAIL}),
        ("pipelines", named | {"input": {"items": items}}),
        (
            "pipelines",
            named | {"stages": [named["stages"][0] | {"body": {"messages": [{"role": "user", "content": CARD}]}}]},
        ),
    ):
        answer = await client.post(f"/v1/{path}", json=body)
        assert answer.status_code == 400, (path, answer.text)


async def test_what_flows_through_conversations_pipelines_and_programs_outside_is_nowhere(
    client: httpx.AsyncClient, reader: httpx.AsyncClient, world: World, settings: Settings, apply: Apply
) -> None:
    await apply(RULE)
    with receiving() as receiver:
        async with world.database.transaction() as conn:
            await subscribe(conn, settings, receiver.url, tenant_id=world.tenant, kinds=list(KINDS))
        async with world.worker(), steward(world.database, settings):
            await world.until("count(*) > 0 from engine where state = 'ready'")
            await refuse(client)
            talk = await new(client, items=[{"role": "user", "content": TEXT}], metadata={"about": "shown-talk"})
            await say(client, TEXT, conversation=talk)
            await say(client, TEXT, conversation=talk, background=True)
            await say(client, [{"role": "user", "content": TEXT}], metadata={"about": "shown-talk"})
            made = (await client.post("/v1/pipelines", json=flow())).json()
            asked = await waiting(client, made["id"])
            assert asked["body"] == {"code": f"echo: {HIDDEN}", "of": HIDDEN}
            path = f"/v1/pipelines/{made['id']}/items/run/0/answer"
            assert (await client.post(path, json={"answer": {"said": SAID}})).status_code == 200
            last = await results(reader, made["id"], "after")
            chosen = await results(reader, made["id"], "chosen")
            await world.until("count(*) = 0 from turn where state in ('queued', 'running')")
            metrics = (await client.get("/metrics")).text
        async with Egress.of(settings) as egress:
            sender = Sender(world.database, egress, secret_key(settings), settings)
            await send_due(sender, world.database)
            await sender.drain()
        sent = [f"{each.headers} {each.body.decode()}" for each in receiver.requests]

    for planted in (*SECRETS, *([SENTENCE] if settings.encrypt == "on" else [])):
        assert await on_disk(world.database, settings.data_dir, text=planted) == [], planted
        assert not [each for each in (*sent, metrics) if planted in each], planted
    assert not [secret for secret in SECRETS if secret in str(world.engine.bodies)], "no engine has got them"
    assert await on_disk(world.database, text="shown-reference"), "the search sees what is in the clear"
    assert [each for each in sent if "item.waiting" in each]

    assert last["answer"]["choices"][0]["message"]["content"] == f"echo: {SAID} {TEXT}"
    assert "is no number" in chosen["error"]["message"]
    said = await items(reader, talk)
    again = TEXT.replace("[EMAIL_1]", MAIL)  # a placeholder of the conversation, which whoever names it has read in it
    assert said == [TEXT, again, f"echo: {again}", again, f"echo: {again}"]
    assert not [secret for secret in SECRETS if secret in str(await items(client, talk))]
