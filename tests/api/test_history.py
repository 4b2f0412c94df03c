"""Claims about the routes of history: incidents, engines, protection, phases, errors and items, and the filters of the list."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import httpx
import pytest
from pydantic import SecretStr

from app import clock
from app.batches.phases import PhaseLog
from app.batches.protection import LEAST_STREAMS
from app.changes import service as changes
from app.changes.kinds import ChangeKind
from app.db.pool import Database
from app.engines import catalogue
from app.engines import service as engines
from app.headroom import decision_log, samples
from app.metering.latency import MinuteLatencies
from app.settings import Settings
from app.tenants import service as tenants
from testing.fakes import ledger_month
from tests.api import in_process
from tests.api.support import BATCHES, MODEL, line, run_all, submit, uploaded
from tests.headroom.test_decision_log import CHANGE
from tests.headroom.test_samples import SAMPLE
from tests.queue import support

HISTORY = "/client/v4/accounts/acme/ai"


async def read(client: httpx.AsyncClient, path: str, status: int = 200) -> Any:
    answer = await client.get(path)
    assert answer.status_code == status, answer.text
    return answer.json()["result"] if status == 200 else answer.json()["errors"][0]["message"]


async def listed(client: httpx.AsyncClient, query: str) -> list[str]:
    return [batch["request_id"] for batch in await read(client, f"{BATCHES}?{query}")]


async def test_a_batch_is_found_by_what_it_waits_for_and_not_once_it_has_ended(
    client: httpx.AsyncClient, database: Database
) -> None:
    waits = await submit(client)
    await PhaseLog(database).look()
    assert await listed(client, "waits=no_engine") == [waits]
    assert await listed(client, "waits=paused&waits=no_engine&state=queued") == [waits]
    assert await listed(client, "waits=paused") == []
    await run_all(database)
    assert await listed(client, "waits=no_engine") == []
    [phase] = await read(client, f"{BATCHES}/{waits}/phases")
    assert phase["code"] == "no_engine"
    assert phase["at"] <= phase["until"]


async def test_a_batch_is_found_by_the_class_of_its_errors(client: httpx.AsyncClient, database: Database) -> None:
    await submit(client)
    await run_all(database)
    failed = await submit(client)
    await run_all(database, fail={1})
    assert await listed(client, "error=invalid") == [failed]
    assert await listed(client, "error=timeout") == []
    [found] = await read(client, f"{BATCHES}/{failed}/errors")
    assert found == {"error": "invalid", "count": 1, "seq": 1, "code": 5006, "message": "no"}
    assert "error" in await read(client, f"{BATCHES}?error=moon", 400)


async def test_a_batch_is_found_by_the_begin_of_its_name(client: httpx.AsyncClient) -> None:
    file = await uploaded(client, line(1))
    wish = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    names = [{}, {"metadata": {"name": "nightly 100%"}}, {"metadata": {"name": "nightlight"}}]
    made = [(await client.post("/v1/batches", json=wish | more)).json()["id"] for more in names]
    ids = [f"{hex_[:8]}-{hex_[8:12]}-{hex_[12:16]}-{hex_[16:20]}-{hex_[20:]}" for hex_ in (m[6:] for m in made)]
    assert await listed(client, "name=in.js") == [ids[0]]
    assert await listed(client, "name=nightl") == [ids[2], ids[1]]
    assert await listed(client, "name=nightly%20100%25") == [ids[1]]
    assert await listed(client, "name=n%25") == []


async def test_items_are_listed_by_failure_and_page_by_page(client: httpx.AsyncClient, database: Database) -> None:
    batch = await submit(client)
    [first, second] = await read(client, f"{BATCHES}/{batch}/items")
    assert (first["seq"], first["reference"], first["state"], first["finished_at"]) == (0, "a", "waiting", None)
    assert second["state"] == "waiting"
    async with database.durable() as conn:
        await conn.execute("update chunk set state = 'leased', token = 1, worker_id = 1")
        [first, second] = await read(client, f"{BATCHES}/{batch}/items")
        assert (first["state"], second["state"]) == ("with_worker", "with_worker")
        assert (await read(client, f"{BATCHES}/{batch}/items/1"))["state"] == "with_worker"
        await conn.execute("update chunk set seqs = '{1}', n = 1")
        assert [each["state"] for each in await read(client, f"{BATCHES}/{batch}/items")] == ["waiting", "with_worker"]
        await conn.execute("update chunk set state = 'ready', worker_id = null, seqs = null, n = 2, token = 0")
    await run_all(database, fail={1})
    for query in ("failed=true", "error=invalid"):
        [second] = await read(client, f"{BATCHES}/{batch}/items?{query}")
        assert (second["seq"], second["state"], second["error"], second["message"]) == (1, "failed", "invalid", "no")
    assert await read(client, f"{BATCHES}/{batch}/items?error=timeout") == []
    answer = (await client.get(f"{BATCHES}/{batch}/items?limit=1")).json()
    assert [item["state"] for item in answer["result"]] == ["succeeded"]
    assert answer["result_info"] == {"count": 1, "per_page": 1, "cursor": 1}
    assert await read(client, f"{BATCHES}/{batch}/items?after=1") == [second]
    assert await read(client, f"{BATCHES}/{batch}/items/1") == second
    assert await read(client, f"{BATCHES}/{batch}/items/2", 404) == "The batch has no item 2; it has 2, from 0 on"


@pytest.mark.parametrize("part", ["phases", "errors", "items", "items/0"])
async def test_the_history_of_another_accounts_batch_is_unknown(
    client: httpx.AsyncClient, database: Database, part: str
) -> None:
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn, "other"), await support.make_pool(conn, "m")
    batch = await support.submit(database, tenant, pool, 1)
    assert "No batch" in await read(client, f"{BATCHES}/{batch.request_id}/{part}", 404)


async def test_incidents_are_in_words_newest_first_without_hosts_and_other_accounts(
    client: httpx.AsyncClient, database: Database
) -> None:
    await submit(client)
    async with database.durable() as conn:
        other = await support.make_tenant(conn, "other")
        down = {"engine": "east-1", "reason": "engine_down", "host": "gpu-07", "pid": 3}
        await changes.record(conn, ChangeKind.ENGINE_DOWN, "east-1", down)
        await changes.record(conn, ChangeKind.ENGINE_READY, "east-1", {"engine": "east-1"})
        await changes.record(conn, ChangeKind.BUDGET_SPENT, "b", {}, tenant_id=other)
    [ready, died, *started] = await read(client, f"{HISTORY}/incidents")
    assert [each["kind"] for each in started] == ["part.started"]
    assert (ready["kind"], ready["trouble"]) == ("engine.ready", False)
    assert died["message"] == "east-1 does not serve any more: it does not answer"
    assert (died["trouble"], died["ids"], died["facts"]) == (True, {"engine": "east-1"}, {"reason": "engine_down"})
    assert "gpu-07" not in str(died)
    assert [each["kind"] for each in await read(client, f"{HISTORY}/incidents?trouble=true")] == ["engine.down"]


async def test_pages_of_incidents_follow_by_their_cursor(client: httpx.AsyncClient, database: Database) -> None:
    async with database.transaction() as conn:
        for number in range(3):
            await changes.record(conn, ChangeKind.STEWARD_LEADS, str(number), {})
    path, found = f"{HISTORY}/incidents?limit=2", []
    answer = (await client.get(path)).json()
    while answer["result_info"]["cursor"]:
        found += answer["result"]
        answer = (await client.get(f"{path}&after={answer['result_info']['cursor']}")).json()
    assert [each["subject"] for each in [*found, *answer["result"]]] == ["2", "1", "0", "api"]
    assert "after" in await read(client, f"{HISTORY}/incidents?after=x", 400)
    assert "since" in await read(client, f"{HISTORY}/incidents?since=100d", 400)


async def test_an_engine_shows_what_it_did(client: httpx.AsyncClient, database: Database) -> None:
    async with database.durable() as conn:
        await support.make_engine(conn, database, await support.make_pool(conn))
        engine = await engines.id_of(conn, "e")
        assert engine is not None
        await samples.record(conn, engine, SAMPLE, clock.monotonic() - 5)
    found = await read(client, f"{HISTORY}/engines/e/history")
    [sample] = found["samples"]
    assert (sample["batch_tokens"], sample["sync_tokens"], sample["reason"]) == (1000, 500, "open")
    assert "No engine" in await read(client, f"{HISTORY}/engines/moon/history", 404)


async def test_the_decisions_of_an_engine_are_read_page_by_page_by_account_and_operator(
    client: httpx.AsyncClient, database: Database, settings: Settings
) -> None:
    async with database.durable() as conn:
        await support.make_engine(conn, database, await support.make_pool(conn))
        engine = await engines.id_of(conn, "e")
        assert engine is not None
        made = [replace(CHANGE, was_allowance=n, allowance=n + 1) for n in range(5)]
        at = clock.monotonic()
        await decision_log.record(conn, engine, [(at - 10 + n // 2, each) for n, each in enumerate(made)])
        await decision_log.record(conn, engine, [(at, replace(CHANGE, allowance=0, reason="closed_slots"))])
    path, found, cursor = f"{HISTORY}/engines/e/decisions", list[Any](), ""
    while cursor is not None:
        page = (await client.get(f"{path}?limit=2{cursor}")).json()
        found += page["result"]
        cursor = page["result_info"]["cursor"] and f"&after={page['result_info']['cursor']}"
    assert [each["allowance"] for each in found] == [0, 5, 4, 3, 2, 1]
    assert (found[0]["engine"], found[0]["reason"]) == ("e", "closed_slots")
    assert [each["allowance"] for each in await read(client, f"{path}?kind=closed")] == [0]
    assert "kind" in await read(client, f"{path}?kind=open", 400)
    assert "after" in await read(client, f"{path}?after=x", 400)
    assert "No engine" in await read(client, f"{HISTORY}/engines/moon/decisions", 404)
    with_token = settings.model_copy(update={"operator_token": SecretStr("of-the-operator")})
    async with in_process.running(with_token, "of-the-operator") as (_, operator):
        assert await read(operator, "/operator/engines/e/decisions") == found
        assert (await read(operator, "/operator/engines/e/history"))["samples"] == []


async def test_protection_compares_tokens_beside_batch_work_with_those_alone_at_the_same_hours(
    client: httpx.AsyncClient, database: Database
) -> None:
    process = MinuteLatencies(database)
    for _ in range(LEAST_STREAMS):
        process.add(MODEL, beside=True, first_token_ms=120.0, gaps=[0.02])
    process.add(MODEL, beside=False, first_token_ms=100.0, gaps=[0.02])
    await process.store()
    found = await read(client, f"{HISTORY}/protection")
    assert (found["beside"]["requests"], found["all"]["requests"]) == (LEAST_STREAMS, LEAST_STREAMS + 1)
    assert (found["usual_alone"]["requests"], found["first_token_ratio"]) == (1, None)
    assert (found["verdict"], "50 streams beside batch work, 1 alone" in found["headline"]) == ("unmeasured", True)
    async with database.durable() as conn:
        await conn.execute(
            "insert into latency_minute select minute - make_interval(days => 1, mins => x), writer, model, beside, requests,"
            " first_token, gap from latency_minute, generate_series(0, 55) x where not beside"
        )
    found = await read(client, f"{HISTORY}/protection")
    assert found["usual_alone"]["requests"] >= LEAST_STREAMS
    assert found["first_token_ratio"] == pytest.approx(1.2, rel=0.11)
    assert found["verdict"] == "protected"
    assert [stretch["beside"]["requests"] for stretch in found["stretches"]] == [LEAST_STREAMS]
    assert (await read(client, f"{HISTORY}/protection?model={MODEL}"))["all"] == found["all"]


@pytest.fixture
async def operator(settings: Settings, database: Database) -> AsyncIterator[httpx.AsyncClient]:
    """A client with the operator's token. `acme` and `other` each have batches; those of `acme` are the older ones."""
    async with database.durable() as conn:
        pool = await support.make_pool(conn, MODEL)
        made = [await tenants.ensure_tenant(conn, account) for account in ("acme", "other")]
    for tenant in made:
        for _ in range(2):
            await support.submit(database, tenant, pool, 1)
    with_token = settings.model_copy(update={"operator_token": SecretStr("of-the-operator")})
    async with in_process.running(with_token, "of-the-operator") as (_, client):
        yield client


async def test_the_operator_lists_the_batches_of_all_accounts_by_account_and_by_what_they_wait_for(
    operator: httpx.AsyncClient, database: Database
) -> None:
    await PhaseLog(database).look()
    for query in ("", "waits=no_engine&", "state=queued&"):
        found = await read(operator, f"/operator/batches?{query}")
        assert [batch["account"] for batch in found] == ["other", "other", "acme", "acme"]
        assert [batch["account"] for batch in await read(operator, f"/operator/batches?{query}account=acme")] == [
            "acme"
        ] * 2
        seen, cursor = [], ""
        while cursor is not None:
            page = (await operator.get(f"/operator/batches?{query}limit=1{cursor}")).json()
            seen += page["result"]
            cursor = page["result_info"]["cursor"] and f"&after={page['result_info']['cursor']}"
        assert [batch["request_id"] for batch in seen] == [batch["request_id"] for batch in found]
    assert await read(operator, "/operator/batches?waits=paused") == []
    assert "no account moon" in await read(operator, "/operator/batches?account=moon", 404)


async def test_the_operator_looks_at_a_batch_of_any_account_without_messages_that_may_quote_a_request(
    operator: httpx.AsyncClient, database: Database
) -> None:
    [batch, *_] = await read(operator, "/operator/batches?account=other")
    path = f"/operator/batches/{batch['request_id']}"
    assert (await read(operator, path))["status"] == "queued"
    assert (await read(operator, f"{path}/why"))["waiting"]["code"] == "no_engine"
    assert await read(operator, f"{path}/phases") == []
    await run_all(database, fail={0})
    [item] = await read(operator, f"{path}/items")
    assert (item["state"], item["error"], item["message"]) == ("failed", "invalid", "the request is invalid")
    assert await read(operator, f"{path}/items/0") == item
    [error] = await read(operator, f"{path}/errors")
    assert (error["error"], error["count"], error["message"]) == ("invalid", 1, "the request is invalid")
    for part in ("", "/items"):
        assert "No batch" in await read(operator, f"/operator/batches/{UUID(int=7)}{part}", 404)
    assert (await operator.get(f"{path}/results")).status_code == 404


async def test_the_operator_sees_the_usage_and_the_sessions_of_all_accounts_by_account(
    operator: httpx.AsyncClient, settings: Settings, database: Database
) -> None:
    async with database.transaction() as conn:
        await ledger_month.write(conn, catalogue.load(settings.models_file))
    found = await read(operator, "/operator/usage?by=account&since=400d")
    assert {row["account"] for row in found["usage"]} == {"acme"}
    assert (await read(operator, "/operator/sessions?by=account"))["sessions"] == []
    assert (await read(operator, "/operator/usage/explain?by=account"))["changes"] is not None
    for path in ("usage?by=moon", "sessions?by=moon", "usage/explain?by=moon"):
        assert "by" in await read(operator, f"/operator/{path}", 400)


async def test_the_operator_sees_the_incidents_of_all_accounts_with_hosts(
    operator: httpx.AsyncClient, database: Database
) -> None:
    async with database.durable() as conn:
        [(tenant,)] = await (await conn.execute("select tenant_id from tenant where account_id = 'other'")).fetchall()
        await changes.record(conn, ChangeKind.BUDGET_SPENT, "b", {"message": "all gone"}, tenant_id=tenant)
    assert (await read(operator, "/operator/protection"))["all"]["requests"] == 0
    spent, started = await read(operator, "/operator/incidents")
    assert (spent["account"], spent["message"]) == ("other", "budget b is spent: all gone")
    assert started["facts"]["host"]


async def test_without_an_operators_token_the_operators_routes_are_closed(client: httpx.AsyncClient) -> None:
    assert "an operator's token" in await read(client, "/operator/batches", 401)


async def test_an_api_key_does_not_open_the_operators_routes(operator: httpx.AsyncClient, key: str) -> None:
    answer = await operator.get("/operator/batches", headers={"authorization": f"Bearer {key}"})
    assert answer.status_code == 401
