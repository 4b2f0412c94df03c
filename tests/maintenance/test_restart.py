"""Claims about a maintenance worker during a restart of its database, which is also its broker."""

import sys

from app.db import embedded
from app.db.pool import Database
from app.settings import Settings
from testing.waiting import eventually
from tests.maintenance.support import asked, hinted, maintaining, make_due, read
from tests.maintenance.test_worker_process import GATED


async def test_a_restart_of_the_database_ends_a_turn_and_the_duty_is_done_when_it_is_asked_for_again(
    stoppable_server: Settings,
) -> None:
    settings = stoppable_server
    began, go_on = (settings.data_dir / name for name in ("began", "go on"))
    began.unlink(missing_ok=True)
    go_on.unlink(missing_ok=True)
    async with Database.of(settings, "test") as database:

        async def again() -> list[str]:
            await make_due(database)
            return await asked(database)

        await asked(database)
        with maintaining(settings, [sys.executable, "-c", GATED]) as worker:
            await hinted(settings, ["days"])
            await eventually(began.exists)
            embedded.stop(settings, "immediate")
            embedded.start(settings)
            go_on.touch()
            await eventually(lambda: "duty.lost" in worker.log.read_text())
            await eventually(again, until=lambda due: "days" in due)
            await hinted(settings, ["days"])
            await eventually(lambda: read(database), until=lambda found: found["days"].succeeded_at)
            assert worker.process.poll() is None
            assert worker.stop() == 0
            assert "Traceback" not in worker.log.read_text()
