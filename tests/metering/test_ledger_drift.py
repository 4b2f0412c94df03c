"""Claims about the benchmark's measure of drift: it is 0 after work that was counted, and names what differs."""

import pytest

from benchmarks.governance.drift import drifts
from tests.budgets.world import TOKEN, World


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (None, {}),
        ("update usage set requests = requests + 1", {"ledger_drift_requests": 1, "ledger_drift": 1}),
        (
            "update usage set output = output + 2",
            {"ledger_drift_tokens": 2, "ledger_drift_cost": 2 * TOKEN, "budget_drift": 2 * TOKEN + 2},
        ),
        ("update usage set cached = cached - 1", {"ledger_drift_tokens": 1}),
        ("update budget set reserved = 5 where name = 'b'", {"budget_drift": 5}),
        ("update budget set spent = spent - 3 where name = 'tokens'", {"budget_drift": 3}),
    ],
)
async def test_drift_is_found_in_requests_tokens_money_and_budgets(
    world: World, change: str | None, found: dict[str, int]
) -> None:
    await world.budget(max_cost="1", period="month")
    await world.budget("tokens", max_tokens=1000, period="month", workflow="w")
    await world.submit(4)
    await world.reserve()
    await world.drain()
    await world.settle()
    assert not await world.states()
    if change:
        async with world.database.durable() as conn:
            await conn.execute(change.encode())
    measured = drifts(world.database.url)
    expected = dict.fromkeys(measured, 0) | found
    expected["ledger_drift"] = sum(expected[f"ledger_drift_{name}"] for name in ("requests", "tokens", "cost"))
    assert measured == expected
