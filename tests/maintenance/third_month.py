"""An installation in its third month: what has come together until then, dated back.

Days that are over and whose retention has ended, one of them with a batch that never ended; yesterday, which was not frozen yet;
engines of a spot pool that came and went; usage, history and conversations of months; a budget whose window is over; files that
have expired and objects that nobody needs; deleted contents, a closed account, and an audit log that is older than its retention.
"""

import os
import time
import uuid
from datetime import date, timedelta
from pathlib import Path

from app import cells, clock
from app.audit import log as audit
from app.audit import sealing
from app.audit.record import Record
from app.batches import accounts, lifecycle
from app.budgets import service as budgets
from app.files import service as files
from app.settings import Settings
from app.storage import object_names
from tests.queue import support
from tests.queue.past import Past, deliver

OLD_DAYS = (88, 75, 60, 45)
HELD_DAY = 50  # of which one batch is still open
NEW_DAYS = (20, 2, 1)
ENGINES = 300

_ENGINES = """
insert into engine (name, pool_id, url, mode, slots, state, heartbeat_at)
select 'spot-' || g, %(pool)s, 'http://x', 'attached', 8, 'down', now() - (g * 88.0 / %(count)s) * interval '1 day'
from generate_series(1, %(count)s) g"""
_HISTORY = (
    """insert into decision (engine_id, at, layer, was_allowance, allowance, was_reason, reason, in_flight, credited)
       select engine_id, heartbeat_at, 'l1', 0, 0, 'open', 'open', 0, 0 from engine""",
    """insert into engine_sample (engine_id, at, seconds, reason, closed_seconds, allowance, batch, sync, sync_waiting, frozen,
         batch_tokens, sync_tokens, yields, evictions)
       select engine_id, now() - n * interval '6 hours', 10, 'open', 0, 1, 1, 1, 0, 0, 9, 9, 0, 0
       from (select engine_id from engine order by 1 limit 5) e, generate_series(1, 300) n""",
    """insert into latency_minute (minute, writer, model, beside, requests, first_token, gap)
       select date_trunc('hour', now()) - n * interval '6 hours', 'w', 'toy', false, 1, '{1,1}', '{1,1}'
       from generate_series(1, 300) n""",
    """insert into change (at, kind, subject, data) select now() - n * interval '6 hours', 'part.started', 'api', '{}'
       from generate_series(1, 350) n""",
    """insert into request_sample (at, tenant_id, key_id, workflow, task, critical, kind, model, endpoint, requests, est_tokens,
         answer_tokens)
       select now() - n * interval '6 hours', %(tenant)s, '', '', '', false, 'sync', 'toy', '/v1', 1, 9, 9
       from generate_series(1, 350) n""",
    """insert into line (tenant_id, key_id, workflow, task, critical, variant, family, model, kind, endpoint)
       values (%(tenant)s, 'k', 'w', '', false, '', '', 'toy', 'sync', '/v1')""",
    """insert into usage (hour, line_id, requests, ok, prompt, output)
       select date_trunc('hour', now()) - n * interval '3 hours', line_id, 1, 1, 3, 5
       from (select max(line_id) as line_id from line) l, generate_series(1, 700) n""",
    """insert into session_growth (tenant_id, session, workflow, variant, model, endpoint, prompts, fresh, seen_at)
       select %(tenant)s, convert_to(n::text, 'UTF8'), 'w', '', 'toy', '/v1', '{1,1}', '{1,1}', now() - n * interval '1 day'
       from generate_series(1, 88) n""",
    """insert into session (session_id, tenant_id, version, created_at, used_at)
       select gen_random_uuid(), %(tenant)s, 1, now() - n * interval '1 day', now() - n * interval '1 day'
       from generate_series(1, 88) n""",
    """insert into turn (turn_id, tenant_id, session_id, n, state, model, input, created_at, finished_at)
       select gen_random_uuid(), tenant_id, session_id, 1, 'done', 'toy', '{}', used_at, used_at from session""",
)


async def make(past: Past, settings: Settings, folder: Path) -> dict[int, date]:
    """Fill the database and the object store. Returns the days, by how many days ago they are."""
    days = {ago: await past.day(ago) for ago in (*OLD_DAYS, HELD_DAY, *NEW_DAYS)}
    for ago, day in days.items():
        await _ended(past, day, ago - 1)
    await deliver(past)
    for prefix in object_names.of_day(days[OLD_DAYS[0]]):
        await past.store.put(f"{prefix}7/0", b"old")
    await past.conn.execute(_ENGINES.encode(), {"pool": past.pool, "count": ENGINES})
    for statement in _HISTORY:
        await past.conn.execute(statement.encode(), {"tenant": past.tenant})
    await _spend(past, settings)
    await _store(past, folder)
    await _audit(past)
    gone = await support.make_tenant(past.conn, "gone")
    await _ended(past, clock.now().date(), 0, gone)
    async with past.database.transaction() as conn:
        await accounts.close(conn, "gone")
    await past.batch(days[HELD_DAY])
    return days


async def _ended(past: Past, day: date, ago: int, tenant: int | None = None) -> None:
    """A batch of this day that ended so many days ago, whose usage was booked."""
    request_id = await past.batch(day, tenant=tenant)
    await support.drain(past.database, past.pool, await support.make_worker(past.database, past.pool))
    async with past.database.transaction() as conn:
        await lifecycle.settle(conn)
    await past.conn.execute(
        "update batch set finalized_at = now() - %s * interval '1 day' where request_id = %s", (ago, request_id)
    )


async def _spend(past: Past, settings: Settings) -> None:
    """A budget by the day whose window ended a month ago."""
    async with past.database.transaction() as conn:
        await budgets.put(conn, past.tenant, "daily", {"max_tokens": 1000, "period": "day"})
    await past.conn.execute(
        "update budget set spent = 900, window_from = now() - interval '31 days', window_to = now() - interval '30 days'"
    )


async def _store(past: Past, folder: Path) -> None:
    """A file that has expired, one that has not, and an object without a row, all of them old."""
    content = folder / "content"
    content.write_bytes(b"x")
    for seconds in (1, 10_000_000):
        values = {"filename": "f", "size": 1, "expires_seconds": seconds, "lines": 1, "problems": [], "demand": {}}
        await files.keep(
            past.database,
            past.store,
            content,
            file_id=cells.new_timed_id(),
            tenant_id=past.tenant,
            purpose="batch",
            **values,
        )
    await past.conn.execute(
        "update file set expires_at = now() - interval '40 days' where expires_at < now() + interval '1 day'"
    )
    await past.store.put(object_names.upload(past.tenant, uuid.uuid4()), b"orphan")
    month_ago = time.time() - 30 * 86_400
    for path in (folder / "objects").rglob("*"):
        os.utime(path, (month_ago, month_ago))


async def _audit(past: Past) -> None:
    """Rows of the first day, which no checkpoint covers yet, and of today."""
    async with past.database.transaction() as conn:
        old = clock.now() - timedelta(days=88)
        await audit.record_all(conn, [Record("test.act", f"t{n}", "acme") for n in range(5)], old)
        await audit.record_all(conn, [Record("test.act", "t", None)])
    await sealing.seal(past.database)
