"""Claims about submitting and polling on the Workers AI URL."""

import json
import uuid

import httpx
import psycopg
import pytest

from app.db.pool import Database
from app.engines.service import ensure_pool
from tests.api.support import COMPLETION, RUN, SUBMIT, TWO, run_all
from tests.db import commits
from tests.queue import support


async def test_submit_answers_the_documented_envelope(client: httpx.AsyncClient) -> None:
    answer = await client.post(SUBMIT, json={"requests": TWO})
    assert answer.status_code == 200
    body = answer.json()
    request_id = body["result"].pop("request_id")
    assert str(uuid.UUID(request_id)) == request_id
    assert body == {
        "result": {"status": "queued", "model": "smollm2-135m-instruct"},
        "success": True,
        "errors": [],
        "messages": [],
    }


async def test_it_is_answered_when_its_commit_is_on_disk(client: httpx.AsyncClient, database: Database) -> None:
    async with database.durable() as conn:
        for table in ("batch", "chunk"):
            await commits.watch(conn, table, "insert")
        assert (await client.post(SUBMIT, json={"requests": TWO})).status_code == 200
        assert await commits.seen(conn) == {("INSERT batch", "on"), ("INSERT chunk", "on")}


@pytest.mark.parametrize("query", ["", "?queueRequest=true", "?tags=x&somethingElse=1"])
async def test_poll_works_with_and_without_the_query_parameter(client: httpx.AsyncClient, query: str) -> None:
    request_id = (await client.post(SUBMIT, json={"requests": TWO})).json()["result"]["request_id"]
    answer = await client.post(RUN + query, json={"request_id": request_id})
    assert answer.status_code == 200
    assert answer.json()["result"]["status"] == "queued"
    assert answer.json()["result"]["request_id"] == request_id


@pytest.mark.parametrize(
    "model", ["@cf/moonshotai/kimi-k2.6", "@cf%2Fmoonshotai%2Fkimi-k2.6", "@cf/moonshotai/kimi-k2.6/"]
)
async def test_models_with_slashes_are_found_raw_and_percent_encoded(client: httpx.AsyncClient, model: str) -> None:
    url = f"/client/v4/accounts/acme/ai/run/{model}?queueRequest=true"
    answer = await client.post(url, json={"requests": TWO})
    assert answer.json()["result"]["model"] == "@cf/moonshotai/kimi-k2.6"


async def test_a_started_batch_reads_running(client: httpx.AsyncClient, database: Database) -> None:
    request_id = (await client.post(SUBMIT, json={"requests": TWO})).json()["result"]["request_id"]
    async with database.durable() as conn:
        pool = await ensure_pool(conn, "smollm2-135m-instruct")
        assert await support.claim(conn, pool, await support.make_worker(database, pool))
    answer = await client.post(RUN, json={"request_id": request_id})
    assert answer.json()["result"]["status"] == "running"


async def test_final_results_are_sorted_complete_and_without_status(
    client: httpx.AsyncClient, database: Database
) -> None:
    items = [{"prompt": f"p{n}", "external_reference": f"r{n}"} for n in range(450)]
    request_id = (await client.post(SUBMIT, json={"requests": items})).json()["result"]["request_id"]
    await run_all(database, fail={3})
    answer = await client.post(RUN, json={"request_id": request_id})
    assert answer.status_code == 200
    result = answer.json()["result"]
    assert "status" not in result
    assert [r["id"] for r in result["responses"]] == list(range(450))
    assert [r["external_reference"] for r in result["responses"]] == [f"r{n}" for n in range(450)]
    assert result["responses"][0] == {
        "id": 0,
        "result": {"response": "Paris", "usage": {**COMPLETION["usage"], "cost": 3.1e-07, "currency": "USD"}},
        "success": True,
        "external_reference": "r0",
    }
    assert result["responses"][3] == {
        "id": 3,
        "result": None,
        "success": False,
        "external_reference": "r3",
        "error": {"code": 5006, "message": "no"},
    }
    assert result["usage"]["completion_tokens"] == 450 * 5
    assert result["usage"]["prompt_tokens_details"] == {"cached_tokens": 450}


async def test_newer_models_answer_in_the_openai_shape(client: httpx.AsyncClient, database: Database) -> None:
    url = "/client/v4/accounts/acme/ai/run/@cf/moonshotai/kimi-k2.6"
    body = {"requests": [{"prompt": "x"}]}
    request_id = (await client.post(f"{url}?queueRequest=true", json=body)).json()["result"]["request_id"]
    await run_all(database)
    answer = (await client.post(url, json={"request_id": request_id})).json()
    usage = {**COMPLETION["usage"], "cost": 1.68e-05, "currency": "USD"}
    assert answer["result"]["responses"][0]["result"] == {**COMPLETION, "usage": usage}
    assert answer["result"]["responses"][0]["external_reference"] is None


async def test_a_failed_batch_is_an_error_envelope_that_still_shows_each_item(
    client: httpx.AsyncClient, database: Database
) -> None:
    request_id = (await client.post(SUBMIT, json={"requests": TWO})).json()["result"]["request_id"]
    await run_all(database, fail={0, 1}, code=5001)
    answer = await client.post(RUN, json={"request_id": request_id})
    assert answer.status_code == 500
    assert answer.headers["x-should-retry"] == "false"
    body = answer.json()
    assert body["success"] is False
    assert body["errors"][0]["code"] == 5001
    assert [r["success"] for r in body["result"]["responses"]] == [False, False]


async def test_ndjson_is_taken_line_by_line(client: httpx.AsyncClient, database: Database) -> None:
    lines = "\n".join(json.dumps({"prompt": f"p{n}"}) for n in range(300)) + "\n\n"
    headers = {"content-type": "application/x-ndjson"}
    answer = await client.post(SUBMIT, content=lines, headers=headers)
    assert answer.status_code == 200, answer.text
    await run_all(database)
    request_id = answer.json()["result"]["request_id"]
    assert len((await client.post(RUN, json={"request_id": request_id})).json()["result"]["responses"]) == 300


async def test_the_items_are_stored_as_they_were_sent(client: httpx.AsyncClient, database_url: str) -> None:
    line = '{"prompt":  "ü \\u00fc",\t"max_tokens":5}'
    await client.post(SUBMIT, content=line, headers={"content-type": "application/x-ndjson"})
    with psycopg.connect(database_url) as conn:
        assert conn.execute("select body from item_payload").fetchone() == (line.encode(),)


async def test_tags_correlation_and_affinity_are_kept(client: httpx.AsyncClient, database_url: str) -> None:
    headers = {"x-session-affinity": "ses_1", "cf-ai-req-id": "abc"}
    await client.post(f"{SUBMIT}&tags=team:a,b", json={"requests": TWO}, headers=headers)
    with psycopg.connect(database_url) as conn:
        row = conn.execute("select tags, correlation_id, affinity from batch").fetchone()
    assert row == (["team:a", "b"], "abc", "ses_1")


async def test_a_queued_and_a_final_event_are_written_with_the_state(
    client: httpx.AsyncClient, database: Database, database_url: str
) -> None:
    request_id = (await client.post(SUBMIT, json={"requests": TWO})).json()["result"]["request_id"]
    together = (
        "select e.kind, b.xmin = e.xmin from event e join batch b using (batch_id) order by event_id desc limit 1"
    )
    with psycopg.connect(database_url) as conn:
        assert conn.execute(together).fetchone() == ("batch.queued", True)  # by one transaction
    await run_all(database)
    with psycopg.connect(database_url) as conn:
        assert conn.execute(together).fetchone() == ("batch.succeeded", True)
        events = conn.execute("select kind, data from event order by event_id").fetchall()
    assert [kind for kind, _ in events] == ["batch.queued", "batch.succeeded"]
    assert all(json.loads(data)["request_id"] == request_id for _, data in events)


async def test_only_a_batch_with_a_completion_window_expires(client: httpx.AsyncClient, database_url: str) -> None:
    for window in ("", "&completion_window=24h"):
        assert (await client.post(f"{SUBMIT}{window}", json={"requests": TWO})).status_code == 200
    with psycopg.connect(database_url) as conn:
        expires = conn.execute("select expires_at is not null from batch order by batch_id").fetchall()
    assert expires == [(False,), (True,)]


async def test_the_generic_form_names_the_model_in_the_body(client: httpx.AsyncClient) -> None:
    url = "/client/v4/accounts/acme/ai/run"
    body = {"model": "@cf/moonshotai/kimi-k2.6", "requests": TWO}
    made = await client.post(f"{url}?queueRequest=true", json=body)
    assert made.json()["result"]["model"] == "@cf/moonshotai/kimi-k2.6"
    polled = await client.post(url, json={"request_id": made.json()["result"]["request_id"]})
    assert polled.json()["result"]["status"] == "queued"


async def test_json_mode_answers_an_object_in_the_native_shape(client: httpx.AsyncClient, database: Database) -> None:
    said = COMPLETION | {"choices": [{"index": 0, "message": {"role": "assistant", "content": '{"a": 1}'}}]}
    items = [{"prompt": "x", "response_format": {"type": "json_object"}}, {"prompt": "x"}]
    request_id = (await client.post(SUBMIT, json={"requests": items})).json()["result"]["request_id"]
    await run_all(database, whole=json.dumps(said))
    responses = (await client.post(RUN, json={"request_id": request_id})).json()["result"]["responses"]
    assert [response["result"]["response"] for response in responses] == [{"a": 1}, '{"a": 1}']


async def test_a_subscription_to_a_model_gets_the_events_of_batches_sent_under_an_alias(
    client: httpx.AsyncClient, database_url: str
) -> None:
    subscription = {
        "name": "n",
        "source": {"type": "workersAi.model", "model_name": "HuggingFaceTB/SmolLM2-135M-Instruct"},
        "destination": {"type": "webhook", "url": "http://127.0.0.1:9/hook"},
        "events": ["batch.queued"],
    }
    await client.post("/client/v4/accounts/acme/event_subscriptions/subscriptions", json=subscription)
    await client.post(SUBMIT, json={"requests": TWO})
    await client.post(
        SUBMIT.replace("smollm2-135m-instruct", "HuggingFaceTB/SmolLM2-135M-Instruct"), json={"requests": TWO}
    )
    with psycopg.connect(database_url) as conn:
        assert conn.execute("select count(*) from delivery where not probe").fetchone() == (2,)
