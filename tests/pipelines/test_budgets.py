"""Claims about the budget of a pipeline: it counts what every stage costs, or it is refused."""

from pathlib import Path

import httpx
import orjson
import pytest

from app.admission.control import AdmissionControl
from app.db.pool import Database
from app.pipelines.feeding import Feeder
from app.settings import DEMO_MODELS, Settings
from tests.api.test_pipelines import URL, created, stage, two

BUDGET = "/client/v4/accounts/acme/ai/budgets/b"
NOT_COUNTED = """
[models.unpriced]
context_window = 8192
capabilities = ["async_queue"]

[models.in_euros]
context_window = 8192
capabilities = ["async_queue"]
price = { input = 1, cached_input = 1, output = 1, currency = "EUR" }
"""


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    file = tmp_path / "models.toml"
    file.write_text(DEMO_MODELS.read_text() + NOT_COUNTED)
    return settings.model_copy(update={"models_file": file})


async def refused(client: httpx.AsyncClient, url: str, given: object) -> str:
    answer = await client.post(url, json=given)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "budget.usd"), error
    return str(error["message"])


@pytest.mark.parametrize(("model", "paid"), [("unpriced", "has no price"), ("in_euros", "is paid in EUR")])
async def test_a_budget_that_cannot_count_what_a_stage_costs_is_refused(
    client: httpx.AsyncClient, model: str, paid: str
) -> None:
    stages = [stage("facts", "A fact."), stage("title", "A title.", model=model)]
    said = f"{model} of stage 'title' {paid}"
    assert said in await refused(client, URL, two(stages=stages, budget={"usd": 1}))
    made = await created(client, two(stages=stages))
    for verb in ("pause", "resume"):
        assert said in await refused(client, f"{URL}/{made['id']}/resume", {"budget": {"usd": 1}})
        await client.post(f"{URL}/{made['id']}/{verb}")
    assert (await client.get(f"{URL}/{made['id']}")).json()["cost"]["budget"] is None


async def test_a_new_budget_holds_also_for_a_pipeline_that_runs_and_is_in_the_audit_log(
    client: httpx.AsyncClient, database: Database
) -> None:
    made = await created(client, two(budget={"usd": 3}))
    shown = (await client.post(f"{URL}/{made['id']}/resume", json={"budget": {"usd": 5}})).json()
    assert (shown["status"], shown["cost"]["budget"]) == ("in_progress", 5.0)
    await client.post(f"{URL}/{made['id']}/pause")
    shown = (await client.post(f"{URL}/{made['id']}/resume", json={"budget": {"usd": 7}})).json()
    assert (shown["status"], shown["cost"]["budget"]) == ("in_progress", 7.0)
    async with database.durable() as conn:
        query = "select body from audit where act = 'pipeline.resume' order by audit_id"
        records = [orjson.loads(body) for (body,) in await (await conn.execute(query)).fetchall()]
    assert [(each["before"], each["after"]) for each in records] == [
        ({"budget_usd": 3.0}, {"budget_usd": 5.0}),
        ({"state": "paused", "budget_usd": 5.0}, {"state": "open", "budget_usd": 7.0}),
    ]
    await client.post(f"{URL}/{made['id']}/cancel")
    assert (await client.post(f"{URL}/{made['id']}/resume", json={"budget": {"usd": 9}})).status_code == 409


async def test_a_spent_budget_that_refuses_refuses_new_pipelines_and_what_was_accepted_goes_on(
    client: httpx.AsyncClient, database: Database, settings: Settings
) -> None:
    terms = {"max_tokens": 100_000, "period": "day", "on_limit": {"queued": "refuse"}}
    assert (await client.put(BUDGET, json=terms)).status_code == 200
    body = {"messages": [{"role": "user", "content": "{{item.text}}"}], "max_tokens": 10}
    made = await created(client, two(stages=[stage("facts", "", body=body), stage("title", "A title.")]))
    async with database.durable() as conn:
        await conn.execute("update budget set spent = max")
    for given in (two(), two(input={"batch": made["stages"][1]["batch"]})):
        answer = await client.post(URL, json=given)
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "insufficient_quota"), answer.text
        assert answer.headers["x-should-retry"] == "false"
        assert int(answer.headers["retry-after"]) > 0
    assert len((await client.get(URL)).json()["data"]) == 1
    feeder = Feeder(database, settings, AdmissionControl.of(database, settings))
    while await feeder.step():
        pass
    async with database.durable() as conn:
        rows = await (await conn.execute("select state, maximum_tokens < 1000 from chunk")).fetchall()
    assert rows == [("unreserved", True)]  # three items whose answers have at most 10 tokens
