"""Claims about what is booked for a pipeline and what it costs: what an engine was asked for, at the price of who answered."""

import httpx
import pytest

from app.db.pool import Database
from app.metering import reports
from app.settings import Settings
from tests.api.test_pipelines import URL, created, stage, two
from tests.pipelines.conftest import Apply
from tests.pipelines.test_served import OTHER, Played, shown

BOOKED = """select l.kind, l.workflow, l.key_id <> '', sum(u.requests)::int, sum(u.ok)::int
  from usage u join line l using (line_id) group by 1, 2, 3"""
COST = """select (sum((u.prompt - u.cached) * l.price_in + u.cached * l.price_cached + u.output * l.price_out) / 1e12)::float8
  from usage u join line l using (line_id)"""


async def rows(database: Database, query: str) -> list[tuple[object, ...]]:
    async with database.relaxed() as conn:
        return [tuple(row) for row in await (await conn.execute(query.encode())).fetchall()]


async def test_items_that_never_ran_are_no_requests_in_the_ledger(
    client: httpx.AsyncClient, database: Database, settings: Settings
) -> None:
    stages = [
        stage("facts", "A fact.\n{{item.text}}"),
        stage("better", "Better.\n{{text}}", model=OTHER, when='text == "never"', otherwise="pass"),
        {"id": "crm", "external": {"timeout": "1h"}, "body": {"of": "{{text}}"}},
    ]
    made = await created(client, two(stages=stages), **{"x-slackwater-workflow": "tickets"})
    played = Played(database, settings)
    await played.play()
    for n in range(3):
        answer = {"answer": n}
        assert (await client.post(f"{URL}/{made['id']}/items/crm/{n}/answer", json=answer)).status_code == 200
    await played.play()
    counts = [each["request_counts"]["completed"] for each in (await shown(client, made))["stages"]]
    assert counts[1:] == [3, 3, 3]
    assert await rows(database, BOOKED) == [("stage", "tickets", True, 3, 3)]
    async with database.relaxed() as conn:
        assert await reports.check(conn) == []


async def test_a_pipeline_costs_what_the_models_cost_that_answered(
    client: httpx.AsyncClient, database: Database, settings: Settings, apply: Apply
) -> None:
    await apply(f'[[rule]]\nid = "better"\nroute = "{OTHER}"\n')
    made = await created(client, two())
    await Played(database, settings).play()
    [(cost,)] = await rows(database, COST)
    ended = await shown(client, made)
    assert ended["cost"]["spent"] == pytest.approx(cost)
    assert sum(each["usage"].get("cost", 0) for each in ended["stages"]) == pytest.approx(cost)


async def test_the_budget_of_a_pipeline_is_compared_with_what_the_answering_models_cost(
    client: httpx.AsyncClient, database: Database, settings: Settings, apply: Apply
) -> None:
    await apply(f'[[rule]]\nid = "better"\nroute = "{OTHER}"\n')
    of_the_stages_model = 6 * (100 * 0.02 + 10 * 0.05) / 1e6
    made = await created(client, two(budget={"usd": 2 * of_the_stages_model}))
    await Played(database, settings).play()
    paused = await shown(client, made)
    assert (paused["status"], paused["paused_for"]) == ("paused", "budget")
