"""Claims about real maintenance workers on the default broker, and the steward that asks for what they do."""

import asyncio
import sys
from contextlib import ExitStack

import psycopg

from app.db.pool import Database
from app.duties.schedule import BY_NAME, RETRY_SECONDS
from app.settings import Settings
from app.tasks import names
from app.tasks.producer import Hints
from testing.waiting import eventually, wait_for
from tests.maintenance.support import asked, hinted, maintaining, make_due, read
from tests.webhooks.support import notifying
from workers.steward.rounds import Rounds

# Each run of the duty `days` writes a line; the first one hangs.
SLOW = """
import asyncio
from app import settings
from app.tasks import broker
from workers.maintenance import __main__, duties
broker.VISIBILITY_SECONDS = 2
runs = settings.load().data_dir / "runs"
async def days(work):
    with runs.open("a") as file:
        file.write("run\\n")
    if len(runs.read_text().split()) == 1:
        await asyncio.Event().wait()
duties.BY_NAME = {**duties.BY_NAME, "days": days}
raise SystemExit(__main__.main())
"""


def test_what_a_leading_steward_asks_for_is_done_by_a_worker_which_sigterm_ends(settings: Settings) -> None:
    async def ask() -> None:
        async with Database.of(settings, "test") as database:
            hints = Hints.of(settings, settings.database_url)
            rounds = Rounds(database, hints, settings)
            await rounds.begin()
            await rounds.run()
            await hints.close()
            await eventually(lambda: read(database), until=lambda found: all(d.succeeded_at for d in found.values()))

    with maintaining(settings) as worker:
        asyncio.run(ask())
        assert worker.stop() == 0
        assert "Traceback" not in worker.log.read_text()


async def test_a_lost_message_delays_a_duty_until_it_is_asked_for_again(database: Database, settings: Settings) -> None:
    await hinted(settings, [])  # creates the queue
    await asked(database)
    with maintaining(settings):
        await hinted(settings, ["ledger"])
        await eventually(lambda: read(database), until=lambda found: found["ledger"].succeeded_at)
        assert [name for name, each in (await read(database)).items() if each.succeeded_at] == ["ledger"]
        await make_due(database)
        due = await asked(database)
        assert set(due) == set(BY_NAME)
        await hinted(settings, due)
        await eventually(lambda: read(database), until=lambda found: all(d.succeeded_at for d in found.values()))


async def test_a_hint_that_no_worker_takes_expires(database: Database, settings: Settings) -> None:
    await hinted(settings, ["lengths"])
    async with database.relaxed() as conn:
        query = "select (message->'headers'->>'expires')::timestamptz - now() from pgmq.q_duties"
        [(left,)] = await (await conn.execute(query)).fetchall()
    assert RETRY_SECONDS / 2 < left.total_seconds() <= RETRY_SECONDS


async def test_a_killed_workers_duty_is_done_by_another_and_a_second_message_of_it_does_nothing(
    database: Database, settings: Settings
) -> None:
    await asked(database)
    runs = settings.data_dir / "runs"
    command = [sys.executable, "-c", SLOW]
    with ExitStack() as workers:
        first = workers.enter_context(maintaining(settings, command))
        await hinted(settings, ["days", "days"])
        await eventually(runs.exists)
        first.kill()
        workers.enter_context(maintaining(settings, command))
        await eventually(lambda: read(database), until=lambda found: found["days"].succeeded_at)
        with psycopg.connect(settings.database_url, autocommit=True) as conn:
            left = f"select count(*) from pgmq.q_{names.DUTIES}".encode()
            wait_for(lambda: conn.execute(left).fetchone() == (0,), "both messages are taken")
    assert runs.read_text().split() == ["run", "run"]


GATED = """
import asyncio
from app import settings
from workers.maintenance import __main__, duties
folder = settings.load().data_dir
async def days(work):
    (folder / "began").touch()
    while not (folder / "go on").exists():
        await asyncio.sleep(0.01)
duties.BY_NAME = {**duties.BY_NAME, "days": days}
raise SystemExit(__main__.main())
"""


async def test_a_duty_goes_on_while_the_brokers_connections_are_lost_and_holds_up_no_other(
    database: Database, settings: Settings
) -> None:
    await asked(database)
    with maintaining(settings, [sys.executable, "-c", GATED]) as worker:
        await hinted(settings, ["days"])
        await eventually((settings.data_dir / "began").exists)
        async with database.durable() as conn:
            lost = """select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()
                      and (application_name = 'slackwater broker' or query ilike 'listen %pgmq%')"""
            await conn.execute(lost)
        await hinted(settings, ["ledger"])
        await eventually(lambda: read(database), until=lambda found: found["ledger"].succeeded_at)
        (settings.data_dir / "go on").touch()
        await eventually(lambda: read(database), until=lambda found: found["days"].succeeded_at)
        assert worker.stop() == 0
        assert "Failed to cancel" not in worker.log.read_text()


def test_the_notifier_takes_no_message_of_a_duty(settings: Settings) -> None:
    async def ask() -> None:
        async with Database.of(settings, "test") as database:
            await asked(database)
        await hinted(settings, ["ledger"])

    with notifying(settings):
        asyncio.run(ask())
        with psycopg.connect(settings.database_url, autocommit=True) as conn:
            found = conn.execute(f"select read_ct from pgmq.q_{names.DUTIES}".encode()).fetchall()
    assert found == [(0,)]
