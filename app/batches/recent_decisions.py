"""What the engines of a batch decided lately about batch work, from their decision logs."""

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
    """The newest decisions of all these engines together, newest first. Raises as the database does."""
    if not gates or not most:
        return []
    async with database.relaxed() as conn:
        found = [
            RecentDecision(gate.engine, entry)
            for gate in gates
            for entry in await decision_log.recent(conn, gate.engine_id, most)
        ]
    return sorted(found, key=lambda decision: decision.entry.at, reverse=True)[:most]
