"""How the prompts of sessions grow, by parts of their requests: the report on `session_growth`."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median

from app.db.pool import Connection
from app.metering import report_sql
from app.metering.reports import Scope
from app.metering.slope import slope

DIMENSIONS = tuple(report_sql.SESSION_DIMENSIONS)
USUAL = ("workflow", "model")


@dataclass(frozen=True, slots=True)
class Session:
    """A session by its hash. `prompt`: tokens of its last prompt. `slope`: None, while it has fewer than three requests."""

    group: tuple[str, ...]
    session: str
    turns: int
    prompt: int
    slope: float | None
    cached_share: float | None


@dataclass(frozen=True, slots=True)
class SessionRow:
    """The sessions of one group: medians of requests and of the last prompt's tokens, the mean slope and the steepest one."""

    group: tuple[str, ...]
    sessions: int
    turns: float
    prompt: float
    slope: float | None
    steepest: float | None
    cached_share: float | None


async def read(conn: Connection, by: Sequence[str], scope: Scope) -> list[Session]:
    """The sessions with a request in the period, which grow fastest first. `by`: of DIMENSIONS."""
    rows = await (await conn.execute(report_sql.sessions(tuple(by)), scope._asdict())).fetchall()
    found = [_session(tuple(row[: len(by)]), *row[len(by) :]) for row in rows]
    return sorted(found, key=lambda each: (each.slope is None, -(each.slope or 0), each.session))


def grouped(sessions: Sequence[Session]) -> list[SessionRow]:
    """The sessions by group, the group that grows fastest first."""
    groups: dict[tuple[str, ...], list[Session]] = {}
    for each in sessions:
        groups.setdefault(each.group, []).append(each)
    rows = [_row(group, members) for group, members in groups.items()]
    return sorted(rows, key=lambda row: (row.slope is None, -(row.slope or 0), row.group))


def _row(group: tuple[str, ...], members: Sequence[Session]) -> SessionRow:
    slopes = [each.slope for each in members if each.slope is not None]
    shares = [each.cached_share for each in members if each.cached_share is not None]
    return SessionRow(
        group,
        len(members),
        median(each.turns for each in members),
        median(each.prompt for each in members),
        mean(slopes) if slopes else None,
        max(slopes, default=None),
        mean(shares) if shares else None,
    )


def _session(group: tuple[str, ...], name: str, turns: int, prompts: list[int], fresh: list[int]) -> Session:
    total = sum(prompts)
    cached = (total - sum(fresh)) / total if total else None
    return Session(group, name, turns, prompts[-1], slope(prompts), cached)
