"""Claims about budgets at the API: setting them, what they refuse, and what a waiting batch says."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.budgets import queued
from app.budgets import service as budgets
from app.budgets.rules import Owner
from app.db.pool import Database
from app.engines import catalogue
from app.settings import DEMO_MODELS, Settings
from app.tenants import service as tenants
from testing.fakes.engine import FakeEngine
from tests.api.support import RUN
from tests.api.test_pipelines import URL as PIPELINES
from tests.api.test_pipelines import two
from tests.clock import Clock
from tests.gateway.support import Registry
from tests.queue.support import serve_all

BUDGETS = "/client/v4/accounts/acme/ai/budgets"
CHAT = {"model": "smollm2-135m-instruct", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}
ASK = {"model": "smollm2-135m-instruct", "input": "hello", "max_output_tokens": 16}
QUEUE = RUN + "?queueRequest=true"
OTHER = """
[models.other]
context_window = 8192
capabilities = ["async_queue"]
"""


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    file = tmp_path / "models.toml"
    file.write_text(DEMO_MODELS.read_text() + OTHER)
    return settings.model_copy(update={"models_file": file})


@pytest.fixture
async def engine(database: Database) -> AsyncIterator[FakeEngine]:
    """An engine that a live worker has reported ready."""
    async with FakeEngine() as engine:
        engine.answer_tokens = 6
        await Registry(database).ready(engine)
        yield engine


async def put(client: httpx.AsyncClient, name: str = "b", **terms: object) -> dict[str, Any]:
    answer = await client.put(f"{BUDGETS}/{name}", json=terms)
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]  # type: ignore[no-any-return]


async def test_a_budget_is_set_listed_changed_and_removed(client: httpx.AsyncClient) -> None:
    made = await put(
        client, max_cost="12.50 EUR", period="week", tz="Europe/Berlin", workflow="nightly", alerts_at=[90, 75]
    )
    assert (made["max"], made["currency"], made["workflow"], made["alerts_at"]) == (12.5, "EUR", "nightly", [75, 90])
    assert (made["spent"], made["reserved"], made["available"]) == (0, 0, 12.5)
    await put(client, max_tokens=100)
    [found] = (await client.get(BUDGETS)).json()["result"]
    assert (found["unit"], found["max"], found["scope"]) == ("tokens", 100, "account")
    assert (await client.delete(f"{BUDGETS}/b")).status_code == 200
    assert (await client.get(BUDGETS)).json()["result"] == []
    gone = await client.delete(f"{BUDGETS}/b")
    assert (gone.status_code, gone.json()["errors"][0]["code"]) == (404, 7003)


async def test_a_budget_keeps_its_currency(client: httpx.AsyncClient) -> None:
    await put(client, max_cost="5 EUR")
    for cost in ("5 USD", "7"):  # without a currency it is USD
        answer = await client.put(f"{BUDGETS}/b", json={"max_cost": cost})
        assert answer.status_code == 400, answer.text
        assert "budget 'b' counts what costs EUR, and keeps its currency" in answer.json()["errors"][0]["message"]
    assert (await put(client, max_cost="7 EUR"))["max"] == 7


async def test_a_budget_in_a_currency_without_a_price_is_warned_of(client: httpx.AsyncClient) -> None:
    told = [
        (await client.put(f"{BUDGETS}/{name}", json={"max_cost": f"5 {name.upper()}"})).headers.get(
            "x-slackwater-warning"
        )
        for name in ("chf", "usd")
    ]
    assert told == ["budget chf counts nothing now, as no model has a price in CHF; prices are in USD", None]


async def test_an_account_changes_its_own_budgets_and_not_the_operators(
    client: httpx.AsyncClient, database: Database
) -> None:
    await put(client, "own", max_tokens=100)
    await put(client, "taken", max_tokens=100)
    async with database.transaction() as conn:
        tenant = await tenants.find_tenant(conn, "acme")
        for name in ("taken", "company"):
            await budgets.put(conn, tenant, name, {"max_tokens": 5}, by=Owner.OPERATOR)
    before = (await client.get(BUDGETS)).json()["result"]
    assert {each["name"]: each["owner"] for each in before} == {
        "own": "account",
        "taken": "operator",
        "company": "operator",
    }
    for name in ("taken", "company"):
        for answer in (
            await client.put(f"{BUDGETS}/{name}", json={"max_tokens": 10**9}),
            await client.delete(f"{BUDGETS}/{name}"),
        ):
            [error] = answer.json()["errors"]
            assert (answer.status_code, error["code"]) == (403, 10000)
            assert f"Budget '{name}' belongs to the operator" in error["message"]
    assert (await client.get(BUDGETS)).json()["result"] == before
    assert (await client.delete(f"{BUDGETS}/own")).status_code == 200


@pytest.mark.parametrize(
    ("terms", "problem"),
    [
        ({}, "max_cost: give either max_cost"),
        ({"max_cost": "1", "max_tokens": 1}, "max_cost: give either max_cost"),
        ({"max_cost": "1,000"}, "max_cost: must be an amount like '100 USD' or '0.50', not '1,000'"),
        ({"max_cost": 5}, "max_cost: must be an amount like '100 USD' or '0.50', not 5"),
        ({"max_tokens": 1, "key": ""}, "key: must be the id of a key"),
        ({"max_tokens": 1, "tz": None}, "tz: must be a string, not None"),
        ({"max_cost": "0"}, "max_cost: must be more than 0"),
        ({"max_tokens": -1}, "max_tokens: must be a whole number from 1"),
        ({"max_tokens": 1, "tz": "Mars/Base"}, "tz: time zone 'Mars/Base': unknown"),
        ({"max_tokens": 1, "period": "year"}, "period: must be one of hour, day, week, month, total"),
        ({"max_tokens": 1, "alerts_at": [0]}, "alerts_at: must be whole numbers from 1 to 99"),
        ({"max_tokens": 1, "divert_at": 80}, "divert_at: is said by a rule of the policy now"),
        ({"max_tokens": 1, "fallback": ["no-such"]}, "fallback: is said by a rule of the policy now"),
        ({"max_tokens": 1, "key": "k", "workflow": "w"}, "workflow: a budget has a key or a workflow"),
        ({"max_tokens": 1, "key": "nobody"}, "key: the account has no key 'nobody'"),
        ({"max_tokens": 1, "on_limit": {"queued": "fail"}}, "on_limit.queued: must be one of alert, wait, refuse"),
        ({"max_tokens": 1, "on_limit": "wait"}, "on_limit: must be like"),
        ({"max_tokens": 1, "reserve": True}, "reserve: must be one of expected, maximum"),
        ({"max_tokens": 1, "when_spent": "wait"}, "when_spent: is on_limit now"),
        ({"max_tokens": 1, "soft": [75]}, "soft: is alerts_at now"),
        ({"max_tokens": 1, "strict": True}, "strict: is reserve now"),
        ({"max_tokens": 1, "model": "x"}, "model: unknown; a budget has key, workflow"),
    ],
)
async def test_wrong_terms_are_refused_with_their_place_and_nothing_is_stored(
    client: httpx.AsyncClient, terms: dict[str, object], problem: str
) -> None:
    answer = await client.put(f"{BUDGETS}/b", json=terms)
    [error] = answer.json()["errors"]
    assert (answer.status_code, error["code"]) == (400, 5006)
    assert problem in error["message"]
    assert (await client.get(BUDGETS)).json()["result"] == []


async def test_a_synchronous_request_without_money_gets_429_and_is_not_to_be_retried(
    client: httpx.AsyncClient, engine: FakeEngine, clock: Clock
) -> None:
    await put(client, max_tokens=40)
    await clock.sleep(1.3)  # the process reads the budgets once a second
    answers = [await client.post("/v1/chat/completions", json=CHAT) for _ in range(8)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert answers[0].status_code == 200
    assert refused
    assert refused[0].json()["error"]["code"] == "insufficient_quota"
    assert refused[0].headers["x-should-retry"] == "false"
    native = await client.post(RUN, json={"prompt": "hello", "max_tokens": 8})
    assert (native.status_code, native.json()["errors"][0]["code"]) == (429, 3036)
    await clock.sleep(1.3)
    [budget] = (await client.get(BUDGETS)).json()["result"]
    assert 0 < budget["spent"] <= 40


async def test_a_budget_that_reserves_the_maximum_takes_a_call_that_fills_the_context_window(
    client: httpx.AsyncClient, engine: FakeEngine, clock: Clock
) -> None:
    await put(client, max_tokens=10_000, reserve="maximum")
    await clock.sleep(1.3)  # the process reads the budgets once a second
    words = [{"role": "user", "content": "hello " * 2000}]  # 12,000 bytes; the window is 8,192 tokens
    answer = await client.post("/v1/chat/completions", json=CHAT | {"messages": words})
    assert answer.status_code == 200, answer.text
    several = {
        "model": CHAT["model"],
        "prompt": ["hello " * 1000] * 2,
        "max_tokens": 8,
    }  # each with a window of its own
    refused = await client.post("/v1/completions", json=several)
    assert refused.status_code == 429, refused.text
    assert "and the maximum of budget 'b' is 10,000 tokens; shorten it, lower its max_tokens" in refused.text
    assert "retry-after" not in refused.headers
    assert refused.headers["x-should-retry"] == "false"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", CHAT),
        ("/v1/chat/completions", CHAT | {"stream": True}),
        ("/v1/chat/completions", CHAT | {"service_tier": "flex"}),
        ("/v1/responses", ASK),
        ("/v1/responses", ASK | {"stream": True}),
        ("/v1/responses", ASK | {"background": True}),
        ("/v1/responses", ASK | {"conversation": "new"}),
        ("/v1/responses", ASK | {"conversation": "new", "background": True}),
        (RUN, {"prompt": "hello"}),
        (QUEUE, {"requests": [{"prompt": "hello"}]}),
        (PIPELINES, two()),
    ],
)
async def test_whatever_a_spent_budget_refuses_is_told_which_it_is_and_when_it_is_renewed(
    client: httpx.AsyncClient, database: Database, engine: FakeEngine, clock: Clock, path: str, body: dict[str, Any]
) -> None:
    await put(client, max_tokens=100_000, period="day", on_limit={"queued": "refuse"})
    async with database.durable() as conn:
        await conn.execute("update budget set spent = max")
    await clock.sleep(1.3)  # the process reads the budgets once a second
    if "conversation" in body:
        body = body | {"conversation": (await client.post("/v1/conversations", json={})).json()["id"]}
    answer = await client.post(path, json=body)
    assert answer.status_code == 429, answer.text
    assert "Budget 'b' is used up: 100,000 of 100,000 tokens spent; it is renewed on" in answer.text
    assert 0 < int(answer.headers["retry-after"]) <= 86_400
    assert answer.headers["x-should-retry"] == "false"


async def test_a_batch_that_waits_for_money_says_so_and_when_it_is_renewed(
    client: httpx.AsyncClient, database: Database, settings: Settings, engine: FakeEngine
) -> None:
    await put(client, max_tokens=1000, period="day")
    async with database.durable() as conn:
        await conn.execute("update budget set spent = 990")
    made = await client.post(QUEUE, json={"requests": [{"prompt": "hello", "max_tokens": 100}] * 3})
    request_id = made.json()["result"]["request_id"]
    await serve_all(database)
    assert await queued.reserve(database, catalogue.load(settings.models_file)) == 0
    why = (await client.get(f"/client/v4/accounts/acme/ai/batches/{request_id}/why")).json()["result"]
    assert why["waiting"]["code"] == "budget"
    assert "budget b has 990 of 1,000 tokens spent; 3 items wait for it" in why["waiting"]["message"]
    assert "it renews" in why["waiting"]["message"]
    async with database.relaxed() as conn:
        rows = await (await conn.execute("select kind from event where kind = 'budget.spent'")).fetchall()
    assert len(rows) == 1


async def test_a_batch_that_gave_its_money_back_says_so_and_not_that_it_waits_for_the_next_window(
    client: httpx.AsyncClient, database: Database, settings: Settings, engine: FakeEngine, clock: Clock
) -> None:
    await put(client, max_tokens=1000, period="day")
    await clock.sleep(1.3)  # the process reads the budgets once a second
    for model, most in (("other", 800), ("smollm2-135m-instruct", 180)):
        line = {"requests": [{"prompt": "hello", "max_tokens": most}]}
        made = await client.post(f"/client/v4/accounts/acme/ai/run/{model}?queueRequest=true", json=line)
    await serve_all(database)
    assert await queued.reserve(database, catalogue.load(settings.models_file)) == 2
    assert (await client.post("/v1/chat/completions", json=CHAT | {"max_tokens": 100})).status_code == 200
    batch = f"/client/v4/accounts/acme/ai/batches/{made.json()['result']['request_id']}"
    why = (await client.get(f"{batch}/why")).json()["result"]["waiting"]
    assert why["code"] == "budget"
    assert why["message"].endswith("1 item waits for it; 1 item gave it back to work that could start")


async def test_a_spent_budget_that_refuses_refuses_new_batches_and_what_was_accepted_says_that_it_waits(
    client: httpx.AsyncClient, database: Database
) -> None:
    await put(client, max_tokens=1000, period="day", on_limit={"queued": "refuse"})
    work = {"requests": [{"prompt": "hello", "max_tokens": 10}]}
    made = await client.post(QUEUE, json=work)
    async with database.durable() as conn:
        await conn.execute("update budget set spent = 1000")
    refused = await client.post(QUEUE, json=work)
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (429, 3036)
    assert refused.headers["x-should-retry"] == "false"
    assert int(refused.headers["retry-after"]) > 0
    await serve_all(database)
    batch = f"/client/v4/accounts/acme/ai/batches/{made.json()['result']['request_id']}"
    assert (await client.get(f"{batch}/why")).json()["result"]["waiting"]["code"] == "budget"
    await client.post(f"{batch}/cancel")
    assert (await client.post(f"{batch}/retry")).status_code == 200


async def test_a_budget_refuses_when_its_event_says_so_and_never_for_what_is_only_reserved(
    client: httpx.AsyncClient, database: Database, settings: Settings
) -> None:
    terms = {"period": "day", "on_limit": {"queued": "refuse"}}
    await put(client, max_tokens=1000, **terms)
    work = {"requests": [{"prompt": "hello", "max_tokens": 100}] * 3}
    async with database.durable() as conn:
        await conn.execute("update budget set spent = 10, reserved = 990")
    assert (await client.post(QUEUE, json=work)).status_code == 200
    async with database.durable() as conn:
        await conn.execute("update budget set spent = 990, reserved = 0")
    assert (await client.post(QUEUE, json=work)).status_code == 200
    await serve_all(database)
    assert await queued.reserve(database, catalogue.load(settings.models_file)) == 0
    async with database.relaxed() as conn:
        [(event,)] = await (await conn.execute("select data from event where kind = 'budget.spent'")).fetchall()
    assert "New batches are refused until" in str(event)
    refused = await client.post(QUEUE, json=work)
    said = (
        "Budget 'b' has too little left: 990 of 1,000 tokens spent, and the rest is too small for the work that waits"
    )
    assert refused.status_code == 429
    assert f"{said}; it is renewed on" in refused.text
    await put(client, max_tokens=2000, **terms)
    assert (await client.post(QUEUE, json=work)).status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (QUEUE, {"requests": [{"prompt": "hello"}]}),
        (
            "/v1/batches",
            {
                "requests": [{"custom_id": "a", "body": CHAT}],
                "endpoint": "/v1/chat/completions",
                "completion_window": "24h",
            },
        ),
        ("/v1/responses", ASK | {"background": True}),
        (PIPELINES, two()),
    ],
)
async def test_a_repeated_submit_finds_what_was_accepted_whatever_its_budget_says_by_now(
    client: httpx.AsyncClient, database: Database, path: str, body: dict[str, Any]
) -> None:
    terms = {"on_limit": {"queued": "refuse"}}
    await put(client, max_tokens=100_000, **terms)

    async def submitted() -> str:
        answer = await client.post(path, json=body, headers={"idempotency-key": "one"})
        assert answer.status_code == 200, answer.text
        found = answer.json()
        return str(found["result"]["request_id"] if "result" in found else found["id"])

    first = await submitted()
    async with database.durable() as conn:
        await conn.execute("update budget set spent = max")
    assert await submitted() == first
    async with database.durable() as conn:
        await conn.execute("update budget set spent = 0")
    await put(client, max_tokens=1, **terms)  # no item fits into it
    assert await submitted() == first


async def test_work_of_a_model_without_an_engine_waits_for_the_engine_and_keeps_no_money(
    client: httpx.AsyncClient, database: Database, settings: Settings
) -> None:
    await put(client, max_tokens=1000)
    made = await client.post(QUEUE, json={"requests": [{"prompt": "hello", "max_tokens": 10}]})
    request_id = made.json()["result"]["request_id"]
    assert await queued.reserve(database, catalogue.load(settings.models_file)) == 0
    why = (await client.get(f"/client/v4/accounts/acme/ai/batches/{request_id}/why")).json()["result"]
    assert why["waiting"]["code"] == "no_engine"
    [budget] = (await client.get(BUDGETS)).json()["result"]
    assert (budget["spent"], budget["reserved"], budget["available"]) == (0, 0, 1000)


async def test_an_item_that_no_window_can_pay_is_refused_and_nothing_is_stored(client: httpx.AsyncClient) -> None:
    await put(client, max_tokens=100)
    answer = await client.post(QUEUE, json={"requests": [{"prompt": "hi"}, {"prompt": "hello", "max_tokens": 500}]})
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (400, 5006)
    assert "budget 'b'" in answer.json()["errors"][0]["message"]
    assert (await client.get("/client/v4/accounts/acme/ai/batches")).json()["result"] == []


async def test_the_metrics_show_budgets_and_what_waits(
    client: httpx.AsyncClient, database: Database, settings: Settings
) -> None:
    await put(client, max_tokens=1000)
    await client.post(QUEUE, json={"requests": [{"prompt": "hello", "max_tokens": 10}]})
    await serve_all(database)
    async with database.durable() as conn:
        await conn.execute("update budget set spent = 990")
    await queued.reserve(database, catalogue.load(settings.models_file))
    text = (await client.get("/metrics")).text
    assert 'slackwater_budget_spent_ratio{budget="acme/b"} 0.99' in text
    assert 'slackwater_unreserved_chunks{model="smollm2-135m-instruct"} 1.0' in text


async def test_the_estimate_of_a_file_says_near_which_request_the_money_ends(
    client: httpx.AsyncClient, database: Database
) -> None:
    line = {"custom_id": "", "method": "POST", "url": "/v1/chat/completions", "body": CHAT}
    lines = "\n".join(json.dumps(line | {"custom_id": f"c{n}"}) for n in range(10))
    made = await client.post("/v1/files", data={"purpose": "batch"}, files={"file": ("input.jsonl", lines)})
    estimate = f"/v1/files/{made.json()['id']}/estimate"
    assert (await client.get(estimate)).json()["budget"] is None
    await put(client, max_tokens=100)
    budget = (await client.get(estimate)).json()["budget"]
    assert (budget["name"], budget["available"]) == ("b", 100)
    assert budget["needed"] > 100
    assert budget["ends_near_request"] == int(10 * 100 / budget["needed"])
    await put(client, max_tokens=100, workflow="nightly")
    assert (await client.get(estimate)).json()["budget"] is None
    found = (await client.get(estimate, headers={"x-slackwater-workflow": "nightly"})).json()["budget"]
    assert found["name"] == "b"
    refuses = {"max_tokens": 10**6, "on_limit": {"queued": "refuse"}}
    await put(client, **refuses)
    assert (await client.get(estimate)).json()["budget"] is None
    async with database.durable() as conn:
        await conn.execute("update budget set spent = max")
    found = (await client.get(estimate)).json()["budget"]
    assert (found["name"], found["refused"], found["ends_near_request"]) == ("b", True, 0)
    await put(client, max_tokens=1, on_limit={"queued": "alert"})
    assert (await client.get(estimate)).json()["budget"] is None  # nothing would wait


async def test_what_is_retried_waits_for_money_too(client: httpx.AsyncClient, database: Database) -> None:
    made = await client.post(QUEUE, json={"requests": [{"prompt": "hello", "max_tokens": 10}] * 3})
    batch = f"/client/v4/accounts/acme/ai/batches/{made.json()['result']['request_id']}"
    await client.post(f"{batch}/cancel")
    await put(client, max_tokens=1000)
    assert (await client.post(f"{batch}/retry")).status_code == 200
    async with database.relaxed() as conn:
        rows = await (
            await conn.execute("select state, budgets is not null, maximum_tokens >= n * 10 from chunk")
        ).fetchall()
    assert set(rows) == {("unreserved", True, True)}
