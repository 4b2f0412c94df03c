"""The gauges of pipelines in `/metrics`. They are counted up to a number above which it makes no difference."""

from app.db.pool import Connection
from app.pipelines import gauges_sql as sql

MOST_MARKERS, MOST_PIPELINES = 1000, 10_000


async def read(conn: Connection) -> list[tuple[str, str, float]]:
    """Markers that wait, for how long, those that were set aside, and open pipelines by state."""
    [(seconds, markers, stuck)] = await (await conn.execute(sql.MARKERS, {"most": MOST_MARKERS})).fetchall()
    states = await (await conn.execute(sql.STATES, {"most": MOST_PIPELINES})).fetchall()
    handoff = [("handoff_seconds", "", float(seconds)), ("handoff_markers", "", markers), ("handoff_stuck", "", stuck)]
    return [*handoff, *(("pipelines", state, count) for state, count in states)]
