"""Claims about stewards that are killed while they seal, and that seal at the same time: processes with kill -9."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from app.audit import check, checkpoints, log, sealing
from app.audit.record import Record
from app.db.pool import Database
from app.settings import Settings
from app.storage.store import Store
from testing.waiting import in_time

pytestmark = pytest.mark.slow
KILLS = 12
ACCOUNTS = ("acme", "birch", None)


def start(url: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(Path(__file__).with_name("sealer.py")), url]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout
    process.stdout.readline()
    return process


async def left(database: Database) -> int:
    """How many rows wait for their seal."""
    async with database.relaxed() as conn:
        [(count,)] = await (await conn.execute("select count(*) from audit_pending")).fetchall()
        return int(count)


async def test_stewards_that_overlap_and_are_killed_while_they_seal_leave_no_fork(
    database: Database, settings: Settings
) -> None:
    chance = random.Random(7)
    written, stopping = 0, asyncio.Event()

    async def write() -> None:
        nonlocal written
        while not stopping.is_set():
            async with database.transaction() as conn:
                await log.record_all(
                    conn, [Record("test.act", f"t{written}", chance.choice(ACCOUNTS)) for _ in range(5)]
                )
            written += 5
            await asyncio.sleep(0.002)

    writing = asyncio.create_task(write())
    stewards = [await asyncio.to_thread(start, database.url) for _ in range(2)]
    try:
        for _ in range(KILLS):
            await asyncio.sleep(chance.uniform(0.02, 0.2))
            victim = stewards.pop(0)
            victim.send_signal(signal.SIGKILL)
            await asyncio.to_thread(victim.wait)
            stewards.append(await asyncio.to_thread(start, database.url))
    finally:
        stopping.set()
        await writing
        for process in stewards:
            process.kill()
            process.wait()
    async with database.relaxed() as conn:
        sealed_by_them = await (await conn.execute("select count(*) from audit_seal")).fetchone()
    async with in_time():  # PostgreSQL may need a moment to end the transaction of a killed process
        while await left(database):
            await sealing.seal(database)
    async with database.relaxed() as conn:
        found = await check.verify(conn, Store.of(settings), checkpoints.known_keys(settings))
    assert sealed_by_them
    assert sealed_by_them[0] > 0
    assert (found.rows, found.problems) == (written, [])
