"""Ends turns: with an answer, without one, or because the process that ran one is gone. Each statement checks that it runs.

Only a turn that has been ended is counted, since several processes may try to end it.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from app.db.pool import Connection, Database
from app.errors import TurnLost
from app.queue import held_items
from app.queue.held_items import HeldItem
from app.sessions import growth, metrics, service, sql
from app.sessions.service import Keeper, Known, NewTurn
from app.states import TURN


async def end(
    keeper: Keeper,
    turn: NewTurn,
    session_id: UUID | None,
    response: Mapping[str, Any],
    known: Known,
    *,
    window: int | None = None,
    item: HeldItem | None = None,
) -> None:
    """Store the answer of a running turn, and let the next one begin. `window`: the context window of its model. `item`: what its
    batch keeps of its request.

    Raises TurnLost: it does not run any more, or what it knows was deleted meanwhile.
    """
    written = await service.answer_columns(keeper, turn, response, known)
    async with keeper.database.durable() as conn:
        grown = None
        if session_id is not None:
            tokens = written["prompt_tokens"], written["completion_tokens"]
            grown = await growth.of_turn(conn, session_id, *tokens, window)
        written["slope"] = grown.slope if grown else None
        statement = sql.END if session_id is not None else sql.END_LOOSE
        if item is None and (grown is None or grown.left is None):
            ended = await _written(conn, statement, written)
        else:
            async with conn.transaction():
                if ended := await _written(conn, statement, written):
                    if item is not None:
                        await held_items.rewrite(conn, item)
                    if session_id is not None and grown is not None and grown.left is not None:
                        model = turn.model or str(response.get("model") or "")
                        await growth.tell(conn, keeper.tenant_id, service.name(session_id), model, grown)
    if not ended:
        raise TurnLost(
            "The turn was given up before its answer came, since it was cut off for too long: send it again"
            if known.parent is None
            else "What the response continues was changed while its answer was stored"
        )
    metrics.ended(TURN.target("end"))


async def _written(conn: Connection, statement: str, values: Mapping[str, Any]) -> bool:
    return await (await conn.execute(statement, values)).fetchone() is not None


async def lapse(database: Database, session_id: UUID) -> None:
    """End the running turn of a conversation as failed, if its lease has run out."""
    async with database.durable() as conn:
        count = (await conn.execute(sql.LAPSE, {"session_id": session_id})).rowcount
    metrics.ended(TURN.target("fail"), count)


async def give_up(database: Database, turn_id: UUID, verb: str, item: HeldItem | None = None) -> None:
    """End a running turn without an answer: `fail` or `cancel`. `item`: see `end`."""
    values = {"turn_id": turn_id, "slope": None}
    async with database.transaction() as conn:
        count = (await conn.execute(sql.GIVE_UP[verb], values)).rowcount
        count = count or (await conn.execute(sql.GIVE_UP_LOOSE[verb], values)).rowcount
        if count and item is not None:
            await held_items.rewrite(conn, item)
    metrics.ended(TURN.target(verb), count)


async def cancel_queued(database: Database, turn_id: UUID, item: HeldItem | None = None) -> None:
    """A turn that waits is not to begin. `item`: see `end`."""
    async with database.transaction() as conn:
        count = (await conn.execute(sql.CANCEL_QUEUED, {"turn_id": turn_id})).rowcount
        if count and item is not None:
            await held_items.rewrite(conn, item)
    metrics.ended(TURN.target("cancel"), count)
