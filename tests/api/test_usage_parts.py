"""Claims about the parts of a batch's usage: each that the engines counted is the sum over the items."""

from typing import Any

import httpx
import orjson
import pytest

from app.batches import lifecycle
from app.db.pool import Database
from app.engines.outcome import Done, from_response
from app.queue import service
from app.queue.types import Result
from tests.api.support import line, uploaded
from tests.api.test_openai_files import wish
from tests.queue import support
from workers.gpu.open_chunk import _result

CHAT = {
    "prompt_tokens": 10,
    "completion_tokens": 7,
    "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 2, "image_tokens": None},
    "completion_tokens_details": {
        "reasoning_tokens": 3,
        "accepted_prediction_tokens": 1,
        "rejected_prediction_tokens": 2,
        "audio_tokens": 0,
        "Odd Name": 5,
        "later": "many",
    },
}
RESPONSES = {
    "input_tokens": 10,
    "output_tokens": 7,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens_details": {"reasoning_tokens": 5},
}


def result(seq: int, usage: dict[str, Any]) -> Result:
    choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
    done = from_response(200, orjson.dumps({"choices": [choice], "usage": usage}))
    assert isinstance(done, Done)
    return _result(seq, True, 1, done.usage, done.body, 0)


def used(of: int, cached: int, audio: int, output: int, reasoning: int, accepted: int, rejected: int) -> dict[str, Any]:
    return {
        "input_tokens": of,
        "input_tokens_details": {"cached_tokens": cached, "audio_tokens": audio},
        "output_tokens": output,
        "output_tokens_details": {
            "reasoning_tokens": reasoning,
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": rejected,
        },
        "total_tokens": of + output,
    }


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        ("goes on", used(40, 12, 4, 28, 11, 2, 4)),
        ("another goes on", used(40, 12, 4, 28, 11, 2, 4)),
        ("cancelled", used(20, 8, 2, 14, 8, 1, 2)),
    ],
)
async def test_every_part_of_the_usage_is_the_sum_over_the_items(
    client: httpx.AsyncClient, database: Database, then: str, expected: dict[str, Any]
) -> None:
    file = await uploaded(client, b"".join(map(line, range(4))))
    batch = (await client.post("/v1/batches", json=wish(file))).json()["id"]
    async with database.durable() as conn:
        [(pool,)] = await (await conn.execute("select pool_id from pool")).fetchall()
        lease = await support.claim(conn, pool, await support.make_worker(database, pool))
        assert lease is not None
        assert await service.flush(conn, lease, [result(0, CHAT), result(1, RESPONSES)])
        if then != "goes on":  # its worker is lost
            await conn.execute("update chunk set state = 'ready', worker_id = null, token = token + 1")
            await conn.execute("update sched set ready = ready + 1")
        if then == "another goes on":
            lease = await support.claim(conn, pool, await support.make_worker(database, pool))
            assert lease is not None
        if then == "cancelled":
            assert (await client.post(f"/v1/batches/{batch}/cancel")).status_code == 200
        else:
            rest = [result(2, CHAT), result(3, {"prompt_tokens": 10, "completion_tokens": 7})]
            assert await service.flush(conn, lease, rest)
            await service.finish(conn, lease)
    for _ in range(2):  # before and after its deltas are added to it
        shown = (await client.get(f"/v1/batches/{batch}")).json()["usage"]
        assert {name: shown[name] for name in expected} == expected
        path = f"/client/v4/accounts/acme/ai/batches/{batch.removeprefix('batch_')}"
        own = (await client.get(path)).json()["result"]["usage"]
        assert own["prompt_tokens_details"] == expected["input_tokens_details"]
        assert own["completion_tokens_details"] == expected["output_tokens_details"]
        async with database.transaction() as conn:
            await lifecycle.settle(conn)
