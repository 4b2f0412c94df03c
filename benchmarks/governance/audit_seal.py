"""Arm: how many rows of the audit log a steward seals per second, and how many are written with their cause."""

import asyncio
from time import monotonic
from typing import Any

from app.audit import log, sealing
from app.audit.actor import Actor
from app.audit.acts import Act
from app.audit.record import Record
from app.db.pool import Database
from benchmarks.harness import Testbed, say

_OF_A_TRANSACTION = 100
_ACCOUNTS = 8


def seal(testbed: Testbed, rows: int) -> dict[str, Any]:
    """Write rows of several accounts, then seal them all."""
    written, sealed = asyncio.run(_run(testbed.database(), rows))
    say(f"audit: {rows / written:,.0f} rows/s written, {rows / sealed:,.0f} rows/s sealed")
    return {"audit_write_rows_s": round(rows / written), "audit_seal_rows_s": round(rows / sealed)}


async def _run(url: str, rows: int) -> tuple[float, float]:
    """The seconds that writing and sealing took."""
    async with Database(url) as database:
        began = monotonic()
        for first in range(0, rows, _OF_A_TRANSACTION):
            async with database.transaction() as conn:
                await log.record_all(conn, [_record(n) for n in range(first, min(rows, first + _OF_A_TRANSACTION))])
        written, count = monotonic(), 0
        while done := (await sealing.seal(database)).rows:
            count += done
        assert count == rows
        return written - began, monotonic() - written


def _record(n: int) -> Record:
    by = Actor("key 3f21ab90", "key", correlation=f"req-{n}")
    before, after = {"max": n, "period": "month"}, {"max": n + 1, "period": "month"}
    return Record(Act.BUDGET_SET, f"budget-{n}", f"account-{n % _ACCOUNTS}", before=before, after=after, actor=by)
