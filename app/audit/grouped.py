"""Records of what happens too often for a row each: refusals, and what rules change. One row for each second and kind.

A refused request stores nothing, so there is no transaction to write the row in; it follows within a second.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NoReturn

import psycopg
import structlog
from psycopg_pool import PoolTimeout

from app import clock
from app.audit import actor, log
from app.audit.actor import Actor
from app.audit.acts import Act
from app.audit.record import DONE, Record
from app.causes import cause
from app.db.pool import Database
from app.db.transient_errors import TRANSIENT

MOST_IDS = 20  # of the requests that a row names
MOST_KINDS = 1000  # that wait for the database; beyond it they are only counted in the log
_STORE_SECONDS = 1.0
_log = structlog.get_logger("audit")


@dataclass(frozen=True, slots=True)
class Kind:
    """What one row stands for, within a second."""

    act: Act
    target: str
    account: str | None
    who: str
    role: str
    outcome: str


@dataclass(slots=True)
class _Group:
    count: int = 0
    ids: dict[str, None] = field(default_factory=dict)


class GroupedLog:
    """The grouped records of one process. Run `keep` beside it. Without a database nothing is kept."""

    def __init__(self, database: Database | None) -> None:
        self._database = database
        self._groups: dict[tuple[datetime, Kind], _Group] = {}
        self._lost = 0

    def add(
        self, act: Act, target: str, account: str | None, outcome: str = DONE, correlation: Sequence[str] = ()
    ) -> None:
        """Note something that whoever acts now did, or was refused. `correlation`: ids beside that of their request."""
        by = actor.current()
        key = clock.now().replace(microsecond=0), Kind(act, target, account, by.who, by.role, outcome)
        group = self._groups.get(key)
        if group is None:
            if self._database is None or len(self._groups) >= MOST_KINDS:
                self._lost += 1
                return
            group = self._groups[key] = _Group()
        group.count += 1
        for name in (by.correlation, *correlation):
            if name and len(group.ids) < MOST_IDS:
                group.ids[name] = None

    async def keep(self) -> NoReturn:
        """Store the records each second, until cancelled; then what is left."""
        try:
            while True:
                await asyncio.sleep(_STORE_SECONDS)
                await self.store()
        finally:
            await self.store()

    async def store(self) -> None:
        """Store what was noted. What the database does not take waits."""
        groups, self._groups = self._groups, {}
        if not groups or self._database is None:
            return
        if self._lost:
            _log.error("audit.overflow", records=self._lost)
            self._lost = 0
        try:
            async with self._database.transaction() as conn:
                for (at, kind), group in groups.items():
                    await log.record_all(conn, [_record(kind, group)], at)
        except (psycopg.Error, PoolTimeout, *TRANSIENT) as error:
            self._take_back(groups)
            _log.warning("audit.not_stored", records=len(groups), error=cause(error))

    def _take_back(self, groups: dict[tuple[datetime, Kind], _Group]) -> None:
        for key, group in groups.items():
            if (newer := self._groups.get(key)) is not None:
                newer.count += group.count
                newer.ids = dict.fromkeys([*group.ids, *newer.ids][:MOST_IDS])
            else:
                self._groups[key] = group


def _record(kind: Kind, group: _Group) -> Record:
    by = Actor(kind.who, kind.role)
    count = {"requests": group.count}
    return Record(
        kind.act, kind.target, kind.account, after=count, outcome=kind.outcome, actor=by, correlation=list(group.ids)
    )
