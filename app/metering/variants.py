"""Reads from the ledger what was seen of a variant, for `compare`."""

from app.db.pool import Connection
from app.metering import report_sql, sketch
from app.metering.compare import Observed
from app.metering.reports import Scope
from app.usage_counts import UsageCounts


async def observed(conn: Connection, scope: Scope, variant: str, workflow: str | None = None) -> Observed:
    """What was seen of the requests with the label `variant`; of one workflow, or of all."""
    values = {**scope._asdict(), "variant": variant, "workflow": workflow}
    hours = await (await conn.execute(report_sql.OF_VARIANT, values)).fetchall()
    sketches = {"first_token": sketch.empty(), "duration": sketch.empty()}
    for name, index, count in await (await conn.execute(report_sql.SKETCHES_OF_VARIANT, values)).fetchall():
        sketches[name][index] += count
    sessions = await (await conn.execute(report_sql.SESSIONS_OF_VARIANT, values)).fetchall()
    currencies = {name for names, *_ in hours for name in names}
    return Observed(
        [(UsageCounts(*counts), cost) for _, cost, *counts in hours],
        **sketches,
        sessions=[prompts for (prompts,) in sessions],
        currency=currencies.pop() if len(currencies) == 1 else None,
    )
