"""Claims about the routes of fair shares, of the search, and of an account's keys."""

from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from app.db.pool import Database
from app.settings import Settings
from app.tenants import service as tenants
from app.tenants.rate_limits import NO_LIMITS
from tests.api.support import submit
from tests.api.test_history import HISTORY, read
from tests.queue import support

TOKEN = "of-the-operator"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"operator_token": SecretStr(TOKEN)})


async def of_all(client: httpx.AsyncClient, path: str) -> Any:
    """What the operator reads."""
    answer = await client.get(path, headers={"authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]


@pytest.fixture
async def beside(client: httpx.AsyncClient, database: Database) -> str:
    """A batch of ours, and one of another account on the same model."""
    batch = await submit(client)
    async with database.durable() as conn:
        tenant = await support.make_tenant(conn, "rival", weight=3)
        [(pool,)] = await (await conn.execute("select pool_id from pool")).fetchall()
    await support.submit(database, tenant, pool, 1)
    return batch


async def test_an_account_sees_its_own_share_and_no_others_name(client: httpx.AsyncClient, beside: str) -> None:
    found = await read(client, f"{HISTORY}/fairness")
    [share] = found["shares"]
    assert share["due"] == 0.25
    assert (share["tokens"], share["got"], share["ready_chunks"]) == (0, None, 1)
    assert "rival" not in str(found)


async def test_the_operator_sees_the_shares_of_all_accounts(client: httpx.AsyncClient, beside: str) -> None:
    found = (await of_all(client, "/operator/fairness"))["shares"]
    assert {each["account"]: each["due"] for each in found} == {"acme": 0.25, "rival": 0.75}
    assert sum(each["next"] for each in found) == 1


async def test_an_id_or_its_first_digits_lead_to_what_they_belong_to(client: httpx.AsyncClient, beside: str) -> None:
    for asked in (beside, beside[:6], f"batch_{beside.replace('-', '')}"):
        [found] = await read(client, f"{HISTORY}/find?q={asked}")
        assert (found["kind"], found["id"], found["of"]) == ("batch", beside, "acme")
    assert await read(client, f"{HISTORY}/find?q=nothing-is-called-so") == []
    assert "q" in await read(client, f"{HISTORY}/find?q=x", 400)


async def test_a_search_finds_nothing_of_another_account(
    client: httpx.AsyncClient, database: Database, beside: str
) -> None:
    async with database.durable() as conn:
        sql = "select request_id::text from batch join tenant using (tenant_id) where account_id = 'rival'"
        [(other,)] = await (await conn.execute(sql)).fetchall()
    for asked in (other, "rival"):
        assert await read(client, f"{HISTORY}/find?q={asked}") == []
        assert len(await of_all(client, f"/operator/find?q={asked}")) == 1


async def test_keys_are_listed_without_secrets_by_view(client: httpx.AsyncClient, key: str) -> None:
    found = await read(client, f"{HISTORY}/keys")
    assert [each["id"] for each in found] == [key.split("_")[2]]
    assert key not in str(found)
    assert (found[0]["revoked_at"], found[0]["requests_per_minute"]) == (None, NO_LIMITS.requests)
    assert await read(client, f"{HISTORY}/keys?view=ended") == []
    assert "view" in await read(client, f"{HISTORY}/keys?view=moon", 400)
    assert "after" in await read(client, f"{HISTORY}/keys?after=moon", 400)


async def test_an_account_reads_its_own_audit_rows_and_no_others(client: httpx.AsyncClient, database: Database) -> None:
    async with database.transaction() as conn:
        await tenants.create_tenant(conn, "rival")
    await client.put(f"{HISTORY}/budgets/month", json={"max_cost": "5 USD"})
    [newest, *rest] = await read(client, f"{HISTORY}/audit")
    assert (newest["act"], newest["target"], newest["role"]) == ("budget.set", "month", "key")
    assert {each["account"] for each in rest} <= {"acme"}


async def test_a_queue_is_counted_by_model_and_an_account_sees_only_its_own(
    client: httpx.AsyncClient, database: Database, beside: str
) -> None:
    [own] = (await read(client, f"{HISTORY}/queue"))["models"]
    assert (own["batches"], own["held_tokens"], own["engines_ready"], own["eta"]) == (1, 0, 0, None)
    assert own["tokens"] > 0
    whole = (await of_all(client, "/operator/queue"))["models"]
    assert sum(each["batches"] for each in whole) == 2
    assert own["model"] in [each["model"] for each in whole]
    assert (await client.post(f"{HISTORY}/batches/{beside}/pause")).status_code == 200
    [held] = (await read(client, f"{HISTORY}/queue"))["models"]
    assert held["held_tokens"] == held["tokens"] == own["tokens"]


async def test_a_queue_ends_at_the_measured_pace_of_its_ready_engines(
    client: httpx.AsyncClient, database: Database, beside: str
) -> None:
    async with database.durable() as conn:
        await conn.execute("insert into pace (pool_id, at, served_tokens, tokens_per_second, spread) "
                           "select pool_id, now(), 0, 2, 0.1 from pool")  # fmt: skip
        await conn.execute(
            "insert into worker (pool_id, host, pid, lease_until) select pool_id, 'h', 1, now() + interval '1 h' from pool"
        )
        await conn.execute("insert into engine (name, pool_id, url, mode, slots, worker_id, state) "
                           "select 'e', pool_id, 'http://e', 'attached', 8, worker_id, 'ready' from worker limit 1")  # fmt: skip
    [own] = (await read(client, f"{HISTORY}/queue"))["models"]
    assert (own["engines_ready"], own["tokens_per_second"], own["spread"]) == (1, 2.0, 0.1)
    assert own["eta_seconds"] == pytest.approx(own["tokens"] / 2, rel=0.05)  # the other's tokens are not known
