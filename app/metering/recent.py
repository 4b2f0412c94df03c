"""What the ledger says about this hour and the one before it, as gauges for `/metrics`. Labels are bounded."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from app.db.pool import Connection
from app.metering import recent_sql as queries
from app.metering import sketch
from app.metering.lines import OTHER
from app.metering.slope import slope

Gauge = tuple[str, tuple[str, ...], float]
QUANTILES = (0.5, 0.95)


async def gauges(conn: Connection) -> list[Gauge]:
    """(name, labels, value) of each. `app.api.metrics` describes them."""
    found = first_tokens(await (await conn.execute(queries.FIRST_TOKENS)).fetchall())
    found += shares("family_cached_ratio", await (await conn.execute(queries.CACHED)).fetchall())
    found += shares("retry_success_ratio", await (await conn.execute(queries.RETRIED)).fetchall())
    return found + sessions(await (await conn.execute(queries.SESSIONS)).fetchall())


def first_tokens(rows: Iterable[Sequence[object]]) -> list[Gauge]:
    """TTFT in seconds, from (workflow, class, bucket, count)."""
    sketches: defaultdict[tuple[str, str], list[int]] = defaultdict(sketch.empty)
    for workflow, kind, bucket, count in rows:
        sketches[str(workflow), str(kind)][int(str(bucket))] += int(str(count))
    return [
        ("workflow_ttft_seconds", (*names, str(q)), ms / 1000)
        for names, counts in sketches.items()
        for q in QUANTILES
        if (ms := sketch.quantile(counts, q)) is not None
    ]


def shares(name: str, rows: Iterable[Sequence[object]]) -> list[Gauge]:
    """The share that a part is of its whole, from (label, whole, part)."""
    return [(name, (str(label),), int(str(part)) / int(str(whole))) for label, whole, part in rows]


def sessions(rows: Iterable[Sequence[object]]) -> list[Gauge]:
    """How the sessions grow, from (workflow, lengths of the last prompts): how many there are, and quantiles of their slopes."""
    known = [(str(workflow), slope(prompts)) for workflow, prompts in rows]  # type: ignore[arg-type]
    top = {workflow for workflow, _ in Counter(workflow for workflow, _ in known).most_common(queries.MOST_WORKFLOWS)}
    slopes: defaultdict[str, list[float | None]] = defaultdict(list)
    for workflow, each in known:
        slopes[workflow if workflow in top else OTHER].append(each)
    found: list[Gauge] = []
    for workflow, all_slopes in slopes.items():
        found.append(("recent_sessions", (workflow,), len(all_slopes)))
        if measured := [each for each in all_slopes if each is not None]:
            found += [("session_growth_tokens", (workflow, str(q)), _quantile(measured, q)) for q in QUANTILES]
    return found


def _quantile(values: Sequence[float], q: float) -> float:
    return sorted(values)[max(0, math.ceil(q * len(values)) - 1)]
