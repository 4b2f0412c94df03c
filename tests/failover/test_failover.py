"""Claims about the loss of the database's primary, and of connections between hosts, under load."""

import asyncio
import json
import os
import subprocess
import sys

import pytest

from app import processes
from app.db import migrate
from app.db.pool import Database
from app.engines import catalogue
from app.engines.engine_report import EngineReport
from app.settings import Settings
from testing import clusters
from testing.waiting import in_time
from tests import needs
from tests.crash.checker import report
from tests.crash.history import MUST_BE_ZERO, History
from tests.failover.drills import run
from tests.failover.servers import Pair, Server
from tests.timing import note
from workers.gpu.heartbeats import Heartbeats
from workers.gpu.membership import Membership

LIMIT_SECONDS = 600


@pytest.mark.slow
async def test_when_the_primary_is_killed_and_its_standby_promoted_nothing_is_lost_doubled_or_run_again() -> None:
    outcome = await run("crash")
    text = report(outcome.history, 1)
    note(f"works again {outcome.recovery[0]:.2f} s after the promote" if outcome.recovery else "no recovery")
    assert outcome.history.sound, text
    assert outcome.recovery


async def test_at_a_primary_that_has_lost_its_standby_no_worker_keeps_its_lease() -> None:
    """So nobody runs anything on it, should it go on beside the new primary."""
    model = next(iter(catalogue.load(Settings().models_file).models.values()))
    beaten, lost = asyncio.Event(), asyncio.Event()
    with clusters.folder() as folder:
        settings = Settings(data_dir=folder, lease_seconds=2, heartbeat_seconds=0.2)
        servers = [Server(folder / name, "127.0.0.1", processes.free_port()) for name in ("primary", "standby")]
        pair = Pair(settings, History(), *servers)
        try:
            await pair.start()
            await asyncio.to_thread(migrate.upgrade, pair.url)
            async with Database(pair.url, size=2) as database:
                heartbeats = Heartbeats(database, every_seconds=0.2, lease_seconds=2)
                membership = Membership(
                    settings,
                    database,
                    heartbeats,
                    model=model,
                    url="http://e",
                    mode="attached",
                    slots=1,
                    recall=lambda _: None,
                )
                status = EngineReport(True, "open", 1)
                kept = asyncio.create_task(
                    membership.run(lambda: status, lambda *_: None, lambda _: beaten.set(), lost.set)
                )
                async with in_time():
                    await beaten.wait()
                    assert membership.holds()
                    pair.standby.kill()
                    await lost.wait()
                    assert not membership.holds()
                pair.primary.kill()  # what waits for the standby ends
                kept.cancel()
                await asyncio.wait([kept])
        finally:
            pair.close()


@pytest.mark.slow
def test_hosts_that_lose_each_other_and_a_primary_that_is_cut_off_lose_double_and_run_again_nothing() -> None:
    if os.geteuid() != 0 or subprocess.run(["unshare", "--net", "true"], check=False).returncode != 0:
        needs.missing("network namespaces need root and util-linux")
    command = [sys.executable, "-m", "tests.failover", "--only", "partition", "--json"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
        preexec_fn=processes.dies_with_parent(),
    )
    found = json.loads(done.stdout.splitlines()[-1])
    note(f"{found['items']} items, works again {found['recovery_s']} s after the promote")
    assert {name: found[name] for name in MUST_BE_ZERO if found[name]} == {}, done.stderr[-8000:]
    assert found["recovery_s"]
