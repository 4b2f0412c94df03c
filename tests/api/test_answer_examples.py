"""The examples in the OpenAPI document have the fields of the real answers."""

import json
from typing import Any

import httpx

from app.api.openapi_answers import ANSWERS, LINES
from app.db.pool import Database
from app.duties import standing
from testing.fakes.engine import FakeEngine
from testing.waiting import eventually
from tests.api.support import BATCHES, RUN, SUBMIT, run_all
from tests.gateway.support import Registry

MODEL = "smollm2-135m-instruct"
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "What is the capital of France?"}]}
LINE = {"custom_id": "france", "body": CHAT}
FILE_LINE = LINE | {"method": "POST", "url": "/v1/chat/completions"}
BATCH = {"endpoint": "/v1/chat/completions", "completion_window": "24h", "requests": [LINE]}
ITEMS = {"requests": [{"prompt": "What?", "external_reference": "france"}]}


def fields(value: Any) -> Any:
    """The names in a document, without its values; of a list those of its last entry."""
    if isinstance(value, dict):
        return {name: fields(inner) for name, inner in value.items()}
    return [fields(value[-1])] if isinstance(value, list) and value and isinstance(value[-1], dict) else None


async def answers(client: httpx.AsyncClient, database: Database) -> dict[tuple[str, str], Any]:
    """The answer of each of these operations."""
    found: dict[tuple[str, str], Any] = {}
    async with database.relaxed() as conn:
        await standing.enter(conn)
    submitted = (await client.post(SUBMIT, json=ITEMS)).json()
    found["post ai/run/{model}", "submitted"] = found["post ai/run", "submitted"] = submitted
    request_id = submitted["result"]["request_id"]
    found["get ai/batches/{request_id}/why", "waiting"] = (await client.get(f"{BATCHES}/{request_id}/why")).json()
    found["post v1/batches", "created"] = batch = (await client.post("/v1/batches", json=BATCH)).json()
    found["get v1/batches/{batch_id}", "running"] = (await client.get(f"/v1/batches/{batch['id']}")).json()
    listed = (await client.get("/v1/batches", params={"limit": 1})).json()
    found["get v1/batches", "listed"] = listed
    sent = {"file": ("input.jsonl", json.dumps(FILE_LINE))}
    uploaded = await client.post("/v1/files", data={"purpose": "batch"}, files=sent)
    found["post v1/files", "uploaded"] = uploaded.json()
    await run_all(database)
    polled = (await client.post(RUN, json={"request_id": request_id})).json()
    found["post ai/run/{model}", "polled"] = found["post ai/run", "polled"] = polled
    found["get ai/batches/{request_id}", "completed"] = (await client.get(f"{BATCHES}/{request_id}")).json()
    found["get ai/batches", "listed"] = (await client.get(BATCHES)).json()
    found["get ai/batches/{request_id}/results", ""] = (await client.get(f"{BATCHES}/{request_id}/results")).json()
    async with FakeEngine() as engine:
        await Registry(database).ready(engine)
        found["post v1/chat/completions", "answered"] = await answered(client)
        found["get v1/models", "listed"] = await eventually(lambda: models(client))
        found["get /status", "warning"] = status = (await client.get("/status")).json()
        status["engines"][0]["problems"] = []
        status["problems"] = [problem for problem in status["problems"] if "engine" not in problem]
    return found


async def models(client: httpx.AsyncClient) -> Any:
    """The list of models, once there is one; else None."""
    listed = (await client.get("/v1/models")).json()
    return listed if listed["data"] else None


async def answered(client: httpx.AsyncClient) -> Any:
    """The answer of the engine, once the gateway has seen it."""
    return (
        await eventually(
            lambda: client.post("/v1/chat/completions", json=CHAT), until=lambda answer: answer.status_code == 200
        )
    ).json()


async def test_every_example_of_an_answer_has_the_fields_of_the_real_one(
    client: httpx.AsyncClient, database: Database
) -> None:
    told = {(name, case): value for name, cases in ANSWERS.items() for case, value in cases.items()}
    told |= {(name, ""): value for name, value in LINES.items()}
    real = await answers(client, database)
    assert set(told) == set(real)
    for name, value in told.items():
        shown, got = fields(value), fields(real[name])
        if name[0].endswith("chat/completions"):  # the engine's, and the fake one knows less or more
            shown["usage"] = got["usage"] = None
        assert shown == got, name


async def test_the_document_holds_the_examples_under_every_prefix(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    without = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            below = path.removeprefix("/client/v4/accounts/{account_id}/").removeprefix("ai/v1/")
            keys = {
                f"{method} {below}",
                f"{method} {path}",
                f"{method} v1/{below}",
                f"{method} {path.removeprefix('/')}",
            }
            if keys & (set(ANSWERS) | set(LINES)):
                content = operation["responses"]["200"]["content"]
                if not any("example" in each or "examples" in each for each in content.values()):
                    without.append((method, path))
    assert without == []
    polled = document["paths"]["/client/v4/accounts/{account_id}/ai/run/{model}"]["post"]["responses"]["200"]
    assert set(polled["content"]["application/json"]["examples"]) == {"submitted", "polled"}
