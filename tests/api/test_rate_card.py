"""Claims about rate cards at the API: each request costs the price of its kind of work on the day of its submit."""

import asyncio
import csv
import io
from collections.abc import AsyncIterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from app import clock
from app.db.pool import Database
from app.settings import Settings
from testing.fakes.engine import FakeEngine
from testing.waiting import eventually
from tests.api import in_process
from tests.api.support import BATCHES, MODEL, RUN, SUBMIT, run_all, uploaded
from tests.gateway.support import Registry

AI = "/client/v4/accounts/acme/ai"
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}
ONE = {"requests": [{"prompt": "hello", "max_tokens": 8}]}
TOKENS = 8  # of a prompt and its answer, as `run_all` plays them


def card(**prices: str) -> str:
    """A models file. The price of a token of each kind of work in 10^-6 of a dollar, some with a date."""
    text = f'[models."{MODEL}"]\ncontext_window = 8192\ncapabilities = ["async_queue"]\n'
    for work, written in prices.items():
        price, _, begins = written.partition(" from ")
        dated = f"from = {begins}\n" if begins else ""
        each = f"input = {price}\ncached_input = {price}\noutput = {price}\n"
        text += f'[[models."{MODEL}".prices]]\nwork = ["{work.removesuffix("_later")}"]\n{dated}{each}'
    return text


@pytest.fixture
async def priced(settings: Settings, key: str, database: Database, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """The API with a card: 8 for calls, 6 for flex, 4 for batches, 2 for idle work; in two days half of that for idle work."""
    file, later = tmp_path / "models.toml", f"1 from {clock.now() + timedelta(days=2):%Y-%m-%d}"
    file.write_text(card(sync="8", flex="6", batch="4", idle="2", idle_later=later))
    async with in_process.running(settings.model_copy(update={"models_file": file}), key) as (_, client):
        yield client


async def lines(database: Database) -> set[tuple[str, int]]:
    """The kinds of work that the ledger knows, with the price of a token in 10^-6 of a dollar."""
    async with database.relaxed() as conn:
        rows = await (await conn.execute("select kind, price_in / 1000000, currency from line")).fetchall()
    assert {currency for *_, currency in rows} == {"USD"}
    return {(kind, price) for kind, price, _ in rows}


async def file_batch(client: httpx.AsyncClient) -> str:
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": CHAT}
    given = {"endpoint": "/v1/chat/completions", "completion_window": "24h"}
    made = await client.post("/v1/batches", json={"input_file_id": await uploaded(client, orjson.dumps(line)), **given})
    assert made.status_code == 200, made.text
    return str(made.json()["id"])


async def test_each_kind_of_work_is_charged_at_its_own_price(priced: httpx.AsyncClient, database: Database) -> None:
    assert (await priced.post(SUBMIT, json=ONE)).status_code == 200
    assert await lines(database) == {("batch", 2)}
    assert (await priced.post(f"{SUBMIT}&completion_window=2h", json=ONE)).status_code == 200
    assert await lines(database) == {("batch", 2), ("batch", 4)}
    background = {"model": MODEL, "input": "hello", "background": True}
    assert (await priced.post("/v1/responses", json=background)).status_code == 200
    stage = {"id": "a", "model": MODEL, "body": {"messages": [{"role": "user", "content": "{{item.text}}"}]}}
    pipeline = {"name": "p", "input": {"items": [{"custom_id": "a", "text": "x"}]}, "stages": [stage]}
    made = await priced.post("/v1/pipelines", json=pipeline)
    assert made.status_code == 200, made.text
    assert await lines(database) >= {("response", 2), ("stage", 4)}


async def test_a_flex_call_costs_its_price_and_a_call_the_dearest(
    priced: httpx.AsyncClient, database: Database
) -> None:
    async with FakeEngine() as engine:
        await Registry(database).ready(engine)
        answer = (await priced.post("/v1/chat/completions", json=CHAT)).json()
    assert answer["usage"]["cost"] == pytest.approx(8e-6 * answer["usage"]["total_tokens"])
    call = asyncio.create_task(priced.post("/v1/chat/completions", json={**CHAT, "service_tier": "flex"}))

    async def queued() -> int:
        async with database.relaxed() as conn:
            [(found,)] = await (await conn.execute("select count(*) from batch")).fetchall()
        return int(found)

    await eventually(queued, until=lambda found: found == 1)
    await run_all(database)
    assert (await call).json()["usage"]["cost"] == pytest.approx(6e-6 * TOKENS)
    assert ("flex", 6) in await lines(database)


async def test_what_is_queued_keeps_and_shows_its_price_when_a_later_one_holds(
    priced: httpx.AsyncClient, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = (await priced.post(SUBMIT, json=ONE)).json()["result"]["request_id"]
    of_file = await file_batch(priced)
    now = clock.now
    monkeypatch.setattr(clock, "now", lambda: now() + timedelta(days=2))
    new = (await priced.post(SUBMIT, json=ONE)).json()["result"]["request_id"]
    assert await lines(database) == {("batch", 2), ("batch", 4), ("batch", 1)}
    monkeypatch.setattr(clock, "now", now)
    await run_all(database)
    async with database.durable() as conn:  # its submit was two days later, and that of the others was not
        await conn.execute("update batch set created_at = created_at + interval '2 days' where request_id = %s", [new])
    monkeypatch.setattr(clock, "now", lambda: now() + timedelta(days=2))

    async def cost(request_id: str) -> float:
        shown = (await priced.get(f"{BATCHES}/{request_id}")).json()["result"]
        polled = (await priced.post(SUBMIT, json={"request_id": request_id})).json()["result"]
        assert shown["usage"]["cost"] == polled["usage"]["cost"] == polled["responses"][0]["result"]["usage"]["cost"]
        return float(polled["usage"]["cost"])

    assert await cost(old) == pytest.approx(2e-6 * TOKENS)
    assert await cost(new) == pytest.approx(1e-6 * TOKENS)
    batch = (await priced.get(f"/v1/batches/{of_file}")).json()
    assert batch["usage"]["cost"] == pytest.approx(4e-6 * TOKENS)
    line = (await priced.get(f"/v1/files/{batch['output_file_id']}/content")).json()
    assert line["response"]["body"]["usage"]["cost"] == pytest.approx(4e-6 * TOKENS)


async def test_the_rate_card_is_a_report(priced: httpx.AsyncClient) -> None:
    rows = (await priced.get(f"{AI}/prices")).json()["result"]
    assert [(row["model"], row["work"], row["input"]) for row in rows] == [
        (MODEL, "sync", 8),
        (MODEL, "flex", 6),
        (MODEL, "batch", 4),
        (MODEL, "idle", 2),
        (MODEL, "idle", 1),
    ]
    assert rows[3]["from"] is None
    assert rows[3]["until"] == rows[4]["from"] is not None


async def exported(client: httpx.AsyncClient, **query: str) -> list[dict[str, Any]]:
    answer = await client.get(f"{AI}/usage/export", params=query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/csv")
    return list(csv.DictReader(io.StringIO(answer.text)))


async def test_focus_has_the_list_cost_of_calls_beside_what_queued_work_cost(
    priced: httpx.AsyncClient, database: Database
) -> None:
    async with FakeEngine() as engine:
        await Registry(database).ready(engine)
        assert (await priced.post(RUN, json={"prompt": "hello"})).status_code == 200
    assert (await priced.post(SUBMIT, json=ONE)).status_code == 200
    await file_batch(priced)
    await run_all(database)
    usage = f"{AI}/usage?by=kind"

    async def counted() -> int:
        return sum(row["requests"] for row in (await priced.get(usage)).json()["result"]["usage"])

    await eventually(counted, until=lambda requests: requests == 3)
    [harvested] = (await priced.get(usage)).json()["result"]["harvested"]
    assert harvested["cost"] == pytest.approx((2 + 4) * 1e-6 * TOKENS)
    assert harvested["list_cost"] == pytest.approx((8 + 8) * 1e-6 * TOKENS)
    sums: dict[Decimal, int] = {}
    for row in await exported(priced, since="24h"):
        tokens, effective = int(row["PricingQuantity"]), Decimal(row["EffectiveCost"])
        assert Decimal(row["ListCost"]) == tokens * Decimal(row["ListUnitPrice"]) == tokens * Decimal("0.000008")
        assert effective == Decimal(row["BilledCost"]) == tokens * Decimal(row["ContractedUnitPrice"])
        each = effective / tokens
        sums[each] = sums.get(each, 0) + tokens
        assert row["x_Kind"] == ("sync" if each == Decimal("0.000008") else "batch")
    assert sums.keys() == {Decimal("0.000008"), Decimal("0.000004"), Decimal("0.000002")}
    assert sums[Decimal("0.000004")] == sums[Decimal("0.000002")] == TOKENS
    for row in await exported(priced, since="24h", format="csv"):
        assert Decimal(row["list_cost"]) == Decimal("0.000008") * (int(row["prompt"]) + int(row["output"]))
    refused = await priced.get(f"{AI}/usage/export", params={"format": "xml"})
    assert (refused.status_code, refused.json()["errors"][0]["message"][:15]) == (400, "format: must be")
