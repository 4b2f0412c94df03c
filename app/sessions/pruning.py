"""What a deletion takes from the vaults of the turns that stay. Each has the values of all placeholders before it, since the next
turn goes on with them, so the values of what is deleted lie there, too.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import orjson

from app import off_loop
from app.db.pool import Connection
from app.policy.redaction import used
from app.sessions import reading, service, sql
from app.sessions.service import Keeper, StoredTurn
from app.states import TurnState

Vaults = Mapping[UUID, bytes | None]  # new ones, by turn


async def after_deletion(keeper: Keeper, turn: StoredTurn, left: Iterable[Any] = ()) -> Vaults:
    """The vaults that change if of the items of `turn` only `left` stay. Raises KeysUnavailable."""
    gone = await off_loop.of_size(turn.size, _gone, turn, left)
    others = await _others(keeper, turn) if gone else ()
    return await off_loop.of_size(_size(turn, *others), _pruned, keeper, gone, others, turn)


async def after_end(keeper: Keeper, session_id: UUID) -> Vaults:
    """The vaults that change if a conversation goes: of the responses that continue one of its turns. Raises KeysUnavailable."""
    others = await reading.below_conversation(keeper, session_id)
    past = await reading.past(keeper, session_id) if others else []
    gone = await off_loop.of_size(_size(*past), _all_names, past)
    return await off_loop.of_size(_size(*others), _pruned, keeper, gone, others)


async def still_known(
    keeper: Keeper, turn: StoredTurn, texts: Sequence[Any], values: Mapping[str, str]
) -> Mapping[str, str]:
    """Of the values that a turn began with, those that are still known as it ends: of its own `texts`, and of what is before it
    and was not deleted meanwhile.
    """
    if turn.parent is None:
        return values
    before = reading.values_of(await reading.chain(keeper, turn.parent))
    own = used(await off_loop.done(texts, orjson.dumps, list(texts)), values)
    return {name: value for name, value in values.items() if name in own or before.get(name) == value}


def _size(*turns: StoredTurn) -> int:
    return sum(turn.size for turn in turns)


def _gone(turn: StoredTurn, left: Iterable[Any]) -> set[str]:
    """The placeholders that its items have and those that stay have not."""
    return set(_names([turn.given, turn.response], turn)) - set(_names(left, turn))


def _all_names(turns: Sequence[StoredTurn]) -> set[str]:
    return {name for turn in turns for name in _names([turn.given, turn.response], turn)}


def _pruned(keeper: Keeper, gone: set[str], others: Sequence[StoredTurn], *more: StoredTurn) -> Vaults:
    """The vaults of `others` and `more` without the names in `gone`, but for those that `others` have in their texts."""
    for each in others:
        gone -= set(_names([each.given, each.response], each))
    found: dict[UUID, bytes | None] = {}
    for each in (*others, *more) if gone else ():
        kept = {name: value for name, value in each.values.items() if name not in gone}
        if len(kept) < len(each.values) and each.state == TurnState.DONE:
            found[each.turn_id] = service.vault(keeper, each.turn_id, each.seal, kept)
    return found


async def write(conn: Connection, vaults: Vaults) -> None:
    """Write them. Call in the transaction that deletes."""
    if vaults:
        await conn.execute(sql.PRUNE, {"turn_ids": list(vaults), "vaults": list(vaults.values())})


async def _others(keeper: Keeper, turn: StoredTurn) -> Sequence[StoredTurn]:
    """The turns that have its values: those of its conversation, and the responses that continue it."""
    below = await reading.below(keeper, turn.turn_id)
    if turn.session_id is None:
        return below
    return [*(each for each in await reading.past(keeper, turn.session_id) if each.turn_id != turn.turn_id), *below]


def _names(items: Iterable[Any], turn: StoredTurn) -> Iterable[str]:
    return used(orjson.dumps(list(items)), turn.values)
