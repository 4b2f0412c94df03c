"""Claims about the labels of accounts that have too many: none that a budget names is lost, so no work escapes its budget."""

import pytest

from app.batches import batch_usage
from app.budgets import service as budgets
from app.budgets.rules import BudgetTerms, Scope, Unit
from app.metering import lines
from app.metering.lines import Lines
from app.metering.spend_labels import SpendLabels
from tests.budgets.world import PRICE, World


async def fill_workflows(world: World) -> None:
    labels = [SpendLabels(f"w{n}") for n in range(lines.MOST_WORKFLOWS)]
    wanted = [lines.parts_of(world.tenant, "key", each, "toy", "batch", PRICE) for each in labels]
    await Lines().ids(world.database, wanted)


async def line_of(world: World, workflow: str) -> int:
    """The line of a workflow, as submits of this process find it."""
    parts = lines.parts_of(world.tenant, "key", SpendLabels(workflow), "toy", "batch", PRICE)
    return (await batch_usage.line_ids(world.database, [parts]))[parts]


async def test_a_workflow_beyond_an_accounts_limit_keeps_its_label_if_a_budget_names_it(world: World) -> None:
    await fill_workflows(world)
    other = await line_of(world, "late")
    await world.submit(4, line=other)
    assert await line_of(world, "later") == other
    await world.budget(max_tokens=10**6, workflow="late")
    late = await line_of(world, "late")  # this process has known it as `other`
    assert late != other
    assert await line_of(world, "later") == other
    await world.submit(4, line=late)
    assert await world.states() == {"ready": 1, "unreserved": 1}
    await world.fund()
    assert (await world.state()).reserved == 44
    await world.drain()
    await world.settle()
    assert ((await world.state()).reserved, (await world.state()).spent) == (0, 32)
    async with world.database.transaction() as conn:
        await budgets.remove(conn, world.tenant, "b")
    assert await line_of(world, "late") == late


async def test_with_too_many_lines_the_labels_that_budgets_name_are_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MOST_LINES", 1)
    found = await line_of(world, "x")
    assert await world.rows("select key_id, workflow from line where line_id = %s", found) == [("", "other")]
    terms = (Unit.TOKENS, None, "month", "UTC", 1000)
    async with world.database.transaction() as conn:
        await budgets.store(conn, world.tenant, BudgetTerms("k", Scope.KEY, "key", *terms))
    found = await line_of(world, "x")
    assert await world.rows("select key_id, workflow from line where line_id = %s", found) == [("key", "other")]
    async with world.database.transaction() as conn:
        await budgets.store(conn, world.tenant, BudgetTerms("w", Scope.WORKFLOW, "x", *terms))
    found = await line_of(world, "x")
    assert await world.rows("select key_id, workflow from line where line_id = %s", found) == [("key", "x")]
