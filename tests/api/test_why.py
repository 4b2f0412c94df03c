"""What a poll and a look at a batch say of what it waits for."""

from datetime import datetime

import httpx

from app.db.pool import Database
from app.engines import service as engines
from tests.api.conftest import RUN
from tests.api.test_lifecycle import BATCHES, submit
from tests.api.test_submit_and_poll import run_all
from tests.queue import support


async def polled(client: httpx.AsyncClient, request_id: str) -> dict[str, object]:
    result = (await client.post(RUN, json={"request_id": request_id})).json()["result"]
    assert isinstance(result, dict)
    return result


async def looked(client: httpx.AsyncClient, request_id: str) -> dict[str, object]:
    result = (await client.get(f"{BATCHES}/{request_id}")).json()["result"]
    assert isinstance(result, dict)
    return result


async def test_a_look_says_what_the_batch_waits_for_and_since_when_until_its_end(
    client: httpx.AsyncClient, database: Database
) -> None:
    request_id = await submit(client)
    waiting = (await looked(client, request_id))["waiting"]
    assert isinstance(waiting, dict)
    assert waiting["code"] == "no_engine"
    assert "no engine serves smollm2-135m-instruct" in waiting["message"]
    assert datetime.fromisoformat(waiting["since"]).tzinfo is not None
    await run_all(database)
    assert "waiting" not in await looked(client, request_id)


async def test_a_closed_gate_is_told_with_its_numbers(client: httpx.AsyncClient, database: Database) -> None:
    request_id = await submit(client)
    async with database.durable() as conn:
        pool = await engines.ensure_pool(conn, "smollm2-135m-instruct")
        worker = await support.make_worker(database, pool)
        engine = await engines.take_engine(
            conn, pool_id=pool, worker_id=worker, name="engine-0", url="http://e", mode="attached"
        )
        assert engine is not None
        said = {"signal": "load", "value": 62.0, "threshold": 62.0}
        await engines.report_engine(conn, engine, worker, ready=True, reason="closed_slots", allowance=0, **said)  # type: ignore[arg-type]
    waiting = (await looked(client, request_id))["waiting"]
    assert isinstance(waiting, dict)
    assert waiting["code"] == "closed_slots"
    assert waiting["message"].startswith("engine-0 is full: 62 of 62 usable slots taken, for ")


async def test_a_poll_says_the_same_as_a_look(client: httpx.AsyncClient) -> None:
    request_id = await submit(client)
    poll, look = await polled(client, request_id), await looked(client, request_id)
    assert poll["status"] == "queued"
    assert poll["waiting"] == look["waiting"]


async def test_a_paused_batch_waits_for_its_owner(client: httpx.AsyncClient) -> None:
    request_id = await submit(client)
    paused = (await client.post(f"{BATCHES}/{request_id}/pause")).json()["result"]
    assert paused["waiting"] == {
        "code": "paused",
        "message": "the batch is paused; resume it to go on",
        "since": None,
    }
