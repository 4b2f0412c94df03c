"""Reads from the ledger what was seen of variants, for `compare`."""

from app.db.pool import Connection
from app.errors import BadInput, NotFound
from app.metering import report_sql, sketch
from app.metering.compare import Observed
from app.metering.reports import Scope
from app.usage_counts import UsageCounts


async def compared(
    conn: Connection, scope: Scope, first: str, second: str, workflow: str | None = None
) -> dict[str, Observed]:
    """What was seen of two variants; of one workflow, or of all.

    Raises BadInput if both are the same, NotFound if one of them was never seen.
    """
    if first == second:
        raise BadInput(
            f"b: both variants are {first[:40]!r}. Name two different values of the label `variant`", param="b"
        )
    seen = {name: await observed(conn, scope, name, workflow) for name in (first, second)}
    if missing := [name for name, each in seen.items() if not each.hours]:
        raise NotFound(
            f"No request of the variant {missing[0][:40]!r} in that time. A report on usage by `variant` lists those that there "
            "are; the header x-slackwater-variant sets one"
        )
    return seen


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
