"""Claims about answers without a limit, by route: the limit that the engine gets, and the one that the queue stores."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.db.pool import Database
from testing.fakes.engine import FakeEngine
from tests.api.support import RUN, SUBMIT
from tests.gateway.support import Registry

MODEL = "smollm2-135m-instruct"
MESSAGES = [{"role": "user", "content": "hello"}]
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
BODIES: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": MESSAGES},
    "completions": {"prompt": "hello"},
    "responses": {"input": "hello"},
}


@pytest.fixture
async def engine(database: Database) -> AsyncIterator[FakeEngine]:
    async with FakeEngine() as engine:
        await Registry(database).ready(engine)
        yield engine


async def rules(database: Database) -> list[tuple[str, bool]]:
    """Of the batches in the queue: their kind, and whether their answers are open-ended."""
    async with database.relaxed() as conn:
        rows = await (await conn.execute("select kind, open_ended from batch order by batch_id")).fetchall()
    return [(kind, open_ended) for kind, open_ended in rows]


@pytest.mark.parametrize("base", ["/v1", "/client/v4/accounts/acme/ai/v1"])
@pytest.mark.parametrize("route", list(BODIES))
async def test_openais_routes_let_an_answer_take_what_is_left_of_the_context(
    client: httpx.AsyncClient, engine: FakeEngine, base: str, route: str
) -> None:
    body = {"model": MODEL, "min_tokens": 2, "ignore_eos": True, **BODIES[route]}
    answer = await client.post(f"{base}/{route}", json=body)
    assert answer.status_code == 200, answer.text
    [sent] = engine.bodies
    said = {name: sent[name] for name in LIMITS if name in sent}
    assert said == ({"max_tokens": 8192} if route == "completions" else {})  # which vLLM cuts to what is left
    assert (sent["min_tokens"], sent["ignore_eos"]) == (2, True)


async def test_workers_ais_routes_keep_its_256(client: httpx.AsyncClient, engine: FakeEngine) -> None:
    for item in ({"messages": MESSAGES}, {"prompt": "hello"}, {"prompt": "hello", "raw": True}):
        assert (await client.post(RUN, json=item)).status_code == 200
        assert engine.bodies[-1]["max_tokens"] == 256
    refused = await client.post(RUN, json={"prompt": "hello", "min_tokens": 300})
    assert refused.status_code == 400
    assert "min_tokens: must not be above the limit of the answer, which is 256" in refused.text


async def test_the_queue_notes_which_rule_a_batch_came_under(
    client: httpx.AsyncClient, database: Database, engine: FakeEngine
) -> None:
    assert (await client.post(SUBMIT, json={"requests": [{"prompt": "hello"}]})).status_code == 200
    lines = b'{"prompt": "hello"}\n'
    headers = {"content-type": "application/x-ndjson"}
    assert (await client.post(SUBMIT, content=lines, headers=headers)).status_code == 200
    url = "/v1/chat/completions"
    requests = [{"custom_id": "1", "body": {"model": MODEL, "messages": MESSAGES}}]
    wish = {"requests": requests, "endpoint": url, "completion_window": "24h"}
    made = await client.post("/v1/batches", json=wish)
    assert made.status_code == 200, made.text
    line = json.dumps(requests[0] | {"method": "POST", "url": url})
    files = {"file": ("f.jsonl", line.encode()), "purpose": (None, "batch")}
    file_id = (await client.post("/v1/files", files=files)).json()["id"]
    wish = {"input_file_id": file_id, "endpoint": url, "completion_window": "24h"}
    assert (await client.post("/v1/batches", json=wish)).json()["status"] == "in_progress"
    assert (await client.post("/v1/responses", json={"model": MODEL, "input": "x", "background": True})).is_success
    assert await rules(database) == [
        ("batch", False),
        ("batch", False),
        ("batch", True),
        ("batch", True),
        ("response", True),
    ]


async def test_an_estimate_takes_the_usual_length_and_promises_the_most(client: httpx.AsyncClient) -> None:
    body = {"model": MODEL, "messages": MESSAGES}
    lines = [body, body | {"max_tokens": 10}]
    text = "\n".join(
        json.dumps({"custom_id": f"{n}", "method": "POST", "url": "/v1/chat/completions", "body": each})
        for n, each in enumerate(lines)
    )
    files = {"file": ("f.jsonl", text.encode()), "purpose": (None, "batch")}
    file_id = (await client.post("/v1/files", files=files)).json()["id"]
    estimate = (await client.get(f"/v1/files/{file_id}/estimate")).json()
    assert estimate["max_output_tokens"] == 8192 + 10


async def test_an_estimate_promises_the_cost_of_a_token_for_each_byte_and_the_chat_template(
    client: httpx.AsyncClient,
) -> None:
    line = {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions"}
    text = json.dumps(line | {"body": {"model": MODEL, "messages": MESSAGES, "max_tokens": 10}})
    files = {"file": ("f.jsonl", text.encode()), "purpose": (None, "batch")}
    file_id = (await client.post("/v1/files", files=files)).json()["id"]
    estimate = (await client.get(f"/v1/files/{file_id}/estimate")).json()
    [model] = estimate["models"]
    assert model["max_input_tokens"] == estimate["max_input_tokens"] == len(text) + 512
    assert model["max_cost"] == pytest.approx((len(text) + 512) * 0.02e-6 + 10 * 0.05e-6)
