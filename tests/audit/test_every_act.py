"""No change without its audit row, and no row without its change: every route of the API, with a database that refuses either."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.routing import Route

from app.access import operator_tokens
from app.access.roles import Role
from app.api.openai import webhook_endpoints
from app.api.openapi_operations import EXAMPLES
from app.audit.acts import Act
from app.batches import lifecycle
from app.console.pages import ROUTES
from app.crypto import secret_key
from app.db.pool import Database
from app.pipelines import verbs
from app.settings import Settings
from tests.api.support import MODEL, NEW_SUBSCRIPTION, line, submit, uploaded
from tests.audit import surfaces
from tests.audit.refusals import Refusing
from tests.cli.test_docs import COMMANDS
from tests.walk.operations import every_operation

PAGE = Path(__file__).parents[2] / "docs" / "audit.md"
AI, HOOKS = "/client/v4/accounts/acme/ai", "/client/v4/accounts/acme/event_subscriptions/subscriptions"
RULES = '[[rule]]\nid = "{}"\nwhen = {{ workflow = "draft" }}\ndeny = "no"\n'
LONG_AGO = "2020-01-01T00:00:00Z"


def test_each_operation_of_the_api_names_its_acts_or_why_it_has_none() -> None:
    found = {operation.name for operation in every_operation() if operation.method != "get"}
    assert found == {*surfaces.API, *surfaces.API_WITHOUT}
    assert not surfaces.API.keys() & surfaces.API_WITHOUT.keys()


def test_each_form_of_the_console_names_its_acts_or_why_it_has_none() -> None:
    found = {route.path for route in ROUTES if isinstance(route, Route) and "POST" in (route.methods or ())}
    assert found == {*surfaces.CONSOLE, *surfaces.CONSOLE_WITHOUT}
    assert not surfaces.CONSOLE.keys() & surfaces.CONSOLE_WITHOUT.keys()


def test_each_command_names_its_acts_or_why_it_has_none() -> None:
    found = set(COMMANDS)
    assert found == {*surfaces.COMMANDS, *surfaces.COMMANDS_WITHOUT}
    assert not surfaces.COMMANDS.keys() & surfaces.COMMANDS_WITHOUT.keys()


def test_each_act_belongs_to_a_surface_and_the_page_describes_it() -> None:
    tables = (surfaces.API, surfaces.CONSOLE, surfaces.COMMANDS)
    used = {act for table in tables for acts in table.values() for act in acts}
    assert used | surfaces.OF_THEMSELVES == set(Act)
    rows = PAGE.read_text().partition("## Rows")[2].partition("## Seals")[0]
    described = [
        name for row in re.findall(r"^\| (`.+?) \|", rows, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)
    ]
    assert sorted(described) == sorted(Act)


# ------------------------------------------------------------ the walk


@dataclass(frozen=True)
class Step:
    """One request. `{…}` in `url` are ids; `keep` gives the id in the answer a name."""

    operation: str
    url: str
    act: Act
    body: dict[str, Any] = field(default_factory=dict)
    keep: str = ""
    status: int = 200


TALK = "/v1/conversations/{talk}"
BATCH, OPENAI, HOOK, WE = (
    f"{AI}/batches/{{batch}}",
    "/v1/batches/batch_{other}",
    f"{HOOKS}/{{hook}}",
    "/v1/webhook_endpoints",
)
_SUBSCRIPTION = "event_subscriptions/subscriptions"
_OF_HOOK = f"{_SUBSCRIPTION}/{{subscription_id}}"
PIPELINE, _PIPELINE_VERB = "/v1/pipelines/{pipeline}", "post v1/pipelines/{pipeline_id}/{verb}"
_VERB, _OPENAI_VERB = "post ai/batches/{request_id}/{verb}", "post v1/batches/{batch_id}/{verb}"
BATCH_STEPS = (
    Step(_VERB, f"{BATCH}/pause", Act.BATCH_PAUSE),
    Step(_VERB, f"{BATCH}/resume", Act.BATCH_RESUME),
    Step(_VERB, f"{BATCH}/cancel", Act.BATCH_CANCEL),
    Step("post ai/batches/{request_id}/retry", f"{BATCH}/retry", Act.BATCH_RETRY),
    Step(_VERB, f"{BATCH}/cancel", Act.BATCH_CANCEL),
    Step("delete ai/batches/{request_id}", BATCH, Act.BATCH_SHRED),
    Step(_OPENAI_VERB, f"{OPENAI}/pause", Act.BATCH_PAUSE),
    Step(_OPENAI_VERB, f"{OPENAI}/resume", Act.BATCH_RESUME),
    Step(_OPENAI_VERB, f"{OPENAI}/cancel", Act.BATCH_CANCEL),
    Step("post v1/batches/{batch_id}/retry", f"{OPENAI}/retry", Act.BATCH_RETRY),
    Step(_OPENAI_VERB, f"{OPENAI}/cancel", Act.BATCH_CANCEL),
    Step("delete v1/batches/{batch_id}", OPENAI, Act.BATCH_SHRED),
    Step(_PIPELINE_VERB, f"{PIPELINE}/pause", Act.PIPELINE_PAUSE),
    Step(_PIPELINE_VERB, f"{PIPELINE}/resume", Act.PIPELINE_RESUME),
    Step(_PIPELINE_VERB, f"{PIPELINE}/cancel", Act.PIPELINE_CANCEL),
    Step("post v1/pipelines/{pipeline_id}/retry", f"{PIPELINE}/retry", Act.PIPELINE_RETRY),
    Step(_PIPELINE_VERB, f"{PIPELINE}/cancel", Act.PIPELINE_CANCEL),
    Step("delete v1/pipelines/{pipeline_id}", PIPELINE, Act.PIPELINE_SHRED),
    Step("post v1/responses/{response_id}/cancel", "/v1/responses/{response}/cancel", Act.BATCH_CANCEL),
    Step("delete v1/responses/{response_id}", "/v1/responses/{response}", Act.RESPONSE_DELETE),
    Step("post v1/conversations/{conversation_id}", TALK, Act.CONVERSATION_CHANGE, {"metadata": {"team": "a"}}),
    Step(
        "delete v1/conversations/{conversation_id}/items/{item_id}", f"{TALK}/items/{{item}}", Act.CONVERSATION_CHANGE
    ),
    Step("delete v1/conversations/{conversation_id}", TALK, Act.CONVERSATION_DELETE),
    Step("delete v1/files/{file_id}", "/v1/files/{file}", Act.FILE_DELETE),
    Step("put ai/budgets/{name}", f"{AI}/budgets/month", Act.BUDGET_SET, {"max_tokens": 5}),
    Step("delete ai/budgets/{name}", f"{AI}/budgets/month", Act.BUDGET_REMOVE),
)
_SUBSCRIBE = NEW_SUBSCRIPTION | {"source": {"type": "workersAi.model"}}
_PERIOD = {"since": LONG_AGO, "only_failed": False}
WEBHOOK_STEPS = (
    Step(f"post {_SUBSCRIPTION}", HOOKS, Act.WEBHOOK_CREATE, _SUBSCRIBE, "hook"),
    Step(f"patch {_OF_HOOK}", HOOK, Act.WEBHOOK_CHANGE, {"name": "ours"}),
    Step(f"patch {_OF_HOOK}", HOOK, Act.WEBHOOK_DISABLE, {"enabled": False}),
    Step(f"patch {_OF_HOOK}", HOOK, Act.WEBHOOK_ENABLE, {"enabled": True}),
    Step(f"post {_OF_HOOK}/test", f"{HOOK}/test", Act.WEBHOOK_TEST, keep="delivery"),
    Step(
        f"post {_OF_HOOK}/deliveries/{{delivery_id}}/redeliver",
        f"{HOOK}/deliveries/{{delivery}}/redeliver",
        Act.WEBHOOK_REDELIVER,
    ),
    Step(f"post {_OF_HOOK}/replay", f"{HOOK}/replay", Act.WEBHOOK_REPLAY, _PERIOD),
    Step(f"post {_OF_HOOK}/rotate_secret", f"{HOOK}/rotate_secret", Act.WEBHOOK_ROTATE),
    Step(f"post {_OF_HOOK}/pause", f"{HOOK}/pause", Act.WEBHOOK_PAUSE),
    Step(f"post {_OF_HOOK}/disable", f"{HOOK}/disable", Act.WEBHOOK_DISABLE),
    Step(f"delete {_OF_HOOK}", HOOK, Act.WEBHOOK_DELETE),
    Step(
        "post v1/webhook_endpoints",
        WE,
        Act.WEBHOOK_CREATE,
        {"name": "theirs", "url": "http://127.0.0.1:9/hook", "event_types": ["batch.completed"]},
        "endpoint",
    ),
    Step("post v1/webhook_endpoints/{endpoint_id}", f"{WE}/{{endpoint}}", Act.WEBHOOK_CHANGE, {"name": "other"}),
    Step(
        "post v1/webhook_endpoints/{endpoint_id}/rotate_secret", f"{WE}/{{endpoint}}/rotate_secret", Act.WEBHOOK_ROTATE
    ),
    Step(
        "post v1/webhook_endpoints/{endpoint_id}/test",
        f"{WE}/{{endpoint}}/test",
        Act.WEBHOOK_TEST,
        {"event_type": "batch.completed"},
        status=424,  # no notifier runs
    ),
    Step("delete v1/webhook_endpoints/{endpoint_id}", f"{WE}/{{endpoint}}", Act.WEBHOOK_DELETE),
)
_ADMIN_BUDGET = "/admin/v1/budgets/acme/week"
ADMIN_STEPS = (
    Step("post /admin/v1/accounts", "/admin/v1/accounts", Act.ACCOUNT_CREATE, {"account": "elm"}),
    Step("put /admin/v1/quotas/{account}", "/admin/v1/quotas/elm", Act.QUOTA_SET, {"open_items": 5}),
    Step("delete /admin/v1/accounts/{account}", "/admin/v1/accounts/elm", Act.ACCOUNT_DELETE),
    Step("post /admin/v1/keys", "/admin/v1/keys", Act.KEY_CREATE, {"account": "acme"}, "key"),
    Step("post /admin/v1/keys/{key_id}/rotate", "/admin/v1/keys/{key}/rotate", Act.KEY_ROTATE),
    Step("delete /admin/v1/keys/{key_id}", "/admin/v1/keys/{key}", Act.KEY_REVOKE),
    Step("put /admin/v1/budgets/{account}/{name}", _ADMIN_BUDGET, Act.BUDGET_SET, {"max_tokens": 5}),
    Step("delete /admin/v1/budgets/{account}/{name}", _ADMIN_BUDGET, Act.BUDGET_REMOVE),
    Step("put /admin/v1/policy", "/admin/v1/policy", Act.POLICY_APPLY, {"policy": RULES.format("one")}),
    Step("put /admin/v1/policy", "/admin/v1/policy", Act.POLICY_APPLY, {"policy": RULES.format("two")}),
    Step("post /admin/v1/policy/rollback", "/admin/v1/policy/rollback", Act.POLICY_ROLLBACK),
)


@pytest.fixture
def refusing(database_url: str) -> Iterator[Refusing]:
    made = Refusing(database_url)
    yield made
    made.close()


@pytest.fixture
async def ids(client: httpx.AsyncClient) -> dict[str, str]:
    """What the steps act on, by name."""
    asked = {"model": MODEL, "input": "hi", "background": True}
    response = (await client.post("/v1/responses", json=asked)).json()["id"]
    other = (await submit(client)).replace("-", "")
    assert (await client.get(f"/v1/batches/batch_{other}")).status_code == 200  # its first look gives it a row
    begun = {"items": [{"role": "user", "content": "hi"}]}
    talk = (await client.post("/v1/conversations", json=begun)).json()["id"]
    item = (await client.get(f"/v1/conversations/{talk}/items")).json()["data"][0]["id"]
    return {
        "talk": talk,
        "item": item,
        "batch": await submit(client),
        "other": other,
        "response": response,
        "pipeline": (await client.post("/v1/pipelines", json=EXAMPLES["post v1/pipelines"])).json()["id"],
        "file": await uploaded(client, line(1)),
    }


def result_id(answer: httpx.Response) -> str:
    found = answer.json()
    return str((found.get("result") or found)["id"])


class Walk:
    """Takes the steps, each three times: while rows are refused, while changes are refused, and then."""

    def __init__(self, client: httpx.AsyncClient, database: Database, refusing: Refusing, ids: dict[str, str]) -> None:
        self.client, self.database, self.refusing, self.ids = client, database, refusing, ids
        self.headers: dict[str, str] = {}

    async def ask(self, step: Step) -> httpx.Response:
        method = step.operation.partition(" ")[0]
        sent = {} if method == "delete" else {"json": step.body}
        return await self.client.request(method, step.url.format(**self.ids), headers=self.headers, **sent)

    async def take(self, step: Step) -> None:
        async with self.database.transaction() as conn:
            await lifecycle.settle(conn)
        async with self.database.transaction() as conn:
            await verbs.end(conn, await verbs.unfinished(conn))
        self.refusing.execute("update endpoint set state = 'active' where state = 'pending'")
        self.refusing.changed()
        newest = self.refusing.newest()
        for what in ("rows", "changes"):
            with self.refusing.of(what):
                answer = await self.ask(step)
            assert answer.status_code >= 500, (what, step, answer.text)
            assert self.refusing.acts(newest) == [], f"{step}: a row without its change"
            assert self.refusing.changed() == set(), f"{step}: a change without its row"
        answer = await self.ask(step)
        assert answer.status_code == step.status, (step, answer.text)
        assert self.refusing.acts(newest) == [step.act], step
        assert self.refusing.changed(), step
        if step.keep:
            self.ids[step.keep] = result_id(answer)


@pytest.fixture
def walk(client: httpx.AsyncClient, database: Database, refusing: Refusing, ids: dict[str, str]) -> Walk:
    return Walk(client, database, refusing, ids)


async def test_what_a_key_changes_and_its_row_are_one(walk: Walk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_endpoints, "_TEST_SECONDS", 0.0)
    for step in (*BATCH_STEPS, *WEBHOOK_STEPS):
        await walk.take(step)


async def test_what_an_operator_changes_and_its_row_are_one(walk: Walk, settings: Settings, database: Database) -> None:
    async with database.transaction() as conn:
        day, secret = timedelta(days=1), secret_key(settings)
        _, token = await operator_tokens.create(conn, secret, "ann", Role.OPERATOR, day, "test")
    walk.headers = {"authorization": f"Bearer {token}"}
    assert (await walk.client.get("/admin/v1/accounts", headers=walk.headers)).status_code == 200
    for step in ADMIN_STEPS:
        await walk.take(step)


def test_the_steps_are_those_of_the_table() -> None:
    taken: dict[str, set[Act]] = {}
    for step in (*BATCH_STEPS, *WEBHOOK_STEPS, *ADMIN_STEPS):
        taken.setdefault(step.operation, set()).add(step.act)
    assert taken == {operation: set(acts) for operation, acts in surfaces.API.items()}
