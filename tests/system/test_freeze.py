"""SIGSTOP of each kind of process at any moment, under load: while it stands still, other accounts' work is claimed, and nobody
waits for a lock that it holds.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterator

import httpx
import psycopg
import pytest

from app.cli.supervisor import PARTS
from app.db import embedded
from app.db.pool import Connection, Database
from testing.waiting import LIMIT_SECONDS, eventually, in_time, is_ok
from tests.freezing import frozen
from tests.queue import support
from tests.system.stack import MODEL, Stack, running

pytestmark = pytest.mark.slow

STOPS = 20
CLAIMS = 4  # during each
LOOKS = 200
ITEMS = 20
NAMES = {"gpu-worker": "gpu"}  # how a part calls itself at the server, where that is not its name
BUSY = """
select count(*), count(*) filter (where state = 'active' and wait_event_type is distinct from 'Client')
from pg_stat_activity where application_name like %s"""
OPEN = "select from pg_stat_activity where application_name like %s and state like 'idle in%%' limit 1"
HELD = """
select a.query from pg_stat_activity a join pg_locks l using (pid)
where a.application_name like %s and a.state <> 'idle' and l.granted
  and l.relation = 'sched'::regclass and l.mode in ('RowShareLock', 'RowExclusiveLock')"""


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """One installation for all stops. Its webhooks are refused, and tried again."""
    with running(latency=0.1, engine_slots=8) as stack:
        stack.subscribe(f"http://127.0.0.1:{stack.engine_port}/nowhere")
        yield stack


@pytest.mark.parametrize("part", [part for part in PARTS if part != "console"])  # which only reads
async def test_while_a_process_stands_still_work_of_others_is_claimed(stack: Stack, part: str) -> None:
    moments = random.Random(part)
    name = f"slackwater {NAMES.get(part, part)}%"
    async with in_time(), Database(embedded.database_url(stack.settings)) as database, loaded(stack):
        pool, worker = await other_account(database, part)
        for _ in range(STOPS):
            await asyncio.sleep(moments.uniform(0, 0.1))
            async with database.relaxed() as conn:
                pids = stack.pids(part)
                assert pids
                until_open(stack, name)
                with frozen(*pids):
                    await eventually(lambda conn=conn: done(conn, name))  # type: ignore[misc]
                    assert await (await conn.execute(HELD, (name,))).fetchall() == []
                    assert None not in [await support.claim(conn, pool, worker) for _ in range(CLAIMS)]


async def other_account(database: Database, account: str) -> tuple[int, int]:
    """The pool of the load, in which another account has more chunks than are claimed here, and a worker for them."""
    async with database.durable() as conn:
        [[pool]] = await (await conn.execute("select pool_id from pool where model = %s", (MODEL,))).fetchall()
        tenant = await support.make_tenant(conn, account)
    await support.submit(database, tenant, pool, 2000, max_items=1)
    return pool, await support.make_worker(database, pool, lease_seconds=3600)


@contextlib.asynccontextmanager
async def loaded(stack: Stack) -> AsyncIterator[None]:
    """Another account submits batches meanwhile, and changes their state."""
    headers = {"authorization": f"Bearer {stack.key}"}
    items = {"requests": [{"prompt": f"question {n}", "max_tokens": 4} for n in range(ITEMS)]}

    async def load(client: httpx.AsyncClient) -> None:
        while True:
            answer = await client.post(stack.run(), params={"queueRequest": "true"}, json=items)
            if is_ok(answer):
                batch = f"{stack.path}/ai/batches/{answer.json()['result']['request_id']}"
                for verb in ("pause", "resume", "cancel", "retry"):
                    await client.post(f"{batch}/{verb}")

    async with httpx.AsyncClient(base_url=stack.url, headers=headers, timeout=LIMIT_SECONDS) as client:
        loads = [asyncio.create_task(load(client)) for _ in range(8)]
        try:
            yield
            for each in loads:
                each.cancel()
            ended = await asyncio.gather(*loads, return_exceptions=True)
            assert all(isinstance(each, asyncio.CancelledError) for each in ended), ended
        finally:
            for each in loads:
                each.cancel()


def until_open(stack: Stack, name: str) -> None:
    """Return in the middle of a transaction of these processes, if one is seen soon."""
    with psycopg.connect(embedded.database_url(stack.settings), autocommit=True) as looks:
        for _ in range(LOOKS):
            if looks.execute(OPEN, (name,)).fetchone():
                return


async def done(conn: Connection, name: str) -> bool:
    """Whether the server has done all that these processes had asked of it."""
    row = await (await conn.execute(BUSY, (name,))).fetchone()
    assert row
    assert row[0], f"{name} has no connection"
    return bool(row[1] == 0)
