"""Claims about `depends_on` of a batch: it starts when the others have ended, however they ended."""

from typing import Any

import httpx
import pytest

from app.batches.phases import PhaseLog
from app.db.pool import Database
from app.queue import dependencies
from tests.api.support import MODEL, run_all

Json = dict[str, Any]
LINES = [{"custom_id": "a", "body": {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}}]
BATCH: Json = {"endpoint": "/v1/chat/completions", "completion_window": "24h", "requests": LINES}


async def made(client: httpx.AsyncClient, **more: Any) -> str:
    answer = await client.post("/v1/batches", json=BATCH | more)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


async def status(client: httpx.AsyncClient, batch: str) -> str:
    return str((await client.get(f"/v1/batches/{batch}")).json()["status"])


async def verb(client: httpx.AsyncClient, batch: str, verb: str) -> str:
    answer = await client.post(f"/v1/batches/{batch}/{verb}")
    assert answer.status_code == 200, answer.text
    return str(answer.json()["status"])


async def waits(client: httpx.AsyncClient, batch: str) -> Json:
    found: Json = (await client.get(f"/client/v4/accounts/acme/ai/batches/{batch}/why")).json()["result"]["waiting"]
    return found


async def started(database: Database) -> int:
    async with database.transaction() as conn:
        return len(await dependencies.start(conn))


async def test_it_starts_when_all_that_it_needs_have_ended_and_says_so_until_then(
    client: httpx.AsyncClient, database: Database
) -> None:
    first, second = await made(client), await made(client)
    batch = await made(client, depends_on=[first, second])
    assert await status(client, batch) == "paused"
    link = await waits(client, batch)
    assert (link["code"], link["message"]) == ("dependency", f"it starts when {first}, {second} have ended")
    await PhaseLog(database).look()
    async with database.relaxed() as conn:
        codes = await (await conn.execute("select code from batch_phase order by batch_id desc limit 1")).fetchall()
    assert codes == [("dependency",)]
    await verb(client, first, "cancel")
    assert await started(database) == 0
    assert (await waits(client, batch))["message"] == f"it starts when {second} has ended"
    await run_all(database)
    assert (await status(client, second), await status(client, batch)) == ("completed", "paused")
    assert await started(database) == 1
    assert await status(client, batch) == "in_progress"
    await run_all(database)
    assert await status(client, batch) == "completed"


async def test_what_has_ended_already_is_not_waited_for(client: httpx.AsyncClient, database: Database) -> None:
    first = await made(client)
    await run_all(database)
    assert await status(client, await made(client, depends_on=[first])) == "in_progress"


async def test_resume_does_not_start_it_early_and_after_a_pause_it_waits_for_a_resume(
    client: httpx.AsyncClient, database: Database
) -> None:
    first = await made(client)
    batch = await made(client, depends_on=[first])
    assert await verb(client, batch, "resume") == "paused"
    assert await verb(client, batch, "pause") == "paused"
    assert (await waits(client, batch))["code"] == "paused"
    await verb(client, first, "cancel")
    assert await started(database) == 0
    assert await status(client, batch) == "paused"
    assert await verb(client, batch, "resume") == "in_progress"


async def test_a_pause_that_was_taken_back_leaves_it_waiting(client: httpx.AsyncClient, database: Database) -> None:
    first = await made(client)
    batch = await made(client, depends_on=[first])
    await verb(client, batch, "pause")
    assert await verb(client, batch, "resume") == "paused"
    assert (await waits(client, batch))["code"] == "dependency"
    await verb(client, first, "cancel")
    assert await started(database) == 1


async def test_a_cancelled_one_never_starts_and_leaves_nothing_behind(
    client: httpx.AsyncClient, database: Database
) -> None:
    batch = await made(client, depends_on=[await made(client)])
    assert await verb(client, batch, "cancel") == "cancelled"
    assert await started(database) == 0
    async with database.relaxed() as conn:
        assert await (await conn.execute("select count(*) from dependency")).fetchone() == (0,)


@pytest.mark.parametrize(
    ("given", "param", "words"),
    [
        ("batch_1", "depends_on", "must be a list of at most 64 ids"),
        (["batch_1"], "depends_on[0]", "must be the id of a batch"),
        ([7], "depends_on[0]", "must be the id of a batch"),
        (["batch_" + "0" * 32], "depends_on[0]", "this account has no batch 'batch_0"),
    ],
)
async def test_what_cannot_be_needed_is_refused_with_its_place(
    client: httpx.AsyncClient, given: Any, param: str, words: str
) -> None:
    refused = await client.post("/v1/batches", json=BATCH | {"depends_on": given})
    error = refused.json()["error"]
    assert (refused.status_code, error["param"]) == (400, param)
    assert words in error["message"]
    assert (await client.get("/v1/batches")).json()["data"] == []


async def test_with_stages_behind_it_it_is_refused(client: httpx.AsyncClient) -> None:
    body = {"messages": [{"role": "user", "content": "{{text}}"}]}
    stages = [{"id": "title", "model": MODEL, "body": body}]
    given = BATCH | {"depends_on": [await made(client)], "then": stages}
    refused = await client.post("/v1/batches", json=given)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "depends_on")


async def test_a_repeated_key_needs_the_same_batches(client: httpx.AsyncClient) -> None:
    first = await made(client)
    given = BATCH | {"idempotency_key": "once"}
    batch = (await client.post("/v1/batches", json=given | {"depends_on": [first]})).json()["id"]
    assert (await client.post("/v1/batches", json=given | {"depends_on": [first]})).json()["id"] == batch
    assert (await client.post("/v1/batches", json=given)).status_code == 422
