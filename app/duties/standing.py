"""How each duty stands, in its row: the leading steward writes that one is asked for, a maintenance worker what became of it."""

from dataclasses import dataclass
from datetime import datetime

from app.db.pool import Connection
from app.duties import sql
from app.duties.schedule import BY_NAME, DUTIES, STUCK_SECONDS, Duty

_ERROR_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class Standing:
    """A duty. `took_ms`: how long the last success took. `error`: of the last run, its kind first; None: it has not failed.
    `due_at`: when it is asked for next. `unsuccessful_seconds`: since its last success, or since the installation has it.
    """

    duty: Duty
    began_at: datetime | None
    succeeded_at: datetime | None
    took_ms: int | None
    failed_at: datetime | None
    error: str | None
    due_at: datetime
    unsuccessful_seconds: float

    @property
    def fault(self) -> str | None:
        """The kind of the error, without its words, which may name hosts."""
        return None if self.error is None else self.error.partition(":")[0]

    @property
    def late_seconds(self) -> float:
        """For how long a success has been due."""
        return max(0.0, self.unsuccessful_seconds - self.duty.every_seconds)

    @property
    def stuck(self) -> bool:
        """Whether it needs somebody."""
        return self.late_seconds > STUCK_SECONDS


async def enter(conn: Connection) -> None:
    """Make sure that every duty has a row. A new one is due at once."""
    await conn.execute(sql.ENTER, {"names": [duty.name for duty in DUTIES]})


async def ask(conn: Connection) -> list[str]:
    """Ask for what is due. Returns the names; each is asked for again after its `retry_seconds`, unless it was done meanwhile."""
    values = {"names": [duty.name for duty in DUTIES], "retries": [duty.retry_seconds for duty in DUTIES]}
    return [name for (name,) in await (await conn.execute(sql.ASK, values)).fetchall()]


async def hasten(conn: Connection, name: str) -> None:
    """Make a duty due now, unless it is asked for already."""
    await conn.execute(sql.HASTEN, {"name": name})


async def is_asked(conn: Connection, name: str) -> bool:
    """Whether somebody has asked for a duty since it was last done."""
    return await (await conn.execute(sql.IS_ASKED, {"name": name})).fetchone() is not None


async def begin(conn: Connection, name: str) -> bool:
    """Note that a duty begins. False: nobody has asked for it since it was last done. The caller holds its lock."""
    return await (await conn.execute(sql.BEGIN, {"name": name})).fetchone() is not None


async def succeed(conn: Connection, duty: Duty, seconds: float) -> None:
    """Note that a duty is done, and how long it took."""
    values = {"name": duty.name, "took_ms": round(1000 * seconds), "seconds": duty.every_seconds}
    await conn.execute(sql.SUCCEED, values)


async def fail(conn: Connection, duty: Duty, error: str) -> None:
    """Note why a duty has failed. It is asked for again soon."""
    values = {"name": duty.name, "error": error[:_ERROR_CHARACTERS], "seconds": duty.retry_seconds}
    await conn.execute(sql.FAIL, values)


async def stop(conn: Connection, name: str) -> None:
    """Note that a worker that ends leaves a duty to the next one."""
    await conn.execute(sql.STOP, {"name": name})


async def standings(conn: Connection) -> list[Standing]:
    """Every duty of the schedule that has a row, in its order."""
    rows = await (await conn.execute(sql.STANDING)).fetchall()
    found = {name: Standing(BY_NAME[name], *facts) for name, *facts in rows if name in BY_NAME}
    return [found[name] for name in BY_NAME if name in found]


async def gauges(conn: Connection) -> list[tuple[str, str, float]]:
    """(name, duty, value) of what an operator should watch. `app.api.metrics` describes each."""
    found: list[tuple[str, str, float]] = []
    for each in await standings(conn):
        name = each.duty.name
        found += [
            ("duty_late_seconds", name, each.late_seconds),
            ("duty_due_timestamp_seconds", name, each.due_at.timestamp()),
        ]
        if each.succeeded_at is not None and each.took_ms is not None:
            found.append(("duty_success_timestamp_seconds", name, each.succeeded_at.timestamp()))
            found.append(("duty_seconds", name, each.took_ms / 1000))
        found.append(("duty_failing", name, float(each.error is not None)))
    return found
