"""Claims about showing, pausing, resuming, cancelling and retrying a batch over HTTP."""

import uuid

import httpx
import pytest

from app.batches import lifecycle
from app.db.pool import Database
from app.queue import chunk_sweeps, expiry
from tests.api.support import BATCHES, RUN, SUBMIT, TWO, run_all, submit


async def test_a_poll_shows_position_and_estimate_with_the_documented_fields(client: httpx.AsyncClient) -> None:
    request_id = await submit(client)
    result = (await client.post(RUN, json={"request_id": request_id})).json()["result"]
    assert (result["status"], result["request_id"]) == ("queued", request_id)
    where = {"queued": 2, "claimed": 0, "in_engine": 0}
    assert result["progress"] == {"total": 2, "succeeded": 0, "failed": 0} | where
    estimate = result["estimate"]
    assert (estimate["position"], estimate["share"], estimate["confidence"]) == (0, 1.0, "none")
    assert (estimate["eta"], estimate["tokens_per_second"]) == (None, None)
    assert result["waiting"]["code"] == "no_engine"


async def test_a_batch_can_be_looked_at_from_submit_to_end(client: httpx.AsyncClient, database: Database) -> None:
    request_id = await submit(client)
    found = (await client.get(f"{BATCHES}/{request_id}")).json()["result"]
    assert (found["status"], found["run"], found["finished_at"], found["expires_at"]) == ("queued", 1, None, None)
    assert "estimate" in found
    await run_all(database)
    found = (await client.get(f"{BATCHES}/{request_id}")).json()["result"]
    assert (found["status"], found["usage"]["total_tokens"]) == ("completed", 16)
    assert found["finished_at"] > found["created_at"]
    assert "estimate" not in found
    assert "responses" not in found


async def test_pause_resume_cancel_and_retry_answer_where_the_batch_stands(
    client: httpx.AsyncClient, database: Database
) -> None:
    request_id = await submit(client)
    told = {}
    for verb in ("pause", "resume", "cancel", "retry"):
        answer = await client.post(f"{BATCHES}/{request_id}/{verb}")
        assert answer.status_code == 200, answer.text
        told[verb] = answer.json()["result"]
    assert {verb: found["status"] for verb, found in told.items()} == {
        "pause": "paused",
        "resume": "queued",
        "cancel": "cancelled",
        "retry": "queued",
    }
    assert told["pause"]["waiting"]["message"] == "the batch is paused; resume it to go on"
    assert told["cancel"]["progress"] == {"total": 2, "succeeded": 0, "failed": 0, "cancelled": 2}
    assert told["retry"]["run"] == 2
    await run_all(database)
    poll = await client.post(RUN, json={"request_id": request_id})
    assert [item["success"] for item in poll.json()["result"]["responses"]] == [True, True]


async def test_a_poll_of_a_cancelled_batch_keeps_the_answers_and_counts_the_other_items(
    client: httpx.AsyncClient, database: Database
) -> None:
    request_id = await submit(client)
    await run_all(database, fail={1})
    assert (await client.post(f"{BATCHES}/{request_id}/retry")).status_code == 200
    assert (await client.post(f"{BATCHES}/{request_id}/cancel")).status_code == 200
    poll = await client.post(RUN, json={"request_id": request_id})
    assert poll.status_code == 200
    first, second = poll.json()["result"]["responses"]
    assert first["success"]
    message = "The batch was cancelled before this item was done"
    assert second["error"] == {"code": 5001, "message": message}


async def test_a_batch_that_expired_without_an_answer_is_an_error_with_this_reason(
    client: httpx.AsyncClient, database: Database
) -> None:
    request_id = await submit(client, "&completion_window=90s")
    found = (await client.get(f"{BATCHES}/{request_id}")).json()["result"]
    assert found["expires_at"] is not None
    async with database.durable() as conn:
        await conn.execute("update batch set expires_at = now()")
    async with database.relaxed() as conn:
        await expiry.expire(conn)
        await chunk_sweeps.sweep(conn)
    async with database.transaction() as conn:
        await lifecycle.settle(conn)
    poll = await client.post(RUN, json={"request_id": request_id})
    assert poll.status_code == 408
    assert poll.json()["errors"] == [
        {"code": 3007, "message": "The deadline passed before any of the 2 items was answered"}
    ]
    assert poll.json()["result"]["responses"][0]["error"]["message"] == "The deadline passed before this item was done"


@pytest.mark.parametrize("window", ["soon", "0s", "91d", "-1h", "1.5h"])
async def test_a_completion_window_that_is_none_is_refused(client: httpx.AsyncClient, window: str) -> None:
    answer = await client.post(f"{SUBMIT}&completion_window={window}", json={"requests": TWO})
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["message"].startswith("completion_window: must be like 90s, 30m, 24h or 7d")


async def test_a_verb_that_is_not_allowed_is_a_conflict_that_names_the_allowed_states(
    client: httpx.AsyncClient, database: Database
) -> None:
    request_id = await submit(client)
    await run_all(database)
    answer = await client.post(f"{BATCHES}/{request_id}/cancel")
    assert answer.status_code == 409
    assert answer.json()["errors"][0]["message"].startswith("The batch is completed: only one that is open or paused")
    answer = await client.post(f"{BATCHES}/{request_id}/retry")
    assert (answer.status_code, answer.json()["errors"][0]["message"]) == (
        409,
        "Every item was answered; nothing to retry",
    )


@pytest.mark.parametrize("path", ["", "/cancel", "/retry"])
async def test_unknown_ids_and_those_of_others_read_the_same(client: httpx.AsyncClient, path: str) -> None:
    call = client.post if path else client.get
    assert (await call(f"{BATCHES}/{uuid.uuid4()}{path}")).status_code == 404
    assert (await call(f"{BATCHES}/no-uuid{path}")).status_code == 404


async def test_an_unknown_verb_is_not_found(client: httpx.AsyncClient) -> None:
    request_id = await submit(client)
    answer = await client.post(f"{BATCHES}/{request_id}/destroy")
    assert answer.status_code in (400, 404)
    assert answer.json()["success"] is False
