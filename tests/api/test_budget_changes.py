"""Claims about budgets that change while a batch is submitted or retried: what is stored late is cut by those in force."""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import httpx
import pytest

from app.batches import lifecycle, submit
from app.budgets import service as budgets
from app.db.pool import Database
from app.settings import Settings
from tests.api.support import BATCHES, RUN, run_all

QUEUE = f"{RUN}?queueRequest=true"
ITEMS = {"requests": [{"prompt": "x"}] * 3}
SetBudget = Callable[[], Awaitable[None]]


@pytest.fixture
def set_budget(database: Database, settings: Settings, client: httpx.AsyncClient) -> SetBudget:
    """Gives the caller's account a budget, and commits it at once."""

    async def put() -> None:
        async with database.transaction() as conn:
            [(tenant,)] = await (
                await conn.execute("select tenant_id from tenant where account_id = 'acme'")
            ).fetchall()
            await budgets.put(conn, tenant, "b", {"max_tokens": 10**6})

    return put


def before_the_first(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, change: Callable[[], Awaitable[None]]
) -> list[int]:
    """Let `change` happen before the first call of a function. Returns a list that grows with each call."""
    calls: list[int] = []
    real = getattr(owner, name)

    async def changed(*given: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            await change()
        return await real(*given, **named)

    monkeypatch.setattr(owner, name, changed)
    return calls


async def chunks(database: Database) -> list[tuple[Any, ...]]:
    async with database.relaxed() as conn:
        query = "select state, budgets is not null, maximum_tokens is not null from chunk"
        return [tuple(row) for row in await (await conn.execute(query)).fetchall()]


@pytest.mark.parametrize("late", [True, False])
async def test_a_submit_that_is_stored_long_after_it_has_read_the_budgets_obeys_one_that_was_set_meanwhile(
    client: httpx.AsyncClient, database: Database, set_budget: SetBudget, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    if late:
        monkeypatch.setattr(budgets, "_FRESH_SECONDS", -1.0)
    stored = before_the_first(monkeypatch, submit, "_store", set_budget)
    answer = await client.post(QUEUE, json=ITEMS)
    assert answer.status_code == 200, answer.text
    assert await chunks(database) == [("unreserved", True, True) if late else ("ready", False, False)]
    assert len(stored) == (2 if late else 1)  # one that is stored soon is moved by the steward
    async with database.relaxed() as conn:
        assert await (await conn.execute("select count(*) from batch")).fetchall() == [(1,)]


async def test_a_retry_obeys_a_budget_that_was_set_after_it_has_read_them(
    client: httpx.AsyncClient, database: Database, set_budget: SetBudget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budgets, "_FRESH_SECONDS", -1.0)
    made = await client.post(QUEUE, json=ITEMS)
    await run_all(database, fail={0, 1, 2})
    before_the_first(monkeypatch, lifecycle.batch_state, "requeue", set_budget)
    request_id = UUID(made.json()["result"]["request_id"])
    answer = await client.post(f"{BATCHES}/{request_id}/retry")
    assert answer.status_code == 200, answer.text
    assert await chunks(database) == [("unreserved", True, True)]
