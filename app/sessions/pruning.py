"""What a deletion takes from the vaults of the turns that stay. Each has the values of all placeholders before it, since the next
turn goes on with them, so the values of what is deleted lie there, too.

A vault is changed only as it was read, and after a deletion its turns are read again, so it misses neither another deletion nor
an answer that was stored at the same time. Of those that are stored later, `Known` sees that what they continue has changed, and
`edits` of a conversation that a turn was prepared before.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import orjson
import structlog

from app import off_loop
from app.db.pool import Connection
from app.db.transient_errors import TRANSIENT
from app.errors import KeysUnavailable
from app.policy.redaction import used
from app.sessions import reading, service, sql
from app.sessions.service import Keeper, Known, StoredTurn
from app.states import TurnState

Changes = Mapping[UUID, tuple[bytes | None, bytes | None]]  # old and new vault, by turn
_log = structlog.get_logger("sessions")


class Pruning(ABC):
    """The vaults that a deletion changes."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self.changes: Changes = {}

    @abstractmethod
    async def _turns(self) -> Sequence[StoredTurn]:
        """The turns that may have values of what goes."""

    @abstractmethod
    def _kept(self, turns: Sequence[StoredTurn]) -> Sequence[Mapping[str, str]]:
        """The values that each of them keeps."""

    async def prepare(self) -> None:
        """Find them. Raises KeysUnavailable."""
        turns = await self._turns()
        self.changes = await off_loop.of_size(sum(turn.size for turn in turns), self._changes, turns)

    def _changes(self, turns: Sequence[StoredTurn]) -> Changes:
        return {
            turn.turn_id: (turn.stored[2], service.vault(self._keeper, turn.turn_id, turn.seal, values))
            for turn, values in zip(turns, self._kept(turns), strict=True)
            if len(values) < len(turn.values) and turn.state == TurnState.DONE
        }

    async def write(self, conn: Connection) -> None:
        """Write them. Call in the transaction that deletes."""
        if self.changes:
            old, new = zip(*self.changes.values(), strict=True)
            await conn.execute(sql.PRUNE, {"turn_ids": list(self.changes), "old": list(old), "vaults": list(new)})

    async def finish(self) -> None:
        """Find and write those that were stored meanwhile. Call after that transaction: what is deleted stays deleted, so that an
        error is only logged.
        """
        try:
            await self.prepare()
            while self.changes:
                async with self._keeper.database.transaction() as conn:
                    await self.write(conn)
                await self.prepare()
        except (KeysUnavailable, *TRANSIENT) as error:
            _log.error("deletion.unfinished", error=str(error), tenant_id=self._keeper.tenant_id)


class Orphans(Pruning):
    """Nothing can continue what continued the turns that are `gone`. Each keeps the values that its own items have."""

    def __init__(self, keeper: Keeper, gone: Iterable[UUID]) -> None:
        super().__init__(keeper)
        self.gone = list(gone)

    async def _turns(self) -> Sequence[StoredTurn]:
        return await reading.below(self._keeper, self.gone) if self.gone else ()

    def _kept(self, turns: Sequence[StoredTurn]) -> Sequence[Mapping[str, str]]:
        return [used(orjson.dumps([turn.given, turn.response]), turn.values) for turn in turns]


class _Rewritten(Pruning):
    """Items of a turn of a conversation go. All after it, and what continues them, lose the values that no item has any more."""

    def __init__(self, keeper: Keeper, turn: StoredTurn, names: frozenset[str]) -> None:
        super().__init__(keeper)
        self._turn, self._names = turn, names

    async def _turns(self) -> Sequence[StoredTurn]:
        session_id = self._turn.session_id
        if not self._names or session_id is None:
            return ()
        later = await reading.turn_ids(self._keeper, session_id, self._turn.n)
        past = await reading.past_with_values(self._keeper, session_id)
        return [*past, *await reading.below(self._keeper, {self._turn.turn_id, *later})]

    def _kept(self, turns: Sequence[StoredTurn]) -> Sequence[Mapping[str, str]]:
        others = [turn for turn in turns if turn.turn_id != self._turn.turn_id]
        gone = self._names.difference(*(_names([turn.given, turn.response], turn) for turn in others))
        return [{name: value for name, value in turn.values.items() if name not in gone} for turn in turns]


async def of_turn(keeper: Keeper, turn: StoredTurn, left: Iterable[Any] = ()) -> Pruning:
    """What changes if a response goes; of a conversation, if of its items only `left` stay. Raises KeysUnavailable."""
    if turn.session_id is None:
        return await _prepared(Orphans(keeper, [turn.turn_id] if turn.values else []))
    names = await off_loop.of_size(turn.size, _gone, turn, left)
    return await _prepared(_Rewritten(keeper, turn, names))


async def _prepared(pruning: Pruning) -> Pruning:
    await pruning.prepare()
    return pruning


async def still_known(keeper: Keeper, parent: UUID | None, texts: Sequence[Any], values: Mapping[str, str]) -> Known:
    """Of the values that a turn began with, those that are still known as it ends: of its own `texts`, and of what is before it
    and was not deleted meanwhile. `parent`: the response that it continues, if it is of no conversation.
    """
    if parent is None or not values:
        return Known(values)
    chain = await reading.chain(keeper, parent)
    before = reading.values_of(chain)
    own = used(await off_loop.done(texts, orjson.dumps, list(texts)), values)
    kept = {name: value for name, value in values.items() if name in own or before.get(name) == value}
    return Known(kept, parent, chain[-1].stored[2]) if chain else Known(kept)


def _gone(turn: StoredTurn, left: Iterable[Any]) -> frozenset[str]:
    """The placeholders that its items have and those that stay have not."""
    return frozenset(_names([turn.given, turn.response], turn)).difference(_names(left, turn))


def _names(items: Iterable[Any], turn: StoredTurn) -> Iterable[str]:
    return used(orjson.dumps(list(items)), turn.values)
