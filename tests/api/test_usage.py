"""Claims about the report of usage: every request is in it once, under its labels, at the cost that its answer stated."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import httpx
import orjson
import pytest
from psycopg import sql

from app.batches import lifecycle
from app.db.pool import Database
from app.engines.service import ensure_pool
from app.metering import lines as ledger_lines
from app.metering import reports
from app.queue import service
from app.queue.types import Result
from app.settings import Settings
from app.tenants import service as tenants
from testing.fakes.engine import FakeEngine
from testing.waiting import eventually
from tests.api.support import BATCHES, MODEL, RUN, run_all, uploaded
from tests.clock import Clock
from tests.gateway.support import Registry, serve
from tests.queue import support

USAGE = "/client/v4/accounts/acme/ai/usage"
LATENCY = "/client/v4/accounts/acme/ai/latency"
SESSIONS = "/client/v4/accounts/acme/ai/sessions"
CHAT = {"model": "smollm2-135m-instruct", "messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture
async def engine(database: Database) -> AsyncIterator[FakeEngine]:
    """An engine that a live worker has reported ready."""
    async with FakeEngine() as engine:
        engine.answer_tokens = 6
        await Registry(database).ready(engine)
        yield engine


async def report(client: httpx.AsyncClient, requests: int, **query: str) -> list[dict[str, Any]]:
    """The report, once it has so many requests."""

    async def rows() -> list[dict[str, Any]]:
        answer = await client.get(USAGE, params=query)
        assert answer.status_code == 200, answer.text
        return list(answer.json()["result"]["usage"])

    return await eventually(rows, until=lambda found: sum(row["requests"] for row in found) >= requests)


async def test_synchronous_requests_are_reported_by_their_labels_at_the_cost_that_they_stated(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    tagged = {"x-slackwater-workflow": "tagging", "x-slackwater-task": "extract"}
    whole = (await client.post("/v1/chat/completions", json=CHAT, headers=tagged)).json()
    stream = await client.post("/v1/chat/completions", json={**CHAT, "stream": True}, headers=tagged)
    assert stream.status_code == 200
    native = (await client.post(RUN, json={"prompt": "hello"})).json()["result"]
    rows = await report(client, 3, by="workflow,task,kind")
    found = {row["workflow"]: row for row in rows}
    assert set(found) == {"tagging", "default"}
    tagging, other = found["tagging"], found["default"]
    assert (tagging["task"], tagging["kind"], tagging["requests"], tagging["ok"]) == ("extract", "sync", 2, 2)
    assert tagging["completion_tokens"] == 2 * whole["usage"]["completion_tokens"] == 12
    assert tagging["cost"] == pytest.approx(2 * whole["usage"]["cost"])
    assert (other["requests"], other["cost"]) == (1, pytest.approx(native["usage"]["cost"]))


async def test_a_stream_that_its_caller_leaves_counts_what_it_got_and_is_not_counted_as_answered(
    settings: Settings, key: str, engine: FakeEngine
) -> None:
    engine.answer_tokens, engine.token_seconds = 500, 0.01
    asked = {**CHAT, "messages": [{"role": "user", "content": "hello " * 200}], "stream": True}
    async with (
        serve(settings) as url,
        httpx.AsyncClient(headers={"authorization": f"Bearer {key}"}, base_url=url) as client,
    ):
        async with client.stream("POST", "/v1/chat/completions", json=asked) as answer:
            lines = answer.aiter_lines()
            for _ in range(20):
                await anext(lines)
        [row] = await report(client, 1, by="model")
    assert (row["requests"], row["ok"]) == (1, 0)
    assert 0 < row["completion_tokens"] < 500


async def test_latency_endpoint_and_session_of_synchronous_requests_are_reported(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    for n in range(3):
        asked = {**CHAT, "messages": [{"role": "user", "content": "hello " * (10 + n)}], "stream": True}
        answer = await client.post("/v1/chat/completions", json=asked, headers={"x-session-id": "walk"})
        assert answer.status_code == 200
    [row] = await report(client, 3, by="endpoint")
    assert (row["endpoint"], row["engine_ms"]) == ("/v1/chat/completions", 0)
    found = (await client.get(LATENCY, params={"by": "endpoint,kind"})).json()["result"]["latency"]
    assert [(row["kind"], row["first_token"]["count"], row["duration"]["count"]) for row in found] == [("sync", 3, 3)]
    assert 0 < found[0]["first_token"]["p50"] <= found[0]["duration"]["p99"]
    result = (await client.get(SESSIONS)).json()["result"]
    assert [(row["workflow"], row["sessions"], row["turns"]) for row in result["sessions"]] == [("default", 1, 3)]
    assert result["steepest"][0]["slope"] is not None


async def test_prompts_that_begin_with_the_same_instructions_are_one_family_on_every_surface(
    client: httpx.AsyncClient, database: Database, engine: FakeEngine
) -> None:
    system = {"role": "system", "content": "You read letters and list the dates in them, one in a line. " * 2}
    asked = [[system, {"role": "user", "content": f"letter {n}"}] for n in range(4)]
    for messages in asked:
        assert (await client.post("/v1/chat/completions", json={**CHAT, "messages": messages})).status_code == 200
    requests = [{"messages": messages} for messages in asked]
    assert (await client.post(f"{RUN}?queueRequest=true", json={"requests": requests})).status_code == 200
    await run_all(database)
    rows = await report(client, 8, by="family,kind")
    families = {(row["kind"], row["family"]): row["requests"] for row in rows}
    [name] = {family for _, family in families} - {"-"}
    assert families == {("sync", "-"): 2, ("sync", name): 2, ("batch", name): 4}


async def test_a_chunk_of_several_families_is_mixed_and_a_label_names_the_family_of_all(
    client: httpx.AsyncClient, database: Database
) -> None:
    systems = [f"You are clerk number {n}. " * 5 for n in range(2)]
    requests = [
        {"messages": [{"role": "system", "content": system}, {"role": "user", "content": f"letter {n}"}]}
        for system in systems
        for n in range(3)
    ]
    url = f"{RUN}?queueRequest=true"
    assert (await client.post(url, json={"requests": requests})).status_code == 200
    label = {"cf-aig-metadata": '{"prompt_family": "clerks"}'}
    assert (await client.post(url, json={"requests": requests}, headers=label)).status_code == 200
    await run_all(database)
    rows = await report(client, 12, by="family")
    assert {row["family"]: row["requests"] for row in rows} == {"mixed": 6, "clerks": 6}


async def test_an_explanation_adds_up_and_names_what_cannot_be_explained(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 200
    await report(client, 1)
    found = (await client.get(f"{USAGE}/explain", params={"before": "yesterday", "after": "today"})).json()["result"]
    [change] = found["changes"]
    assert change["change"] == change["after"] > change["before"] == 0
    assert sum(term["amount"] for term in change["terms"]) == change["change"]
    for query, says in (
        ({"before": "soon"}, "before: 'soon' is not a period"),
        ({"after": "2026-11-09..2026-11-01"}, "after: '2026-11-09..2026-11-01' ends before it begins"),
        ({"by": "model"}, "by: must be one of key, workflow"),
    ):
        answer = await client.get(f"{USAGE}/explain", params=query)
        assert answer.status_code == 400
        assert answer.json()["errors"][0]["message"].startswith(says)


async def test_what_was_queued_is_reported_as_harvested_at_the_models_price(
    client: httpx.AsyncClient, database: Database
) -> None:
    assert (await client.post(f"{RUN}?queueRequest=true", json={"requests": [{"prompt": "x"}] * 5})).status_code == 200
    await run_all(database)
    result = (await client.get(USAGE, params={"by": "kind"})).json()["result"]
    [harvested] = result["harvested"]
    assert harvested["tokens"] == 5 * 8
    assert harvested["cost"] == pytest.approx(result["usage"][0]["cost"])


async def test_a_request_that_no_engine_answers_is_not_reported(client: httpx.AsyncClient, clock: Clock) -> None:
    assert (await client.post("/v1/chat/completions", json=CHAT)).status_code in (429, 503)
    await clock.sleep(1.2)
    assert await report(client, 0) == []


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"by": "colour"}, "by: must be"),
        ({"by": "account"}, "by: must be"),
        ({"since": "soon"}, "since: 'soon' is not a period"),
        ({"since": ""}, "since: '' is not a period"),
        ({"since": "0d"}, "since: '0d' is not a period"),
        ({"since": "401d"}, "since: a length of time must be at most 400d"),
        ({"month": "2026-13"}, "month: must be a month like 2026-11"),
        ({"month": "last-month"}, "month: must be a month like 2026-11"),
        ({"month": "2026-11", "since": "24h"}, "month: goes without since"),
        ({"tz": "Mars/Base"}, "tz: time zone 'Mars/Base': unknown"),
    ],
)
async def test_a_report_of_nothing_known_is_refused(
    client: httpx.AsyncClient, query: dict[str, str], names: str
) -> None:
    answer = await client.get(USAGE, params=query)
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["message"].startswith(names)


async def booked(database: Database, **of: list[str]) -> None:
    """One request of the account in each of these hours, by table of the ledger."""
    async with database.transaction() as conn:
        tenant = await tenants.ensure_tenant(conn, "acme")
        [line] = await ledger_lines.added(conn, [ledger_lines.unlabelled(tenant, MODEL, "sync")])
        for table, hours in of.items():
            query = sql.SQL("insert into {} (hour, line_id, requests, ok) values (%s, %s, 1, 1)")
            for hour in hours:
                await conn.execute(query.format(sql.Identifier(table)), [hour, line])


async def test_a_month_and_its_days_are_those_of_the_time_zone(client: httpx.AsyncClient, database: Database) -> None:
    await booked(database, usage=["2026-10-31T22:00Z", "2026-10-31T23:00Z"])

    async def seen(month: str, tz: str) -> list[tuple[str, str]]:
        answer = await client.get(USAGE, params={"month": month, "tz": tz, "by": "day,hour"})
        assert answer.status_code == 200, answer.text
        return sorted((row["day"], row["hour"]) for row in answer.json()["result"]["usage"])

    assert await seen("2026-10", "UTC") == [
        ("2026-10-31", "2026-10-31T22:00Z"),
        ("2026-10-31", "2026-10-31T23:00Z"),
    ]
    assert await seen("2026-10", "Europe/Berlin") == [("2026-10-31", "2026-10-31T23:00+01:00")]
    assert await seen("2026-11", "Europe/Berlin") == [("2026-11-01", "2026-11-01T00:00+01:00")]
    assert await seen("2026-11", "UTC") == []


@pytest.mark.parametrize("tz", ["UTC", "America/New_York", "Asia/Tokyo"])
async def test_an_old_day_of_the_ledger_is_the_same_day_everywhere(
    client: httpx.AsyncClient, database: Database, tz: str
) -> None:
    await booked(
        database, usage_day=["2026-08-31T00:00Z", "2026-09-01T00:00Z", "2026-09-30T00:00Z", "2026-10-01T00:00Z"]
    )
    answer = await client.get(USAGE, params={"since": "2026-09", "tz": tz, "by": "day"})
    assert sorted(row["day"] for row in answer.json()["result"]["usage"]) == ["2026-09-01", "2026-09-30"]


async def test_a_label_that_is_not_in_form_is_refused_on_every_surface(client: httpx.AsyncClient) -> None:
    wrong = {"x-slackwater-workflow": "Not A Name"}
    queued = {"requests": [{"prompt": "hello"}]}
    for url, body in (("/v1/chat/completions", CHAT), (RUN, {"prompt": "x"}), (f"{RUN}?queueRequest=true", queued)):
        answer = await client.post(url, json=body, headers=wrong)
        assert answer.status_code == 400, url
        assert "x-slackwater-workflow: must be 1 to 64" in answer.text


async def run_pool(database: Database, model: str, *, ok: bool) -> None:
    """Play the worker of a pool, which answers everything or nothing, and the steward."""
    async with database.durable() as conn:
        pool = await ensure_pool(conn, model)
        worker = await support.make_worker(database, pool)
        while lease := await support.claim(conn, pool, worker):
            items = await service.load(conn, lease)
            body = b'{"choices": [{}]}' if ok else b'{"code": 5006, "message": "no"}'
            assert await service.flush(conn, lease, [Result(item.seq, ok, 1, 3, 1, 5, body) for item in items])
            await service.finish(conn, lease)
    async with database.transaction() as conn:
        await lifecycle.settle(conn)


async def test_what_is_retried_of_a_mixed_batch_is_booked_for_its_own_model_whatever_its_family(
    client: httpx.AsyncClient, database: Database
) -> None:
    small, big = MODEL, "@cf/moonshotai/kimi-k2.6"
    lines = []
    for n in range(8):
        messages = [{"role": "system", "content": f"You are clerk {n // 4}. " * 9}, {"role": "user", "content": "go"}]
        body = {"model": (small, big)[n // 4], "messages": messages}
        lines.append({"custom_id": f"r{n}", "method": "POST", "url": "/v1/chat/completions", "body": body})
    file_id = await uploaded(client, b"\n".join(map(orjson.dumps, lines)))
    new = {"input_file_id": file_id, "endpoint": "/v1/chat/completions", "completion_window": "24h", "mixed": True}
    batch = await client.post("/v1/batches", json=new)
    assert batch.status_code == 200, batch.text
    for model in (small, big):
        await run_pool(database, model, ok=False)
    async with database.durable() as conn:  # a new price
        columns = "tenant_id, key_id, workflow, task, critical, variant, family, model, kind, endpoint, currency"
        copies = f"insert into line ({columns}, price_in, price_cached, price_out) select {columns}, 1, 1, 1 from line"
        await conn.execute(copies.encode())
    request_id = batch.json()["id"].removeprefix("batch_")
    answer = await client.post(f"{BATCHES}/{UUID(request_id)}/retry")
    assert answer.status_code == 200, answer.text
    async with database.relaxed() as conn:
        [(own,)] = await (await conn.execute("select model_lines from batch")).fetchall()
        queued = await (
            await conn.execute("select line_id from chunk order by array_position(%s, line_id)", (own,))
        ).fetchall()
    assert [line_id for (line_id,) in queued] == own
    for model in (small, big):
        await run_pool(database, model, ok=True)
    rows = await report(client, 16, by="model,endpoint")
    found = {(row["model"], row["endpoint"], row["requests"], row["ok"], row["repeats"]) for row in rows}
    assert found == {(model, "/v1/chat/completions", 8, 4, 4) for model in (small, big)}
    async with database.relaxed() as conn:
        assert await reports.check(conn) == []


async def test_two_variants_are_compared_by_their_labels(client: httpx.AsyncClient, engine: FakeEngine) -> None:
    for variant, count in (("new", 3), ("old", 2)):
        for _ in range(count):
            headers = {"x-slackwater-variant": variant, "x-slackwater-workflow": "tagging"}
            await client.post("/v1/chat/completions", json=CHAT, headers=headers)
    await report(client, 5)
    asked = {"a": "new", "b": "old"}
    found = (await client.get(f"{USAGE}/compare", params=asked | {"workflow": "tagging"})).json()["result"]
    assert found["requests"] == {"new": 3, "old": 2}
    assert found["measures"]["failures"]["new"]["value"] == 0
    assert found["measures"]["failures"]["differs"] is False
    assert {"since", "until", "currency"} <= found.keys()
    for query, status, says in (
        (asked | {"b": "new"}, 400, "Name two different values"),
        (asked | {"b": "older"}, 404, "No request of the variant 'older'"),
        (asked | {"workflow": "other"}, 404, "No request of the variant 'new'"),
        (asked | {"b": "A b\0"}, 400, "b: "),
        ({"a": "new"}, 400, "b: "),
    ):
        answer = await client.get(f"{USAGE}/compare", params=query)
        assert (answer.status_code, says in answer.json()["errors"][0]["message"]) == (status, True), answer.text
