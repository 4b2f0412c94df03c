"""The latest decisions of a batch's engines about batch work, from their decision logs."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.db.pool import Database
from app.headroom import decision_log
from app.headroom.decision_log import LoggedChange
from app.queue.estimate import Gate


@dataclass(frozen=True, slots=True)
class RecentDecision:
    """One change of an engine's allowance."""

    engine: str
    entry: LoggedChange


async def latest(database: Database, gates: Sequence[Gate], most: int) -> list[RecentDecision]:
    """The newest decisions of all these engines, newest first. Raises the errors of the database."""
    if not gates or not most:
        return []
    async with database.relaxed() as conn:
        decisions = [
            RecentDecision(gate.engine, entry)
            for gate in gates
            for entry in await decision_log.recent(conn, gate.engine_id, most)
        ]
    return sorted(decisions, key=lambda decision: decision.entry.at, reverse=True)[:most]
