"""Transient errors of the database are retried, and an error in one step of the steward does not stop the others."""

from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import errors
from psycopg_pool import PoolTimeout

from app.batches.progress_events import ProgressEvents
from app.db.pool import Database
from app.db.transient_errors import TRANSIENT, TRIES, away, with_retries
from app.settings import Settings
from testing.waiting import in_time
from tests.queue import support
from workers.steward.rounds import Rounds


class NoBroker:
    """Accepts every hint."""

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
def test_which_errors_are_transient_and_which_mean_that_the_server_does_not_answer(
    error: psycopg.Error, passes: bool, is_away: bool
) -> None:
    assert (isinstance(error, TRANSIENT), away(error)) == (passes, is_away)


@pytest.mark.parametrize(("failures", "succeeds"), [(TRIES - 1, True), (TRIES, False)])
async def test_a_transaction_after_a_conflict_is_repeated_a_limited_number_of_times(
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


async def test_a_step_of_the_steward_that_the_database_rejects_stops_no_other_step(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: Any, **__: Any) -> None:
        raise errors.ForeignKeyViolation

    monkeypatch.setattr("app.webhooks.endpoint_removal.step", refused)
    monkeypatch.setattr(ProgressEvents, "write", refused)
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
    await support.submit(database, tenant, pool, 2)
    await support.drain(database, pool, await support.make_worker(database, pool))
    async with in_time():
        await Rounds(database, NoBroker(), settings).run()
    async with database.relaxed() as conn:
        assert await (await conn.execute("select state from batch")).fetchall() == [("completed",)]
