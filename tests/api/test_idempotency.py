"""Claims about Idempotency-Key: the same request once, another request never under the same key."""

import asyncio
import json

import httpx
import psycopg
import pytest

from app.db.pool import Database
from app.queue import ingest
from tests.api.support import SUBMIT

BODY = {"requests": [{"prompt": "once"}, {"prompt": "twice", "max_tokens": 3}]}
KEY = {"idempotency-key": '"order-1"'}


async def test_the_same_key_and_body_is_the_same_batch(client: httpx.AsyncClient, database_url: str) -> None:
    first = await client.post(SUBMIT, json=BODY, headers=KEY)
    again = await client.post(SUBMIT, json=BODY, headers={"idempotency-key": "order-1"})
    assert first.json() == again.json()
    with psycopg.connect(database_url) as conn:
        counts = (
            "select (select count(*) from batch), (select count(*) from item_payload), (select count(*) from event)"
        )
        assert conn.execute(counts).fetchone() == (1, 2, 1)


async def test_another_body_under_the_key_is_refused(client: httpx.AsyncClient) -> None:
    await client.post(SUBMIT, json=BODY, headers=KEY)
    other = await client.post(SUBMIT, json={"requests": [{"prompt": "other"}]}, headers=KEY)
    assert other.status_code == 422
    assert "another request" in other.json()["errors"][0]["message"]


async def test_the_same_body_for_another_model_is_another_request(client: httpx.AsyncClient) -> None:
    await client.post(SUBMIT, json=BODY, headers=KEY)
    url = SUBMIT.replace("smollm2-135m-instruct", "@cf/moonshotai/kimi-k2.6")
    assert (await client.post(url, json=BODY, headers=KEY)).status_code == 422


async def test_the_key_works_for_ndjson(client: httpx.AsyncClient) -> None:
    lines = "\n".join(json.dumps(item) for item in BODY["requests"])
    headers = KEY | {"content-type": "application/x-ndjson"}
    first, again = [await client.post(SUBMIT, content=lines, headers=headers) for _ in range(2)]
    assert first.json()["result"]["request_id"] == again.json()["result"]["request_id"]


async def test_of_many_at_once_one_is_stored_and_the_others_get_its_id(
    client: httpx.AsyncClient, database_url: str
) -> None:
    answers = await asyncio.gather(*(client.post(SUBMIT, json=BODY, headers=KEY) for _ in range(12)))
    assert {answer.status_code for answer in answers} <= {200, 409}
    ids = {answer.json()["result"]["request_id"] for answer in answers if answer.status_code == 200}
    assert len(ids) == 1
    with psycopg.connect(database_url) as conn:
        assert conn.execute("select count(*) from batch").fetchone() == (1,)


async def test_a_key_that_is_being_stored_answers_409(client: httpx.AsyncClient, database: Database) -> None:
    await client.post(SUBMIT, json=BODY)
    async with database.transaction() as conn:
        row = await (await conn.execute("select tenant_id from tenant where account_id = 'acme'")).fetchone()
        assert row
        assert await ingest.reserve_key(conn, row[0], "order-1")
        busy = await client.post(SUBMIT, json=BODY, headers=KEY)
    assert busy.status_code == 409
    assert (await client.post(SUBMIT, json=BODY, headers=KEY)).status_code == 200


@pytest.mark.parametrize("bad", ["", '""', "x" * 256])
async def test_keys_of_the_wrong_form_are_refused(client: httpx.AsyncClient, bad: str) -> None:
    answer = await client.post(SUBMIT, json=BODY, headers={"idempotency-key": bad})
    assert answer.status_code == 400
    assert "Idempotency-Key" in answer.json()["errors"][0]["message"]
