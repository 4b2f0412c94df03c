"""What a deletion takes from the vaults of the turns that stay. Each has the values of all placeholders before it, since the next
turn goes on with them, so the values of what is deleted lie there, too.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import orjson

from app.db.pool import Connection
from app.policy.redaction import used
from app.sessions import reading, service, sql
from app.sessions.service import Keeper, StoredTurn
from app.states import TurnState

Vaults = Mapping[UUID, bytes | None]  # new ones, by turn


async def after_deletion(keeper: Keeper, turn: StoredTurn, left: Iterable[Any] = ()) -> Vaults:
    """The vaults that change if of the items of `turn` only `left` stay. Raises KeysUnavailable."""
    gone = set(_names([turn.given, turn.response], turn)) - set(_names(left, turn))
    if not gone:
        return {}
    others = await _others(keeper, turn)
    for each in others:
        gone -= set(_names([each.given, each.response], each))
    found: dict[UUID, bytes | None] = {}
    for each in (*others, turn):
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
