"""Claims about quotas: what exceeds one is refused at the door and stored nowhere, exactly, however many come at once."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import orjson
import pytest

from app.admission import quotas
from app.admission.quotas import Quota
from app.batches import lifecycle
from app.db.pool import Database
from app.tenants.key_cache import TRUST_SECONDS
from testing.waiting import in_time
from tests.api.support import MODEL, RUN, SUBMIT, line, run_all, uploaded
from tests.clock import Clock
from tests.queue import support

AI = "/client/v4/accounts/acme/ai"
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}
Limit = Callable[..., Awaitable[None]]


@pytest.fixture
async def limit(database: Database, client: httpx.AsyncClient, clock: Clock) -> Limit:
    """Sets the quotas of `acme`, and lets time pass until this process has to know."""

    async def put(**limits: int) -> None:
        async with database.transaction() as conn:
            await quotas.change(conn, "acme", Quota(**limits))
        clock.advance(TRUST_SECONDS + 0.1)

    return put


def items(count: int) -> dict[str, Any]:
    return {"requests": [{"prompt": f"say {n}", "max_tokens": 10} for n in range(count)]}


async def counted(database: Database) -> dict[str, int]:
    """The rows of each table that a submit writes to, without the events of quotas themselves."""
    async with database.relaxed() as conn:
        names = ("batch", "item_payload", "chunk", "event where kind <> 'quota.reached'", "file", "file_batch")
        rows = [await (await conn.execute(f"select count(*) from {name}")).fetchone() for name in names]
        return dict(zip(names, (row[0] for row in rows if row), strict=True))


def refused(answer: httpx.Response, message: str, code: str = "quota_exceeded") -> None:
    assert answer.status_code == 429, answer.text
    [error] = answer.json()["errors"]
    assert error["code"] == 3036
    assert message in error["message"]
    assert answer.headers["x-should-retry"] == "false"
    if "error" in answer.json():
        assert answer.json()["error"]["code"] == code


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"open_batches": 1}, "the account has 1 of 1 open batches, and this would add 1; wait until some"),
        ({"open_items": 5}, "the account has 3 of 5 open items, and this would add 3"),
        ({"queued_tokens": 100}, "of 100 queued tokens, and this would add"),
        ({"stored_bytes": 180}, "of 180 stored bytes, and this would add"),
        ({"open_items": 2}, "this needs 3 open items, but the account may have 2; send less at once"),
    ],
)
async def test_a_submit_beyond_a_quota_is_refused_and_leaves_nothing(
    client: httpx.AsyncClient, limit: Limit, database: Database, limits: dict[str, int], message: str
) -> None:
    if "needs" not in message:
        assert (await client.post(SUBMIT, json=items(3))).status_code == 200
    await limit(**limits)
    before = await counted(database)
    refused(await client.post(SUBMIT, json=items(3)), message)
    assert await counted(database) == before


async def test_of_many_submits_at_once_exactly_as_many_are_taken_as_the_quota_allows(
    client: httpx.AsyncClient, limit: Limit, database: Database
) -> None:
    async with database.durable() as conn:  # what another account has does not count
        other, pool = await support.make_tenant(conn, "other"), await support.make_pool(conn)
    await support.submit(database, other, pool, 30)
    await limit(open_items=20)
    answers = await asyncio.gather(*(client.post(SUBMIT, json=items(3)) for _ in range(16)))
    assert sorted(answer.status_code for answer in answers) == [200] * 6 + [429] * 10
    assert (await counted(database))["item_payload"] == 18 + 30


async def test_what_is_done_makes_room_again(client: httpx.AsyncClient, limit: Limit, database: Database) -> None:
    await limit(open_batches=1, open_items=3, queued_tokens=1000)
    assert (await client.post(SUBMIT, json=items(3))).status_code == 200
    refused(await client.post(SUBMIT, json=items(1)), "open batches")
    await run_all(database)
    assert (await client.post(SUBMIT, json=items(3))).status_code == 200


async def test_a_lowered_quota_deletes_nothing_and_takes_nothing_more(
    client: httpx.AsyncClient, limit: Limit, database: Database
) -> None:
    assert (await client.post(SUBMIT, json=items(9))).status_code == 200
    await limit(open_items=2)
    refused(await client.post(SUBMIT, json=items(1)), "the account has 9 of 2 open items")
    assert (await counted(database))["item_payload"] == 9
    await run_all(database)
    shown = (await client.get(f"{AI}/quota")).json()["result"]
    assert (shown["limits"]["open_items"], shown["used"]["open_items"]) == (2, 0)


async def test_a_repeated_submit_finds_its_batch_although_the_quota_is_full(
    client: httpx.AsyncClient, limit: Limit
) -> None:
    await limit(open_batches=1)
    key = {"idempotency-key": "one"}
    first = await client.post(SUBMIT, json=items(2), headers=key)
    again = await client.post(SUBMIT, json=items(2), headers=key)
    assert first.json()["result"]["request_id"] == again.json()["result"]["request_id"]


async def test_a_batch_of_a_file_beyond_the_tokens_is_refused_with_the_code_of_openai(
    client: httpx.AsyncClient, limit: Limit, database: Database
) -> None:
    file_id = await uploaded(client, line(1) + line(2))
    await limit(queued_tokens=5)
    before = await counted(database)
    asked = {"input_file_id": file_id, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    refused(await client.post("/v1/batches", json=asked), "queued tokens", "token_limit_exceeded")
    assert await counted(database) == before


async def test_a_file_and_the_parts_of_an_upload_beyond_the_stored_bytes_are_refused(
    client: httpx.AsyncClient, limit: Limit, database: Database
) -> None:
    content = line(1)
    await limit(stored_bytes=len(content) * 2 - 1)
    await uploaded(client, content)
    file = {"file": ("in.jsonl", content)}
    refused(await client.post("/v1/files", data={"purpose": "batch"}, files=file), "stored bytes, and this would add")
    new = {"filename": "in.jsonl", "purpose": "batch", "bytes": len(content), "mime_type": "application/jsonl"}
    upload = (await client.post("/v1/uploads", json=new)).json()["id"]
    refused(
        await client.post(f"/v1/uploads/{upload}/parts", files={"data": content}), "delete files, or ask the operator"
    )
    assert (await counted(database))["file"] == 1


async def test_an_upload_in_parts_needs_its_bytes_only_once(client: httpx.AsyncClient, limit: Limit) -> None:
    content = line(1)
    await limit(stored_bytes=len(content))
    new = {"filename": "in.jsonl", "purpose": "batch", "bytes": len(content), "mime_type": "application/jsonl"}
    upload = (await client.post("/v1/uploads", json=new)).json()["id"]
    part = (await client.post(f"/v1/uploads/{upload}/parts", files={"data": content})).json()["id"]
    done = await client.post(f"/v1/uploads/{upload}/complete", json={"part_ids": [part]})
    assert (done.status_code, done.json()["status"]) == (200, "completed")
    assert (await client.get(f"{AI}/quota")).json()["result"]["used"]["stored_bytes"] == len(content)


@pytest.mark.parametrize("body", [{"background": True}, {"service_tier": "flex"}])
async def test_a_single_queued_request_counts_as_a_batch_of_one_item(
    client: httpx.AsyncClient, limit: Limit, body: dict[str, Any]
) -> None:
    await limit(open_items=1)
    assert (await client.post(SUBMIT, json=items(1))).status_code == 200
    refused(await client.post("/v1/responses", json={"model": MODEL, "input": "hello"} | body), "1 of 1 open items")


async def test_a_retry_beyond_the_quota_is_refused_and_the_batch_stays_as_it_was(
    client: httpx.AsyncClient, limit: Limit, database: Database
) -> None:
    request_id = (await client.post(SUBMIT, json=items(3))).json()["result"]["request_id"]
    await run_all(database, fail={0, 1})
    await limit(open_items=1)
    refused(await client.post(f"{AI}/batches/{request_id}/retry"), "the account would have 2 of 1 open items")
    shown = (await client.get(f"{AI}/batches/{request_id}")).json()["result"]
    assert (shown["status"], shown["run"]) == ("completed", 1)


async def test_a_retry_and_a_submit_at_once_do_not_wait_for_each_other_in_a_circle(
    client: httpx.AsyncClient, limit: Limit, database: Database
) -> None:
    made = [(await client.post(SUBMIT, json=items(2))).json()["result"]["request_id"] for _ in range(6)]
    await run_all(database, fail={0})
    await limit(open_items=1000)
    retries = [client.post(f"{AI}/batches/{request_id}/retry") for request_id in made]
    submits = [client.post(SUBMIT, json=items(2)) for _ in range(6)]
    async with in_time():
        answers = await asyncio.gather(*retries, *submits)
    assert {answer.status_code for answer in answers} == {200}
    async with database.transaction() as conn:
        await lifecycle.settle(conn)


async def test_synchronous_requests_have_no_quota(client: httpx.AsyncClient, limit: Limit) -> None:
    await limit(open_batches=0, open_items=0, queued_tokens=0, stored_bytes=0)
    assert (await client.post(RUN, json={"prompt": "x"})).status_code == 503  # there is no engine


async def reached(database: Database) -> list[dict[str, Any]]:
    """The data of the events of quotas, in their order."""
    async with database.relaxed() as conn:
        rows = await conn.execute("select data from event where kind = 'quota.reached' order by event_id")
        return [orjson.loads(data) for (data,) in await rows.fetchall()]


async def test_an_account_is_told_of_a_reached_quota_once_an_hour_and_of_each_quota(
    client: httpx.AsyncClient, limit: Limit, database: Database
) -> None:
    await limit(open_items=2)
    answers = [await client.post(SUBMIT, json=items(3)) for _ in range(3)]
    [told] = await reached(database)
    assert (told["quota"], told["account_id"]) == ("open_items", "acme")
    assert told["message"] == answers[0].json()["errors"][0]["message"]
    await limit(open_items=2, stored_bytes=10)
    sent = {"data": {"purpose": "batch"}, "files": {"file": ("x.jsonl", line(1))}}
    assert (await client.post("/v1/files", **sent)).status_code == 429
    assert (await client.post(SUBMIT, json=items(1))).status_code == 429
    assert [each["quota"] for each in await reached(database)] == ["open_items", "stored_bytes"]
    async with database.durable() as conn:
        await conn.execute("update quota_reached set hour = hour - interval '1 hour'")
    await client.post(SUBMIT, json=items(3))
    assert [each["quota"] for each in await reached(database)] == ["open_items", "stored_bytes", "open_items"]
