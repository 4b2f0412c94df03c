"""What a deletion takes from the vaults of the turns that stay. Each has the values of all placeholders before it, since the next
turn goes on with them, so the values of what is deleted lie there, too.

A vault is changed only as it was read, and after a deletion its turns are read again, so it misses neither another deletion nor
an answer that is stored at the same time. Of those that are stored later, `Known` sees that what they continue has changed.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

import orjson

from app import off_loop
from app.db.pool import Connection
from app.policy.redaction import used
from app.sessions import reading, service, sql
from app.sessions.service import Keeper, Known, StoredTurn
from app.states import TurnState

Turns = Callable[[], Awaitable[Sequence[StoredTurn]]]
Changes = Mapping[UUID, tuple[bytes | None, bytes | None]]  # old and new vault, by turn


class Pruning:
    """The vaults that a deletion changes. `turns`: reads those that may have values of what goes. `gone`: the placeholders that
    go; None: all but those that a turn has in its own items, since nothing can continue it any more. `own`: the turn whose items
    are deleted; those that stay of it are not in `gone`.
    """

    def __init__(self, keeper: Keeper, turns: Turns, gone: set[str] | None, own: UUID | None = None) -> None:
        self._keeper, self._turns, self._gone, self._own = keeper, turns, gone, own
        self.changes: Changes = {}

    async def prepare(self) -> None:
        """Find them. Raises KeysUnavailable."""
        turns = () if self._gone == set() else await self._turns()
        self.changes = await off_loop.of_size(_size(*turns), self._changes, turns)

    def _changes(self, turns: Sequence[StoredTurn]) -> Changes:
        kept = self._own_values(turns) if self._gone is None else self._others(self._gone, turns)
        return {
            turn.turn_id: (turn.stored[2], service.vault(self._keeper, turn.turn_id, turn.seal, values))
            for turn, values in zip(turns, kept, strict=True)
            if len(values) < len(turn.values) and turn.state == TurnState.DONE
        }

    def _own_values(self, turns: Sequence[StoredTurn]) -> list[Mapping[str, str]]:
        return [used(orjson.dumps([turn.given, turn.response]), turn.values) for turn in turns]

    def _others(self, gone: set[str], turns: Sequence[StoredTurn]) -> list[Mapping[str, str]]:
        for turn in turns:
            if turn.turn_id != self._own:
                gone -= set(_names([turn.given, turn.response], turn))
        return [{name: value for name, value in turn.values.items() if name not in gone} for turn in turns]

    async def write(self, conn: Connection) -> None:
        """Write them. Call in the transaction that deletes."""
        if self.changes:
            old, new = zip(*self.changes.values(), strict=True)
            await conn.execute(sql.PRUNE, {"turn_ids": list(self.changes), "old": list(old), "vaults": list(new)})

    async def finish(self) -> None:
        """Find and write those that were stored meanwhile. Call after that transaction."""
        while True:
            await self.prepare()
            if not self.changes:
                return
            async with self._keeper.database.transaction() as conn:
                await self.write(conn)


async def of_turn(keeper: Keeper, turn: StoredTurn, left: Iterable[Any] = ()) -> Pruning:
    """What changes if a response goes; of a conversation, if of its items only `left` stay. Raises KeysUnavailable."""
    if turn.session_id is None:
        return await _prepared(Pruning(keeper, partial(reading.below, keeper, [turn.turn_id]), None))
    gone = await off_loop.of_size(turn.size, _gone, turn, left)
    return await _prepared(Pruning(keeper, partial(_family, keeper, turn), gone, turn.turn_id))


async def of_conversation(keeper: Keeper, session_id: UUID) -> Pruning:
    """What changes if a conversation goes: of the responses that continue one of its turns. Raises KeysUnavailable."""
    turn_ids = [turn.turn_id for turn in await reading.past_with_values(keeper, session_id)]
    return await _prepared(Pruning(keeper, partial(reading.below, keeper, turn_ids), None))


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


def _size(*turns: StoredTurn) -> int:
    return sum(turn.size for turn in turns)


def _gone(turn: StoredTurn, left: Iterable[Any]) -> set[str]:
    """The placeholders that its items have and those that stay have not."""
    return set(_names([turn.given, turn.response], turn)) - set(_names(left, turn))


async def _family(keeper: Keeper, turn: StoredTurn) -> Sequence[StoredTurn]:
    """The turns that have its values: those of its conversation, itself, and the responses that continue it."""
    assert turn.session_id is not None
    return [
        *await reading.past_with_values(keeper, turn.session_id),
        *await reading.below(keeper, [turn.turn_id]),
    ]


def _names(items: Iterable[Any], turn: StoredTurn) -> Iterable[str]:
    return used(orjson.dumps(list(items)), turn.values)
