"""Claims about the events of a budget: none of its thresholds is passed in silence."""

from app.budgets import service
from app.changes import service as changes
from app.console.views import incidents
from tests.budgets.world import World


async def _spend(world: World, amount: int, name: str = "b") -> None:
    """Let the budget have spent so much, and write the events of the thresholds that it has reached."""
    async with world.database.transaction() as conn:
        await conn.execute("update budget set spent = %s where name = %s", (amount, name))
    await service.note(world.database)


async def test_a_raised_budget_writes_its_thresholds_again_when_they_are_reached_again(world: World) -> None:
    await world.budget(max_tokens=100, alerts_at=[75, 90], period="total")
    await _spend(world, 100)
    assert await world.events() == ["budget.alert", "budget.alert", "budget.spent"]
    await world.budget(max_tokens=200, alerts_at=[75, 90], period="total")
    await _spend(world, 140)
    assert len(await world.events()) == 3
    await _spend(world, 150)
    await _spend(world, 150)
    assert (await world.events())[3:] == ["budget.alert"]
    await _spend(world, 200)
    assert (await world.events())[4:] == ["budget.alert", "budget.spent"]


async def test_a_changed_budget_does_not_repeat_what_was_written_and_still_holds(world: World) -> None:
    await world.budget(max_tokens=100, alerts_at=[50, 75])
    await _spend(world, 76)
    assert await world.events() == ["budget.alert", "budget.alert"]
    await world.budget(max_tokens=101, alerts_at=[50, 75])
    await _spend(world, 77)
    assert len(await world.events()) == 2
    await world.budget(max_tokens=101, alerts_at=[50, 75], reserve="maximum")
    await _spend(world, 78)
    assert len(await world.events()) == 2


async def test_thresholds_are_written_although_the_rest_was_too_small_before(world: World) -> None:
    await world.budget(max_tokens=100, alerts_at=[75, 90])
    await _spend(world, 70)
    for _ in range(2):
        await service.note_spent(world.database, [await world.state()])
    assert await world.events() == ["budget.spent"]
    await _spend(world, 80)
    assert (await world.events())[1:] == ["budget.alert"]
    await _spend(world, 100)
    assert (await world.events())[2:] == ["budget.alert"]
    await world.turn()
    assert (await world.events())[3:] == ["budget.renewed"]


async def test_a_lowered_or_new_budget_writes_at_once_what_it_has_reached(world: World) -> None:
    await world.submit(4)
    await world.drain()
    await world.settle()
    await world.budget(max_tokens=40, alerts_at=[75])  # 32 are used
    assert await world.events() == ["budget.alert"]
    await world.budget(max_tokens=32, alerts_at=[75])
    assert await world.events() == ["budget.alert", "budget.spent"]


async def test_a_budget_that_was_raised_in_time_is_not_renewed_with_an_event(world: World) -> None:
    await world.budget(max_tokens=100, period="hour")
    await _spend(world, 100)
    await world.budget(max_tokens=200, period="hour")
    await world.turn()
    assert await world.events() == ["budget.spent"]


async def test_the_timeline_says_once_that_a_budget_is_spent(world: World) -> None:
    await world.budget(max_tokens=100, period="total")
    await _spend(world, 100)
    async with world.database.transaction() as conn:
        [change] = await changes.page(conn, limit=9)
    said = "Budget b is spent: 100 of 100 tokens; queued work waits until its maximum is raised"
    assert incidents.words(change) == said


async def test_a_budget_of_which_something_is_left_is_not_said_to_be_spent(world: World) -> None:
    await world.budget(max_tokens=100, period="total", on_limit={"queued": "refuse"})
    await _spend(world, 64)
    await service.note_spent(world.database, [await world.state()])
    async with world.database.transaction() as conn:
        [change] = await changes.page(conn, limit=9)
    said = "has too little left: 64 of 100 tokens spent; new batches are refused until its maximum is raised"
    assert incidents.words(change) == f"Budget b {said}"
