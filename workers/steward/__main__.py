"""`python -m workers.steward`: maintain the queue while it leads, wait for leadership otherwise."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress

import structlog

import app.quick_start  # noqa: F401
from app import life_signs, processes, telemetry
from app import settings as configuration
from app.causes import cause
from app.changes import service as changes
from app.db.embedded import direct_url
from app.db.pool import Database
from app.db.transient_errors import TRANSIENT
from app.db.watched_connection import quiet_seconds
from app.errors import SchemaMismatch, ServerUnfit
from app.files import shared_storage
from app.memory import collect_seldom
from app.settings import Settings
from app.tasks.producer import Hints
from app.tracing import recorder
from app.user_errors import guarded
from workers import metrics_page
from workers.steward.leader import Leadership, leadership
from workers.steward.outage import Outage
from workers.steward.rest import Rest
from workers.steward.rounds import Rounds

_RECONNECT_SECONDS = 0.5
log = structlog.get_logger("steward")


async def run(settings: Settings, stopping: asyncio.Event) -> None:
    """Lead, or wait for leadership, until `stopping` is set. Waits while the database is unavailable. Raises StoreNotShared,
    BehindPooler.
    """
    hints = Hints.of(settings, direct_url(settings))
    try:
        async with Database.of(settings, "steward") as database:
            await changes.started(database, "steward")
            rounds = Rounds(database, hints, settings)
            page = asyncio.create_task(_serve_metrics(rounds, settings))
            try:
                await _lead_again_and_again(database, rounds, settings, stopping)
            finally:
                page.cancel()
                await asyncio.wait([page])
    finally:
        await hints.close()


async def _lead_again_and_again(
    database: Database, rounds: Rounds, settings: Settings, stopping: asyncio.Event
) -> None:
    unavailable = unfit = False
    outage = Outage()
    with life_signs.turning() as turn:
        while not stopping.is_set():
            turn()
            try:
                await shared_storage.require(database, settings, "steward")
                await _lead(database, rounds, settings, stopping, outage, turn)
            except TRANSIENT as error:
                outage.note()
                if not unavailable:
                    log.warning("database.away", error=cause(error))
                unavailable = True
                await _pause(stopping, _RECONNECT_SECONDS)
            except (SchemaMismatch, ServerUnfit) as error:
                if not unfit:
                    log.warning("steward.waits_for_schema", error=error.message)
                unfit = True
                await _pause(stopping, _RECONNECT_SECONDS)
            else:
                unavailable = unfit = False


async def _serve_metrics(rounds: Rounds, settings: Settings) -> None:
    port, variable = settings.steward_metrics_port, "SLACKWATER_STEWARD_METRICS_PORT"
    await metrics_page.serve(settings.host, port, variable, rounds.metrics.exposition)


async def _lead(
    database: Database,
    rounds: Rounds,
    settings: Settings,
    stopping: asyncio.Event,
    outage: Outage,
    turn: Callable[[], None] = lambda: None,
) -> None:
    async with leadership(direct_url(settings), stopping, quiet_seconds(settings.lease_seconds), turn) as lead:
        if lead is None:
            return
        log.info("steward.leads")
        await outage.over(database)
        await rounds.begin()
        async with rounds.watching():
            with rounds.metrics.leading.track_inprogress():
                await _keep_rounds(lead, rounds, settings, stopping, turn)


async def _keep_rounds(
    lead: Leadership, rounds: Rounds, settings: Settings, stopping: asyncio.Event, turn: Callable[[], None]
) -> None:
    rest = Rest(settings, rounds.pace, rounds.look)
    while not stopping.is_set():
        turn()
        await lead.confirm()
        async with lead.kept():
            busy = await rounds.run()
        await _pause(stopping, settings.steward_seconds / 5 if busy else settings.steward_seconds)
        if not busy:
            await rest.take(lead, stopping)


async def _pause(stopping: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(stopping.wait(), seconds)


async def _run_until_signal(settings: Settings) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    await run(settings, stopping)


def main() -> None:
    """Run the steward. Exit code 0 after SIGTERM or SIGINT."""
    processes.keep_private()
    settings = configuration.load()
    telemetry.configure(settings, "steward")
    recorder.configure(settings, "steward")
    collect_seldom()
    asyncio.run(_run_until_signal(settings))


if __name__ == "__main__":
    guarded(main)
