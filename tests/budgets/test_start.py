"""Claims about what a new budget begins with: what the ledger has in its window."""

from datetime import UTC, datetime, timedelta

import pytest

from app.metering import ledger
from app.metering.ledger import Booking
from app.metering.lines import DOOR, Lines, parts_of
from app.metering.spend_labels import NO_SPEND_LABELS
from app.usage_counts import UsageCounts
from tests.budgets.world import World

NOW = datetime.now(UTC)
HOUR = NOW.replace(minute=0, second=0, microsecond=0)


@pytest.fixture(autouse=True)
def _hour_of_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hour in which the test runs; the module may have been read in an earlier one."""
    now = datetime.now(UTC)
    monkeypatch.setitem(globals(), "NOW", now)
    monkeypatch.setitem(globals(), "HOUR", now.replace(minute=0, second=0, microsecond=0))


async def _used(world: World, hour: datetime, tokens: int, line_id: int = 0) -> None:
    async with world.database.transaction() as conn:
        counts = UsageCounts(requests=1, ok=1, prompt=tokens)
        await ledger.book(conn, [Booking(hour, line_id or world.line, counts)])


async def test_a_total_budget_begins_with_the_days_that_were_added_up_too(world: World) -> None:
    await _used(world, HOUR, 5)
    await _used(world, HOUR - timedelta(days=60), 70)
    await _used(world, HOUR - timedelta(days=90), 900)
    async with world.database.transaction() as conn:
        while await ledger.keep(conn, NOW):
            pass
    assert await world.rows("select count(*)::int from usage_day") == [(2,)]
    assert (await world.budget(max_tokens=10**6, period="total")).spent == 975
    assert (await world.budget("money", max_cost="5", period="total")).spent == 975 * 10**6
    assert (await world.budget("hour", max_tokens=10**6, period="hour")).spent == 5


async def test_a_budget_does_not_begin_with_requests_of_doors_which_it_does_not_count(world: World) -> None:
    [door] = await Lines().ids(world.database, [parts_of(world.tenant, "key", NO_SPEND_LABELS, "toy", DOOR, None)])
    await _used(world, HOUR, 1000, door)
    await _used(world, HOUR, 5)
    assert (await world.budget(max_tokens=10**6)).spent == 5


@pytest.mark.parametrize("tz", ["Asia/Kolkata", "Asia/Kathmandu", "UTC"])
async def test_a_window_that_begins_within_an_hour_of_the_ledger_begins_with_that_whole_hour(
    world: World, tz: str
) -> None:
    budget = await world.budget(max_tokens=10**6, period="day", tz=tz)
    assert budget.window_from is not None
    begin = budget.window_from.replace(minute=0)
    await _used(world, begin, 5)
    await _used(world, begin - timedelta(hours=1), 70)
    await _used(world, begin + timedelta(hours=1), 900)
    assert (await world.budget("again", max_tokens=10**6, period="day", tz=tz)).spent == 905
