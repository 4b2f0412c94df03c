"""Claims about the length that answers without a limit rarely exceed, which budgets reserve by."""

from dataclasses import replace

from app.batches import long_answers
from app.budgets import rules
from app.budgets.rules import ItemSizes
from app.budgets.service import of_lines
from app.metering import long_answers as stored
from app.metering.lines import parts_of
from app.metering.spend_labels import SpendLabels
from tests.budgets.world import MODEL, World
from tests.queue import support


async def _answered(world: World, lengths: list[int], *, line: int = 0, open_ended: bool = True) -> None:
    """A batch with answers of these lengths."""
    items = len(lengths)
    async with world.database.transaction() as conn:
        batch = replace(await support.new_batch(conn, world.tenant, world.pool, items), open_ended=open_ended)
        batch = replace(batch, line_id=line or world.line)
        await support.put(conn, batch, [100] * items)
        sql = """insert into item_result (batch_id, seq, run, ok, attempt, completion_tokens, body)
                 select %s, ordinality, 1, 1, 1, tokens, '' from unnest(%s::int[]) with ordinality x (tokens, ordinality)"""
        await conn.execute(sql, (batch.batch_id, lengths))
        await conn.execute("update batch set ok = %s where batch_id = %s", (items, batch.batch_id))


async def _expected(world: World, line: int = 0, **sizes: int) -> int:
    """What is reserved for the answer of one item without a limit, whose usual length is 10 tokens."""
    line_id = line or world.line
    async with world.database.transaction() as conn:
        under = (await of_lines(conn, [line_id]))[line_id]
    found = under.amounts(ItemSizes([13], [10], [sizes.get("most", 900)], [30]), MODEL.context_window)
    return found.expected_tokens[0] - 3


async def test_a_reservation_takes_what_95_of_100_answers_of_the_workflow_have_used(world: World) -> None:
    await world.budget(max_tokens=10**6)
    assert await _expected(world) == rules.LONG_ANSWERS * 10
    await _answered(world, list(range(1, 51)))
    await _answered(world, list(range(51, 101)))
    await _answered(world, [800] * 40, open_ended=False)
    await _answered(world, [700] * 40, line=await world.line_of("other"))
    await long_answers.learn(world.database)
    assert await _expected(world) == 95
    assert await _expected(world, most=50) == 50
    assert await _expected(world, await world.line_of("other")) == 700


async def test_until_twenty_answers_are_known_a_reservation_takes_three_times_the_usual_length(world: World) -> None:
    await world.budget(max_tokens=10**6)
    await _answered(world, [500] * 19)
    await long_answers.learn(world.database)
    assert await _expected(world) == 30


async def test_a_new_price_or_family_keeps_what_was_learned(world: World) -> None:
    await world.budget(max_tokens=10**6)
    await _answered(world, [500] * 20)
    await long_answers.learn(world.database)
    assert await _expected(world, await world.line_of("w", None)) == 500


async def test_nothing_is_learned_for_accounts_without_budgets(world: World) -> None:
    await _answered(world, [500] * 40)
    await long_answers.learn(world.database)
    assert await world.rows("select count(*)::int from answer_length") == [(0,)]


def test_the_longest_of_twenty_is_not_yet_one_of_hundred() -> None:
    parts = parts_of(1, "key", SpendLabels("w"), "toy", "batch", None)
    assert stored.learned([(parts, [1] * 19)]) == []
    [found] = stored.learned([(parts, [*range(1, 11)]), (parts, [*range(11, 21)])])
    assert (found.p95, found.answers) == (19, 20)
