"""Expected answer lengths, and the batches that they are learned from."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from app.db.pool import Connection, Database
from app.engines.catalogue import Model
from app.queue import answer_lengths
from app.queue.answer_lengths import PRIOR_ANSWERS, RECENT_BATCHES, AnswerLengths, LearnedLengths
from tests.queue import support

TOY = Model("toy", "toy", 4096, default_max_tokens=256)


async def answered(conn: Connection, tenant: int, pool: int, ok: int, tokens: int, *, open_ended: bool = True) -> int:
    """A batch with so many answers, and so many tokens in total. Returns its id."""
    batch = replace(await support.new_batch(conn, tenant, pool, max(1, ok)), open_ended=open_ended)
    await support.put(conn, batch, [100] * batch.total)
    sql = "update batch set ok = %s, completion_tokens = %s where batch_id = %s"
    await conn.execute(sql, (ok, tokens, batch.batch_id))
    return batch.batch_id


@pytest.mark.parametrize(
    ("rows", "own", "others"),
    [
        ([], 256, 256),
        ([("toy", 1, 16, 16)], 64.75, 128.5),
        ([("other", 1, 1000, 1000)], 256, 256),
        ([("toy", 1, 100_000, 100_000 * 20)], 20.003, 20.04),
        ([("toy", 1, 10_000, 10_000 * 9000)], 4096, 4096),
        ([("toy", 1, 1000, 0)], (256 * 16 / 1016) * 16 / 1016, 256 * 16 / 1016),
    ],
)
def test_the_expected_length_moves_from_the_default_to_the_mean_of_the_model_then_of_the_account(
    rows: Sequence[tuple[str, int, int, int]], own: float, others: float
) -> None:
    learned = LearnedLengths.of(rows)
    assert PRIOR_ANSWERS == 16
    assert learned.usual(1, TOY) == math.ceil(own)
    assert learned.usual(2, TOY) == math.ceil(others)


async def test_lengths_are_learned_by_account_from_answers_that_were_not_limited(database: Database) -> None:
    async with database.transaction() as conn:
        pool = await support.make_pool(conn)
        brief, chatty = await support.make_tenant(conn, "brief"), await support.make_tenant(conn, "chatty")
        await answered(conn, brief, pool, 400, 400 * 10)
        await answered(conn, brief, pool, 600, 600 * 10)
        await answered(conn, chatty, pool, 1000, 1000 * 800)
        await answered(conn, brief, pool, 0, 0)
        await answered(conn, brief, pool, 5000, 5000 * 3000, open_ended=False)
        learned = await answer_lengths.read_lengths(conn, ["toy", "unheard-of"])
    assert learned.accounts[("toy", brief)] == answer_lengths.AnswerTotals(1000, 10_000)
    assert 10 <= learned.usual(brief, TOY) <= 17
    assert 780 <= learned.usual(chatty, TOY) <= 800
    assert learned.usual(0, TOY) == pytest.approx(405, abs=5)


async def test_only_the_latest_batches_of_a_model_count(database: Database) -> None:
    async with database.transaction() as conn:
        pool, tenant = await support.make_pool(conn), await support.make_tenant(conn)
        await answered(conn, tenant, pool, 1000, 1_000_000)
        for _ in range(RECENT_BATCHES):
            await answered(conn, tenant, pool, 1, 1)
        learned = await answer_lengths.read_lengths(conn, ["toy"])
    assert learned.models["toy"] == answer_lengths.AnswerTotals(RECENT_BATCHES, RECENT_BATCHES)


async def test_reading_a_length_never_waits_and_refreshes_it_in_the_background(database: Database) -> None:
    async with database.transaction() as conn:
        pool, tenant = await support.make_pool(conn), await support.make_tenant(conn)
        await answered(conn, tenant, pool, 1000, 10_000)
    known = AnswerLengths(database, ["toy"])
    assert known.of(tenant)(TOY) == 256
    assert known._refresh is not None
    await known._refresh
    assert known.of(tenant)(TOY) < 20
