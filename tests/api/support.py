"""Addresses, requests and helpers that the tests of the API share."""

import json
from typing import Any

import httpx
import orjson

from app.batches import lifecycle as batches
from app.db.pool import Database
from app.engines.service import ensure_pool
from app.queue import service
from app.queue.bodies import StoredBodies
from app.queue.types import Result
from app.sealing.keyring import Keyring
from tests.queue import support

MODEL = "smollm2-135m-instruct"
RUN = f"/client/v4/accounts/acme/ai/run/{MODEL}"
SUBMIT = f"{RUN}?queueRequest=true"
BATCHES = "/client/v4/accounts/acme/ai/batches"
SUBSCRIPTIONS = "/client/v4/accounts/acme/event_subscriptions/subscriptions"
TWO = [
    {"prompt": "tell me a joke", "temperature": 0.5, "max_tokens": 100, "external_reference": "a"},
    {"messages": [{"role": "user", "content": "hello"}], "seed": 7, "stop": ["END"], "top_p": 0.9},
]
COMPLETION = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Paris"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8},
}
NEW_SUBSCRIPTION: dict[str, Any] = {
    "name": "mine",
    "enabled": True,
    "source": {"type": "workersAi.model", "model_name": "@cf/moonshotai/kimi-k2.6"},
    "destination": {"type": "webhook", "url": "http://127.0.0.1:9/hook"},
    "events": ["batch.queued", "batch.succeeded"],
}


async def run_all(
    database: Database,
    fail: set[int] = frozenset(),  # type: ignore[assignment]
    code: int = 5006,
    message: str = "no",
    answer: str = "Paris",
    keyring: Keyring | None = None,
    whole: str = json.dumps(COMPLETION),
) -> None:
    """Play the GPU worker and the steward until nothing is left. The items `fail` fail with this code and message, the others
    have the answer `whole`.

    `keyring`: seals the answers of sealed batches.
    """
    errors = dict.fromkeys(fail, "invalid")
    async with database.durable() as conn:
        pool = await ensure_pool(conn, MODEL)
        worker = await support.make_worker(database, pool)
        while lease := await support.claim(conn, pool, worker):
            good = whole.replace("Paris", answer).encode()
            bad = json.dumps({"code": code, "message": message}).encode()
            items = await service.load(conn, lease)
            outcome = [
                Result(i.seq, i.seq not in fail, 1, 3, 1, 5, bad if i.seq in fail else good, error=errors.get(i.seq))
                for i in items
            ]
            if keyring is not None:
                bodies = StoredBodies(conn, keyring, lease.batch_id)
                outcome = [r._replace(body=await bodies.sealed_result(r.seq, lease.run, r.body)) for r in outcome]
            assert await service.flush(conn, lease, outcome)
            await service.finish(conn, lease)
    async with database.transaction() as conn:
        await batches.settle(conn)


async def submit(client: httpx.AsyncClient, query: str = "") -> str:
    """Queue a batch of two items. Returns its request_id."""
    answer = await client.post(SUBMIT + query, json={"requests": TWO})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["result"]["request_id"])


def frames(text: str) -> list[Any]:
    """The data of an event stream; `[DONE]` stays a string."""
    data = [line.removeprefix("data: ") for line in text.split("\n") if line]
    return [each if each == "[DONE]" else json.loads(each) for each in data]


def line(number: int) -> bytes:
    """A line of an input file."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": f"line {number}"}]}
    whole = {"custom_id": f"request-{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}
    return orjson.dumps(whole) + b"\n"


async def uploaded(client: httpx.AsyncClient, content: bytes) -> str:
    """Upload an input file. Returns its id."""
    sent = await client.post("/v1/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", content)})
    assert sent.status_code == 200, sent.text
    return str(sent.json()["id"])
