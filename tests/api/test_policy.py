"""Claims about the policy on every route: the model that answers is never silent; what is denied is refused, or fails alone."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import orjson
import pytest

from app.crypto import secret_key
from app.db.pool import Database
from app.engines import catalogue
from app.policy import service as policies
from app.settings import Settings
from app.tenants import service as tenants
from testing.fakes.engine import FakeEngine
from tests.api import in_process
from tests.api.support import BATCHES, NEW_SUBSCRIPTION, SUBSCRIPTIONS, frames, run_all, uploaded
from tests.gateway.support import Registry

SMALL, KIMI = "smollm2-135m-instruct", "@cf/moonshotai/kimi-k2.6"
CHAT = {"model": KIMI, "messages": [{"role": "user", "content": "hello"}]}
AI = "/client/v4/accounts/acme/ai"
HEADER = "x-slackwater-policy"
Apply = Callable[[str], Awaitable[int]]


@pytest.fixture
async def apply(database: Database, settings: Settings, client: httpx.AsyncClient) -> Apply:
    """Puts a policy in force, and lets this process read it."""

    async def put(text: str) -> int:
        async with database.transaction() as conn:
            version, _ = await policies.apply(conn, text, catalogue.load(settings.models_file), "test")
        await in_process.application().state.parts.admission.policy.renew()
        return version.policy_id

    return put


@pytest.fixture
async def engine(database: Database) -> AsyncIterator[FakeEngine]:
    """An engine that a live worker has reported ready."""
    async with FakeEngine() as engine:
        await Registry(database).ready(engine)
        yield engine


def rule(name: str, actions: str, when: str = "") -> str:
    return f'[[rule]]\nid = "{name}"\nwhen = {{ {when} }}\n{actions}\n'


TO_SMALL = rule("small", f'route = "{SMALL}"', f'model = "{KIMI}", task = "extract"')
EXTRACT = {"x-slackwater-task": "extract"}


def file_line(custom_id: str, **body: Any) -> bytes:
    whole = {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": CHAT | body}
    return orjson.dumps(whole) + b"\n"


async def of_file(client: httpx.AsyncClient, content: bytes, **more: str) -> httpx.Response:
    asked = {
        "input_file_id": await uploaded(client, content),
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
    }
    return await client.post("/v1/batches", json=asked | more, headers=EXTRACT)


async def test_a_synchronous_request_is_routed_by_its_task_and_says_by_which_rule_and_to_which_model(
    client: httpx.AsyncClient, apply: Apply, engine: FakeEngine
) -> None:
    number = await apply(TO_SMALL)
    usual = await client.post("/v1/chat/completions", json=CHAT)
    assert HEADER not in usual.headers
    routed = await client.post("/v1/chat/completions", json=CHAT, headers=EXTRACT)
    assert routed.headers[HEADER] == f"{number}; rule=small; model={SMALL}"
    assert usual.json()["usage"]["cost"] > 5 * routed.json()["usage"]["cost"]  # each at its own price
    stream = await client.post("/v1/chat/completions", json=CHAT | {"stream": True}, headers=EXTRACT)
    assert stream.headers[HEADER] == routed.headers[HEADER]
    native = await client.post(f"{AI}/run/{KIMI}", json={"prompt": "hello"}, headers=EXTRACT)
    assert native.headers[HEADER] == routed.headers[HEADER]
    assert "choices" in native.json()["result"]  # in the form of the model that was asked for


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("chat/completions", {"messages": CHAT["messages"]}),
        ("chat/completions", {"messages": CHAT["messages"], "stream": True}),
        ("chat/completions", {"messages": CHAT["messages"], "service_tier": "flex"}),
        ("completions", {"prompt": "hello"}),
        ("responses", {"input": "hello"}),
        ("responses", {"input": "hello", "background": True}),
    ],
)
async def test_a_denied_request_is_refused_on_every_route_and_nothing_is_stored(
    client: httpx.AsyncClient, apply: Apply, database: Database, route: str, body: dict[str, Any]
) -> None:
    await apply(rule("closed", 'deny = "nights only"\ncontact = "ops@example.com"', 'account = "acme"'))
    answer = await client.post(f"/v1/{route}", json={"model": KIMI} | body)
    assert answer.status_code == 403
    assert answer.json()["errors"] == [
        {"code": 3023, "message": "Policy rule closed denies this request: nights only. Ask ops@example.com."}
    ]
    assert answer.json()["error"]["code"] == "policy_denied"
    assert answer.headers["x-should-retry"] == "false"
    assert await stored(database) == 0


async def stored(database: Database) -> int:
    async with database.relaxed() as conn:
        row = await (
            await conn.execute("select (select count(*) from batch) + (select count(*) from item_payload)")
        ).fetchone()
    assert row is not None
    return int(row[0])


async def test_one_denied_item_refuses_a_submit_and_names_its_place(
    client: httpx.AsyncClient, apply: Apply, database: Database
) -> None:
    await apply(rule("no-shell", 'deny = { tools = ["shell"] }'))
    shell = {"prompt": "x", "tools": [{"type": "function", "function": {"name": "shell"}}]}
    items = {"requests": [{"prompt": "x"}, shell]}
    answer = await client.post(f"{AI}/run/{KIMI}?queueRequest=true", json=items)
    assert answer.status_code == 403
    assert answer.json()["errors"][0]["message"] == "requests[1]: Policy rule no-shell does not allow the tool shell."
    assert await stored(database) == 0


async def test_a_model_that_is_not_allowed_has_an_error_of_its_own(client: httpx.AsyncClient, apply: Apply) -> None:
    await apply(rule("small-only", f'allow = {{ models = ["{SMALL}"] }}'))
    answer = await client.post("/v1/chat/completions", json=CHAT)
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (403, 5018)
    assert answer.json()["error"]["code"] == "model_not_allowed"


async def test_a_batch_keeps_the_rule_and_the_model_and_its_results_name_the_model(
    client: httpx.AsyncClient, apply: Apply, database: Database
) -> None:
    number = await apply(TO_SMALL + rule("chain", 'fallback = ["@cf/openai/gpt-oss-20b"]'))
    items = {"requests": [{"prompt": "a"}, {"prompt": "b"}]}
    queued = await client.post(f"{AI}/run/{KIMI}?queueRequest=true", json=items, headers=EXTRACT)
    assert queued.headers[HEADER] == f"{number}; rule=small,chain; model={SMALL}"
    assert queued.json()["result"]["model"] == SMALL
    request_id = queued.json()["result"]["request_id"]
    await apply("")  # a batch keeps what was decided at its submit
    await run_all(database)
    shown = (await client.get(f"{BATCHES}/{request_id}")).json()["result"]
    assert (shown["model"], shown["policy"]) == (
        SMALL,
        {"id": number, "rules": ["small", "chain"], "asked": KIMI, "fallback": ["@cf/openai/gpt-oss-20b"]},
    )
    results = (await client.post(f"{AI}/run/{KIMI}", json={"request_id": request_id})).json()["result"]["responses"]
    assert {each["model"] for each in results} == {SMALL}
    assert all("choices" in each["result"] for each in results)  # in the form of the model that was asked for
    usage = (await client.get(f"{AI}/usage", params={"by": "model"})).json()["result"]["usage"]
    assert [(row["model"], row["requests"]) for row in usage] == [(SMALL, 2)]


async def test_items_of_one_batch_go_to_different_models_by_their_size(
    client: httpx.AsyncClient, apply: Apply, database: Database
) -> None:
    await apply(rule("short", f'route = "{SMALL}"', 'est_tokens = "<=400"'))
    items = {"requests": [{"prompt": "word " * 2000}, {"prompt": "a"}]}
    queued = await client.post(f"{AI}/run/{KIMI}?queueRequest=true", json=items)
    await run_all(database)
    request_id = queued.json()["result"]["request_id"]
    results = (await client.post(f"{AI}/run/{KIMI}", json={"request_id": request_id})).json()["result"]["responses"]
    assert [each["model"] for each in results] == [KIMI, SMALL]
    usage = (await client.get(f"{AI}/usage", params={"by": "model"})).json()["result"]["usage"]
    assert {(row["model"], row["requests"]) for row in usage} == {(KIMI, 1), (SMALL, 1)}
    shown = (await client.get(f"{BATCHES}/{request_id}")).json()["result"]
    assert shown["policy"]["models"] == [KIMI, SMALL]
    assert "cost" not in shown["usage"]  # their prices differ, so the sum has no price of its own
    assert [each["result"]["usage"]["cost"] > 0 for each in results] == [True, True]


async def test_lines_of_a_batch_file_are_routed_and_a_denied_line_fails_alone(
    client: httpx.AsyncClient, apply: Apply, database: Database
) -> None:
    shell = {"tools": [{"type": "function", "function": {"name": "shell"}}]}
    number = await apply(TO_SMALL + rule("no-shell", 'deny = { tools = ["shell"] }'))
    made = await of_file(client, file_line("a") + file_line("b", **shell))
    assert made.headers[HEADER] == f"{number}; rule=small,no-shell; model={SMALL}"
    assert (made.json()["model"], made.json()["policy"]["asked"]) == (SMALL, KIMI)
    await run_all(database, fail={1})
    ended = (await client.get(f"/v1/batches/{made.json()['id']}")).json()
    assert (ended["status"], ended["request_counts"]) == ("completed", {"total": 2, "completed": 1, "failed": 1})


async def test_a_single_queued_request_is_routed_and_says_so(client: httpx.AsyncClient, apply: Apply) -> None:
    number = await apply(TO_SMALL)
    body = {"model": KIMI, "input": "hello", "background": True}
    answer = await client.post("/v1/responses", json=body, headers=EXTRACT)
    assert answer.headers[HEADER] == f"{number}; rule=small; model={SMALL}"
    assert answer.json()["model"] == SMALL


async def test_a_repeated_submit_finds_its_batch_although_the_policy_has_changed(
    client: httpx.AsyncClient, apply: Apply
) -> None:
    url, once = f"{AI}/run/{KIMI}?queueRequest=true", EXTRACT | {"idempotency-key": "night-1"}
    items = {"requests": [{"prompt": "a"}]}
    first = await client.post(url, json=items, headers=once)
    await apply(TO_SMALL + rule("short", "max_tokens = 5"))
    again = await client.post(url, json=items, headers=once)
    assert again.json()["result"] == first.json()["result"]
    assert HEADER not in again.headers  # nothing was decided about the batch that it found
    background = {"model": KIMI, "input": "hello", "background": True}
    routed = await client.post("/v1/responses", json=background, headers=EXTRACT | {"idempotency-key": "b"})
    await apply("")
    same = await client.post("/v1/responses", json=background, headers=EXTRACT | {"idempotency-key": "b"})
    assert same.json()["id"] == routed.json()["id"]


async def test_an_answer_is_cut_to_the_limit_and_the_engine_is_told(
    client: httpx.AsyncClient, apply: Apply, engine: FakeEngine
) -> None:
    await apply(rule("short", "max_tokens = 7"))
    assert (await client.post("/v1/chat/completions", json=CHAT | {"max_tokens": 500})).status_code == 200
    assert engine.bodies[-1]["max_tokens"] == 7


async def test_a_window_and_a_priority_apply_to_work_that_names_none(
    client: httpx.AsyncClient, apply: Apply, database: Database
) -> None:
    await apply(
        rule("nightly", 'window = "2h"', 'workflow = "w"') + rule("first", 'priority = "high"', 'task = "urgent"')
    )
    items = {"requests": [{"prompt": "a"}]}
    url = f"{AI}/run/{SMALL}?queueRequest=true"
    await client.post(url, json=items, headers={"x-slackwater-workflow": "w"})
    await client.post(f"{url}&completion_window=1h", json=items, headers={"x-slackwater-workflow": "w"})
    await client.post(url, json=items, headers={"x-slackwater-task": "urgent"})
    query = "select round(extract(epoch from deadline - created_at))::int, expires_at is not null from batch order by batch_id"
    async with database.relaxed() as conn:
        assert await (await conn.execute(query)).fetchall() == [(7200, True), (3600, True), (600, False)]


async def test_a_request_goes_to_its_fallback_when_no_engine_of_its_model_has_room(
    settings: Settings, database: Database, key: str, tmp_path: Any
) -> None:
    models = tmp_path / "models.toml"
    models.write_text(
        "".join(
            f'[models."{name}"]\ncontext_window = 8192\ncapabilities = ["async_queue"]\n'
            for name in ("large", "little")
        )
    )
    own = settings.model_copy(update={"models_file": models, "line_seconds": 0.2})
    async with FakeEngine(model="little") as engine, in_process.running(own, key) as (app, client):
        await Registry(database).ready(engine)
        async with database.transaction() as conn:
            text = rule("chain", 'fallback = ["little"]', "critical = false")
            await policies.apply(conn, text, catalogue.load(models), "test")
        await app.state.parts.admission.policy.renew()
        asked = {"model": "large", "messages": CHAT["messages"]}
        careful = await client.post("/v1/chat/completions", json=asked)
        assert careful.status_code == 503
        for stream in (False, True):
            loose = {"x-slackwater-critical": "false"}
            answer = await client.post("/v1/chat/completions", json=asked | {"stream": stream}, headers=loose)
            assert answer.headers[HEADER].endswith("; rule=chain; model=little"), answer.text
            if stream:
                assert frames(answer.text)[-1] == "[DONE]"


async def test_a_rule_that_observes_changes_nothing(
    client: httpx.AsyncClient, apply: Apply, engine: FakeEngine
) -> None:
    await apply(rule("watch", "observe = true\ndeny = true"))
    answer = await client.post("/v1/chat/completions", json=CHAT)
    assert answer.status_code == 200
    assert HEADER not in answer.headers
    assert 'slackwater_policy_matches_total{effect="observed",rule="watch"}' in (await client.get("/metrics")).text


async def test_a_key_gives_its_labels_to_every_request_and_a_header_cannot_contradict_it(
    settings: Settings, database: Database, client: httpx.AsyncClient, apply: Apply, engine: FakeEngine
) -> None:
    async with database.transaction() as conn:
        pins = {"workflow": "billing", "critical": "false"}
        pinned = await tenants.create_key(conn, secret_key(settings), "acme", "pinned", pins=pins)
    bearer = {"authorization": f"Bearer {pinned}"}
    await apply(rule("billing", "max_tokens = 5", 'workflow = "billing", critical = false'))
    assert HEADER in (await client.post("/v1/chat/completions", json=CHAT, headers=bearer)).headers
    tagged = {"cf-aig-metadata": '{"workflow": "search"}'}
    assert HEADER in (await client.post("/v1/chat/completions", json=CHAT, headers=bearer | tagged)).headers
    wrong = await client.post("/v1/chat/completions", json=CHAT, headers=bearer | {"x-slackwater-workflow": "search"})
    assert wrong.status_code == 400
    assert "this key is pinned to workflow billing; leave the header out" in wrong.text
    assert HEADER not in (await client.post("/v1/chat/completions", json=CHAT)).headers


async def test_an_account_sees_the_rules_about_it_and_tries_a_policy_on_its_own_requests(
    client: httpx.AsyncClient, apply: Apply, engine: FakeEngine
) -> None:
    number = await apply(rule("mine", "max_tokens = 5") + rule("others", "deny = true", 'account = "other"'))
    shown = (await client.get(f"{AI}/policy")).json()["result"]
    assert (shown["version"], [each["id"] for each in shown["rules"]]) == (number, ["mine"])
    for _ in range(3):
        await client.post("/v1/chat/completions", json=CHAT | {"max_tokens": 5}, headers=EXTRACT)
    await client.post(f"{AI}/run/{KIMI}?queueRequest=true", json={"requests": [{"prompt": "a"}] * 10}, headers=EXTRACT)
    await in_process.application().state.parts.admission.samples.store()
    tried = await client.post(f"{AI}/policy/test", json={"policy": TO_SMALL, "last": "1h"})
    recent, waiting = tried.json()["result"]["recent"], tried.json()["result"]["open"]
    assert recent["requests"] == 13
    assert recent["rules"] == [{"rule": "small", "matched": 13, "denied": 0, "rerouted": 13, "observed": 0}]
    assert recent["moved"] == [{"from": KIMI, "to": SMALL, "requests": 13}]
    assert recent["cost"][0]["before"] > 5 * recent["cost"][0]["after"] > 0
    assert (waiting["requests"], waiting["rules"][0]["matched"]) == (10, 10)
    wrong = await client.post(f"{AI}/policy/test", json={"policy": '[[rule]]\nid = "x"\nroute = "nothing"\n'})
    assert (wrong.status_code, "line 3: rule x, route: no such model" in wrong.text) == (400, True)


async def test_a_webhook_to_a_host_that_no_rule_allows_is_not_registered(
    client: httpx.AsyncClient, apply: Apply
) -> None:
    await apply(rule("hosts", 'allow = { webhook_hosts = ["127.0.0.1", ".clinic.example"] }', 'account = "acme"'))
    for url, status in (("http://127.0.0.1:9/hook", 200), ("http://127.0.0.2:9/hook", 403)):
        new = NEW_SUBSCRIPTION | {"destination": {"type": "webhook", "url": url}}
        assert (await client.post(SUBSCRIPTIONS, json=new)).status_code == status, url
        other = {"name": "mine", "url": url, "event_types": ["batch.completed"]}
        answer = await client.post("/v1/webhook_endpoints", json=other)
        assert answer.status_code == status, answer.text
    assert "Policy rule hosts does not allow webhooks to 127.0.0.2" in answer.text


async def test_the_test_of_a_webhook_that_a_later_rule_forbids_names_the_rule_and_whom_to_ask(
    client: httpx.AsyncClient, apply: Apply
) -> None:
    new = {"name": "mine", "url": "http://127.0.0.2:9/hook", "event_types": ["batch.completed"]}
    made = (await client.post("/v1/webhook_endpoints", json=new)).json()["id"]
    await apply(
        rule("hosts", 'allow = { webhook_hosts = ["127.0.0.1"] }\ncontact = "it@clinic.example"', 'account = "acme"')
    )
    answer = await client.post(f"/v1/webhook_endpoints/{made}/test", json={"event_type": "batch.completed"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "policy_denied")
    assert "Policy rule hosts does not allow webhooks to 127.0.0.2" in answer.text
    assert "Ask it@clinic.example." in answer.text


async def test_events_name_the_model_that_answers_and_the_rules_that_chose_it(
    client: httpx.AsyncClient, apply: Apply, database: Database
) -> None:
    await apply(TO_SMALL)
    queue = {"name": "all", "source": {"type": "workersAi.model"}, "events": ["batch.queued", "batch.succeeded"]}
    queue["destination"] = {"type": "queues.queue", "queue_id": "nightly"}
    assert (await client.post(SUBSCRIPTIONS, json=queue)).status_code == 200
    for headers in (EXTRACT, {}):
        await client.post(f"{AI}/run/{KIMI}?queueRequest=true", json={"requests": [{"prompt": "a"}]}, headers=headers)
    await run_all(database)
    found = (await client.get("/client/v4/accounts/acme/events")).json()["result"]
    bodies = [orjson.loads(each["body"]) if isinstance(each["body"], str) else each["body"] for each in found]
    told = [(body["source"]["modelName"], body["payload"].get("policyRules")) for body in bodies]
    assert sorted(told, key=str) == sorted([(SMALL, ["small"])] * 2 + [(KIMI, None)] * 2, key=str)
