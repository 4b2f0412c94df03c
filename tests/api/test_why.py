"""Claims about the reason for which a batch waits, in a poll and in its view."""

import uuid
from datetime import datetime
from typing import Any

import httpx

from app import clock
from app.db.pool import Connection, Database
from app.engines import service as engines
from app.headroom import decision_log
from app.headroom.decision_log import AllowanceChange
from tests.api.support import BATCHES, RUN, run_all, submit
from tests.queue import support


async def polled(client: httpx.AsyncClient, request_id: str) -> dict[str, object]:
    result = (await client.post(RUN, json={"request_id": request_id})).json()["result"]
    assert isinstance(result, dict)
    return result


async def looked(client: httpx.AsyncClient, request_id: str) -> dict[str, object]:
    result = (await client.get(f"{BATCHES}/{request_id}")).json()["result"]
    assert isinstance(result, dict)
    return result


async def test_a_batch_shows_why_it_waits_and_since_when_until_its_end(
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


async def taken_engine(conn: Connection, database: Database) -> tuple[int, int]:
    """The ids of an engine of the model, and of its worker."""
    pool = await engines.ensure_pool(conn, "smollm2-135m-instruct")
    worker = await support.make_worker(database, pool)
    engine = await engines.take_engine(
        conn, pool_id=pool, worker_id=worker, name="engine-0", url="http://e", mode="attached"
    )
    assert engine is not None
    return engine, worker


async def test_a_closed_gate_is_shown_with_its_numbers(client: httpx.AsyncClient, database: Database) -> None:
    request_id = await submit(client)
    async with database.durable() as conn:
        engine, worker = await taken_engine(conn, database)
        said = {"signal": "load", "value": 62.0, "threshold": 62.0}
        await support.report_engine(conn, engine, worker, ready=True, reason="closed_slots", allowance=0, **said)  # type: ignore[arg-type]
    waiting = (await looked(client, request_id))["waiting"]
    assert isinstance(waiting, dict)
    assert waiting["code"] == "closed_slots"
    assert waiting["message"].startswith("engine-0 is full: 62 requests in it, 62 usable slots, for ")


async def test_a_poll_shows_the_same_reason_as_the_batch(client: httpx.AsyncClient) -> None:
    request_id = await submit(client)
    poll, look = await polled(client, request_id), await looked(client, request_id)
    assert poll["status"] == "queued"
    assert poll["waiting"] == look["waiting"]


async def estimates(client: httpx.AsyncClient, request_id: str) -> list[tuple[object, object, object, object]]:
    """(eta_seconds, eta, no_eta, confidence) of a batch: in a poll, alone, and in the list."""
    views = await polled(client, request_id), await looked(client, request_id)
    found: list[Any] = [each["estimate"] for each in (*views, (await client.get(BATCHES)).json()["result"][0])]
    return [(each["eta_seconds"], each["eta"], each["no_eta"], each["confidence"]) for each in found]


async def told(client: httpx.AsyncClient, request_id: str) -> str:
    """What `why` says of the ETA."""
    chain = (await client.get(f"{BATCHES}/{request_id}/why")).json()["result"]["chain"]
    [message] = [str(link["message"]) for link in chain if link["code"].startswith("eta")]
    return message


async def test_an_eta_is_null_with_its_reason_or_known_and_without_one(
    client: httpx.AsyncClient, database: Database
) -> None:
    request_id = await submit(client)
    reason = "no engine serves smollm2-135m-instruct now"
    assert await estimates(client, request_id) == [(None, None, reason, "none")] * 3
    assert await told(client, request_id) == f"no estimate: {reason}"
    async with database.durable() as conn:
        engine, worker = await taken_engine(conn, database)
        await support.report_engine(conn, engine, worker, ready=True, reason="open", allowance=8)
        reason = "the pace of smollm2-135m-instruct was not measured in the last hour"
        assert await estimates(client, request_id) == [(None, None, reason, "none")] * 3
        pace = "insert into pace (pool_id, served_tokens, tokens_per_second) select pool_id, 1, 200 from pool"
        await conn.execute(pace)
    for seconds, at, no_eta, confidence in await estimates(client, request_id):
        assert isinstance(seconds, float)
        assert 3 <= seconds < 60
        assert datetime.fromisoformat(str(at)) > clock.now()
        assert (no_eta, confidence) == (None, "low")
    assert (await told(client, request_id)).startswith("done in about ")


async def test_a_paused_batch_waits_for_its_owner(client: httpx.AsyncClient) -> None:
    request_id = await submit(client)
    paused = (await client.post(f"{BATCHES}/{request_id}/pause")).json()["result"]
    assert paused["waiting"] == {
        "code": "paused",
        "message": "the batch is paused; resume it to go on",
        "since": None,
    }


async def test_the_whole_chain_is_shown_with_the_decisions_of_its_engines_and_no_address(
    client: httpx.AsyncClient, database: Database
) -> None:
    request_id = await submit(client)
    async with database.durable() as conn:
        pool = await engines.ensure_pool(conn, "smollm2-135m-instruct")
        worker = await support.make_worker(database, pool)
        for name in ("engine-0", "engine-1"):
            engine = await engines.take_engine(
                conn, pool_id=pool, worker_id=worker, name=name, url="http://secret.example", mode="attached"
            )
            assert engine is not None
            changes = [AllowanceChange("l1", n, n + 1, "open", "ramp", "load", 1.0, 62.0, n, 0) for n in range(2)]
            await decision_log.record(
                conn, engine, [(clock.monotonic() - 9 + change.in_flight, change) for change in changes]
            )
    answer = await client.get(f"{BATCHES}/{request_id}/why")
    assert "secret.example" not in answer.text
    found = answer.json()["result"]
    look = (await looked(client, request_id))["waiting"]
    assert isinstance(look, dict)
    assert (found["waiting"]["code"], found["waiting"]["since"]) == (look["code"], look["since"])
    assert found["waiting"]["code"] == next(link["code"] for link in found["chain"] if link["blocks"])
    assert [decision["allowance"] for decision in found["decisions"]] == [2, 2, 1, 1]
    assert found["decisions"][0]["because"] == "1 requests in it, 62 usable slots"
    assert len((await client.get(f"{BATCHES}/{request_id}/why?last=3")).json()["result"]["decisions"]) == 3
    assert (await client.get(f"{BATCHES}/{request_id}/why?last=-1")).status_code == 400
    await run_all(database)
    ended = (await client.get(f"{BATCHES}/{request_id}/why")).json()["result"]
    assert (ended["status"], ended["waiting"], ended["chain"], ended["decisions"]) == ("completed", None, [], [])


async def test_items_in_an_engine_without_a_limit_are_counted(client: httpx.AsyncClient, database: Database) -> None:
    model, messages = "smollm2-135m-instruct", [{"role": "user", "content": '"max_tokens" is a word'}]
    limits: tuple[dict[str, int], ...] = ({}, {"max_tokens": 5}, {"max_completion_tokens": 5}, {})
    requests = [
        {"custom_id": f"{n}", "body": {"model": model, "messages": messages} | limit} for n, limit in enumerate(limits)
    ]
    wish = {"endpoint": "/v1/chat/completions", "completion_window": "24h", "requests": requests, "input_file_id": ""}
    made = (await client.post("/v1/batches", json=wish)).json()

    async def hint() -> list[str]:
        chain = (await client.get(f"{BATCHES}/{made['id']}/why")).json()["result"]["chain"]
        return [link["message"] for link in chain if link["code"] == "no_limit"]

    assert await hint() == []
    async with database.durable() as conn:
        pool = await engines.ensure_pool(conn, model)
        assert await support.claim(conn, pool, await support.make_worker(database, pool))
    assert await hint() == ["2 items have no max_tokens and may run to the model's limit of 8,192 tokens"]
    await run_all(database)


async def test_a_decision_names_the_missing_telemetry(client: httpx.AsyncClient, database: Database) -> None:
    request_id = await submit(client)
    missing = "/metrics has no vllm:num_requests_waiting"
    async with database.durable() as conn:
        engine, _ = await taken_engine(conn, database)
        change = AllowanceChange("l1", 4, 0, "open", "closed_unknown", "controller", 0.0, 1.0, 0, 0, missing)
        await decision_log.record(conn, engine, [(clock.monotonic(), change)])
    [decision] = (await client.get(f"{BATCHES}/{request_id}/why")).json()["result"]["decisions"]
    assert missing in decision["because"]


async def test_a_refused_or_unknown_batch_waits_for_nothing(client: httpx.AsyncClient) -> None:
    wish = {"endpoint": "/v1/chat/completions", "completion_window": "24h", "requests": [{"custom_id": "a"}]}
    refused = (await client.post("/v1/batches", json=wish)).json()
    assert refused["status"] == "failed"
    found = (await client.get(f"{BATCHES}/{refused['id']}/why")).json()["result"]
    assert (found["status"], found["waiting"], found["chain"], found["decisions"]) == ("refused", None, [], [])
    unknown = await client.get(f"{BATCHES}/{uuid.uuid4()}/why")
    assert unknown.status_code == 404
