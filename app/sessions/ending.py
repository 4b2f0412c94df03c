"""Ends turns: with an answer, without one, or because the process that ran one is gone. Each statement checks that it runs.

Only a turn that has been ended is counted, since several processes may try to end it.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from app.db.pool import Connection, Database
from app.errors import TurnLost
from app.policy.vaults import NO_VALUES
from app.sessions import growth, metrics, service, sql
from app.sessions.service import Keeper, NewTurn
from app.states import TURN


async def end(
    keeper: Keeper,
    turn: NewTurn,
    session_id: UUID | None,
    response: Mapping[str, Any],
    values: Mapping[str, str] = NO_VALUES,
    *,
    window: int | None = None,
) -> None:
    """Store the answer of a running turn, and let the next one begin. `values`: of all placeholders, if the answer has new ones.
    `window`: the context window of its model.

    Raises TurnLost: it does not run any more.
    """
    written = service.answer_columns(keeper, turn, response, values)
    async with keeper.database.durable() as conn:
        if session_id is None:
            ended = await _written(conn, sql.END_LOOSE, written | {"slope": None})
        else:
            tokens = written["prompt_tokens"], written["completion_tokens"]
            grown = await growth.of_turn(conn, session_id, *tokens, window)
            written["slope"] = grown.slope
            if grown.left is None:
                ended = await _written(conn, sql.END, written)
            else:
                async with conn.transaction():
                    if ended := await _written(conn, sql.END, written):
                        model = turn.model or str(response.get("model") or "")
                        await growth.tell(conn, keeper.tenant_id, service.name(session_id), model, grown)
    if not ended:
        raise TurnLost("The turn was given up before its answer came, since it was cut off for too long: send it again")
    metrics.ended(TURN.target("end"))


async def _written(conn: Connection, statement: str, values: Mapping[str, Any]) -> bool:
    return await (await conn.execute(statement, values)).fetchone() is not None


async def lapse(database: Database, session_id: UUID) -> None:
    """End the running turn of a conversation as failed, if its lease has run out."""
    async with database.durable() as conn:
        count = (await conn.execute(sql.LAPSE, {"session_id": session_id})).rowcount
    metrics.ended(TURN.target("fail"), count)


async def give_up(database: Database, turn_id: UUID, verb: str) -> None:
    """End a running turn without an answer: `fail` or `cancel`."""
    values = {"turn_id": turn_id, "slope": None}
    async with database.durable() as conn:
        count = (await conn.execute(sql.GIVE_UP[verb], values)).rowcount
        count = count or (await conn.execute(sql.GIVE_UP_LOOSE[verb], values)).rowcount
    metrics.ended(TURN.target(verb), count)


async def cancel_queued(database: Database, turn_id: UUID) -> None:
    """A turn that waits is not to begin."""
    async with database.durable() as conn:
        count = (await conn.execute(sql.CANCEL_QUEUED, {"turn_id": turn_id})).rowcount
    metrics.ended(TURN.target("cancel"), count)
