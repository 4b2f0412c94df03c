"""Claims about errors that pass: who meets one tries again, and one step's trouble is not the others'."""

import asyncio
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import errors
from psycopg_pool import PoolTimeout

from app.db.pool import Database
from app.db.transient_errors import TRANSIENT, TRIES, away, with_retries
from app.settings import Settings
from tests.queue import support
from workers.steward.rounds import Rounds


class NoBroker:
    """Takes every hint."""

    async def endpoints(self, endpoint_ids: list[UUID]) -> bool:
        return True


@pytest.mark.parametrize(
    ("error", "passes", "is_away"),
    [
        (errors.ForeignKeyViolation(), True, False),
        (errors.DeadlockDetected(), True, False),
        (errors.SerializationFailure(), True, False),
        (errors.AdminShutdown(), True, True),
        (errors.CannotConnectNow(), True, True),
        (errors.ReadOnlySqlTransaction(), True, True),
        (psycopg.OperationalError("the connection is closed"), True, True),
        (PoolTimeout("none free"), True, True),
        (errors.UndefinedTable(), False, False),
        (errors.NumericValueOutOfRange(), False, False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_what_passes_by_itself_and_what_means_that_the_database_is_away(
    error: psycopg.Error, passes: bool, is_away: bool
) -> None:
    assert (isinstance(error, TRANSIENT), away(error)) == (passes, is_away)


@pytest.mark.parametrize(("failures", "succeeds"), [(TRIES - 1, True), (TRIES, False)])
async def test_a_transaction_that_others_got_in_the_way_of_is_begun_anew_and_not_for_ever(
    failures: int, succeeds: bool
) -> None:
    tries = 0

    async def transaction() -> int:
        nonlocal tries
        tries += 1
        if tries <= failures:
            raise errors.DeadlockDetected
        return tries

    if succeeds:
        assert await with_retries(transaction) == TRIES
    else:
        with pytest.raises(errors.DeadlockDetected):
            await with_retries(transaction)
    assert tries == TRIES


async def test_a_step_that_the_database_refuses_stops_no_other_step_of_the_steward(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: Any, **__: Any) -> None:
        raise errors.ForeignKeyViolation

    monkeypatch.setattr("app.webhooks.endpoint_removal.step", refused)
    monkeypatch.setattr("workers.steward.rounds.News.tell", refused)
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
    await support.submit(database, tenant, pool, 2)
    await support.drain(database, pool, await support.make_worker(database, pool))
    async with asyncio.timeout(20):
        await Rounds(database, NoBroker(), settings).run()
    async with database.relaxed() as conn:
        assert await (await conn.execute("select state from batch")).fetchall() == [("completed",)]
