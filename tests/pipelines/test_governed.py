"""Claims about pipelines under quotas and rules: they are held to what holds for a batch, where their items are made."""

from typing import Any

import httpx
import pytest

from app.admission import quotas
from app.admission.quotas import Demand, Quota
from app.db.pool import Database
from app.settings import Settings
from app.tenants.key_cache import TRUST_SECONDS
from app.tenants.service import Tenant
from testing.waiting import in_time
from tests.api import in_process
from tests.api.support import MODEL
from tests.api.test_pipelines import URL, Json, created, stage, two
from tests.clock import Clock
from tests.pipelines.conftest import Apply
from tests.pipelines.test_served import Played, shown

FAN = [stage("fan", "{{each}}", each="item.list", max=1000)]
BATCH = f"/client/v4/accounts/acme/ai/run/{MODEL}?queueRequest=true"


def line(count: int) -> Json:
    return {"input": {"items": [{"custom_id": "a", "list": ["word " * 20] * count}]}, "stages": FAN}


async def limit(database: Database, clock: Clock, **limits: int | None) -> None:
    async with database.transaction() as conn:
        await quotas.change(conn, "acme", Quota(**limits))
    clock.advance(TRUST_SECONDS + 0.1)


async def used(client: httpx.AsyncClient) -> dict[str, int]:
    found: dict[str, int] = (await client.get("/client/v4/accounts/acme/ai/quota")).json()["result"]["used"]
    return found


async def fed(played: Played) -> None:
    while await played.feeder.step():
        pass
    await played.settle()


@pytest.mark.parametrize("limits", [{"open_items": 30}, {"queued_tokens": 100}, {"stored_bytes": 5000}])
async def test_a_pipeline_pauses_before_its_items_exceed_a_quota_and_goes_on_once_there_is_room(
    client: httpx.AsyncClient, database: Database, settings: Settings, clock: Clock, limits: dict[str, int]
) -> None:
    await limit(database, clock, **limits)
    made = await created(client, line(40))
    played = Played(database, settings)
    await fed(played)
    paused = await shown(client, made)
    assert (paused["status"], paused["paused_for"], paused["waiting"]["code"]) == ("paused", "quota", "quota")
    [(name, most)] = limits.items()
    assert (await used(client))[name] <= most
    async with database.relaxed() as conn:
        rows = await (await conn.execute("select data from event where kind = 'quota.reached'")).fetchall()
    assert len(rows) == 1
    await limit(database, clock)
    await client.post(f"{URL}/{made['id']}/resume")
    await played.play()
    assert (await shown(client, made))["stages"][1]["request_counts"]["completed"] == 40


async def test_a_submit_that_stops_in_the_middle_holds_up_no_other_accounts_pipeline(
    client: httpx.AsyncClient, database: Database, settings: Settings, clock: Clock
) -> None:
    await limit(database, clock, open_items=1000)
    made = await created(client, two())
    played = Played(database, settings)
    async with database.transaction() as conn:
        await quotas.check(conn, Tenant((await _tenant(database)), "acme"), Demand(0, 1))
        async with in_time():
            while await played.feeder.step():
                pass
        assert (await shown(client, made))["stages"][1]["request_counts"]["total"] == 0
    clock.advance(60)
    async with database.durable() as conn:
        await conn.execute("update handoff set due = now()")
    await played.play()
    assert (await shown(client, made))["status"] == "completed"


async def _tenant(database: Database) -> int:
    async with database.relaxed() as conn:
        [(tenant_id,)] = await (await conn.execute("select tenant_id from tenant where account_id = 'acme'")).fetchall()
    return int(tenant_id)


async def test_what_a_stage_got_counts_at_once_and_what_is_stored_of_it_stays(
    client: httpx.AsyncClient, database: Database, settings: Settings
) -> None:
    made = await created(client, line(40))
    before = await used(client)
    played = Played(database, settings)
    while await played.feeder.step():
        pass
    now = await used(client)  # nothing was settled yet
    assert (before["open_batches"], now["open_batches"], now["open_items"]) == (1, 1, 40)
    assert now["stored_bytes"] > before["stored_bytes"] + 40 * 100
    await played.play()
    ended = await used(client)
    assert (await shown(client, made))["status"] == "completed"
    assert (ended["open_batches"], ended["open_items"], ended["stored_bytes"]) == (0, 0, now["stored_bytes"])


async def test_copies_of_a_batch_count_as_stored(
    client: httpx.AsyncClient, database: Database, settings: Settings, clock: Clock
) -> None:
    first = await created(client, two())
    played = Played(database, settings)
    await played.play()
    source = {"input": {"batch": first["stages"][1]["batch"]}, "stages": [stage("again", "{{text}}")]}
    await limit(database, clock, stored_bytes=(await used(client))["stored_bytes"] + 10)
    made = await created(client, source)
    await fed(played)
    assert (await shown(client, made))["paused_for"] == "quota"


async def test_a_rule_about_budgets_holds_for_the_items_of_a_pipeline_as_for_a_batch(
    client: httpx.AsyncClient, database: Database, settings: Settings, apply: Apply
) -> None:
    await apply('[[rule]]\nid = "brownout"\nwhen = { budget = ">=90" }\ndeny = "the money is short"\n')
    put = await client.put("/client/v4/accounts/acme/ai/budgets/b", json={"max_tokens": 1_000_000})
    assert put.status_code == 200, put.text
    made = await created(client, two())
    async with database.durable() as conn:
        await conn.execute("update budget set spent = 950000")
    await in_process.application().state.parts.gateway.budgets.refresh()
    batch = await client.post(BATCH, json={"requests": [{"prompt": "x"}]})
    assert batch.status_code == 403
    await fed(Played(database, settings))
    facts = (await shown(client, made))["stages"][1]
    assert (facts["items"]["ran"], facts["items"]["refused"]) == (0, 3)


@pytest.mark.parametrize(
    ("kind", "batch", "pipeline"), [("batch", 403, 403), ("stage", 200, 403), ("checkpoint", 200, 200)]
)
async def test_stages_are_batches_to_a_rule_and_a_kind_of_their_own(
    client: httpx.AsyncClient, apply: Apply, kind: str, batch: int, pipeline: int
) -> None:
    await apply(f'[[rule]]\nid = "no"\nwhen = {{ kind = ["{kind}"] }}\ndeny = "not here"\n')
    answers = [await client.post(BATCH, json={"requests": [{"prompt": "x"}]}), await client.post(URL, json=two())]
    assert [each.status_code for each in answers] == [batch, pipeline]


SEALS: list[tuple[str, dict[str, Any]]] = [
    ('kind = ["batch"]', {}),
    ('kind = ["stage"]', {}),
    ('deadline = "<=1h"', {"completion_window": "30m"}),
]


@pytest.mark.parametrize(("condition", "more"), SEALS)
async def test_a_rule_that_encrypts_batches_encrypts_pipelines(
    client: httpx.AsyncClient, apply: Apply, condition: str, more: dict[str, Any]
) -> None:
    """Without a key provider nothing that is to be encrypted can be stored."""
    await apply(f'[[rule]]\nid = "seal"\nwhen = {{ {condition} }}\nencrypt = true\n')
    assert (await client.post(URL, json=two(**more))).status_code == 503
