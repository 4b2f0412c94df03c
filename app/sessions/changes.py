"""What the owner of a conversation does beside its turns: names it, deletes it, adds and deletes items, deletes responses."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

import orjson

from app import off_loop
from app.audit import log
from app.audit.acts import Act
from app.audit.record import Record
from app.db.pool import Connection
from app.errors import Conflict, ConversationLocked, NotFound
from app.queue import response_log
from app.sessions import checkpoints, ending, pruning, reading, sealing, service, sql, transcript
from app.sessions.sealing import INPUT, OUTPUT
from app.sessions.service import Keeper, Session, StoredTurn
from app.sessions.transcript import PastTurn

_BUSY = "A turn of the conversation runs or waits; cancel it or wait for its end"
_SUMMARISED = "An engine is making a summary of the conversation, and is being stopped; try again in a moment"


async def rename(keeper: Keeper, account: str, session_id: UUID, meta: Mapping[str, str], if_match: str | None) -> None:
    """Replace the metadata of a conversation. Raises NotFound, VersionMoved."""
    values = {"session_id": session_id, "tenant_id": keeper.tenant_id, "meta": orjson.dumps(dict(meta)).decode()}
    async with keeper.database.transaction() as conn:
        await _checked(conn, sql.SET_META, values, if_match)
        await log.record(conn, Record(Act.CONVERSATION_CHANGE, service.name(session_id), account))


async def _checked(conn: Connection, statement: str, values: Mapping[str, Any], if_match: str | None) -> None:
    """Run a statement that returns the version of a conversation. Raises NotFound, VersionMoved."""
    row = await (await conn.execute(statement, values)).fetchone()
    if row is None:
        raise service.missing(service.name(values["session_id"]), "conversation")
    service.check_version(if_match, row[0])


async def delete(keeper: Keeper, account: str, session_id: UUID, if_match: str | None) -> Sequence[str]:
    """Delete a conversation with all its turns, and destroy its keys. Returns the names of objects that are to be deleted, too.

    Raises NotFound, VersionMoved, Conflict while a turn runs or waits, or an engine makes a summary.
    """
    values = {"session_id": session_id, "tenant_id": keeper.tenant_id}
    await ending.lapse(keeper.database, session_id)
    await reading.until_settled(keeper, session_id)
    async with keeper.database.relaxed() as conn:
        await _checked(conn, sql.VERSION, values, if_match)
        made = await (await conn.execute(sql.CHECKPOINT_OF, values)).fetchone()
    if made is not None:
        await checkpoints.stop(keeper.database, keeper.tenant_id, made[0])
    pruned = pruning.Orphans(keeper, await reading.turn_ids(keeper, session_id))
    await pruned.prepare()
    async with keeper.database.transaction() as conn:
        await _checked(conn, sql.LOCK_TO_FORGET, values, if_match)
        keys = await (await conn.execute(sql.KEYS_OF_SESSION, values)).fetchall()
        batches = await (await conn.execute(sql.BATCHES_OF_SESSION, values)).fetchall()
        turns = await (await conn.execute(sql.TURN_IDS, values | {"n": 1})).fetchall()
        pruned.gone = [turn_id for (turn_id,) in turns]
        if await (await conn.execute(sql.FORGET_SESSION, values)).fetchone() is None:
            raise Conflict(_BUSY if made is None else _SUMMARISED)
        await pruned.write(conn)
        for (key_id,) in keys:
            await sealing.forget(conn, key_id)
        objects = [name for (batch_id,) in batches for name in await _forget_batch(conn, batch_id)]
        await log.record(conn, Record(Act.CONVERSATION_DELETE, service.name(session_id), account))
    await pruned.finish()
    return objects


async def _forget_batch(conn: Connection, batch_id: int) -> list[str]:
    try:
        return await response_log.forget(conn, batch_id)
    except NotFound:  # retention was first
        return []


async def delete_turn(keeper: Keeper, account: str, turn: StoredTurn) -> None:
    """Delete a response without a batch. Raises ConversationLocked."""
    async with forgetting(keeper, turn) as forget, keeper.database.transaction() as conn:
        await forget(conn)
        await log.record(conn, Record(Act.RESPONSE_DELETE, service.RESPONSE + turn.turn_id.hex, account))


@asynccontextmanager
async def forgetting(keeper: Keeper, turn: StoredTurn) -> AsyncIterator[Callable[[Connection], Awaitable[None]]]:
    """What deletes a response in a transaction within this: its row; of a conversation, the items of its turn. It raises
    ConversationLocked where another turn runs.
    """
    if turn.session_id is not None and turn.response is None:
        yield _nothing  # it is emptied as its batch ends
        return
    if turn.session_id is not None:
        await reading.until_settled(keeper, turn.session_id)
    pruned = await pruning.of_turn(keeper, turn)
    if turn.session_id is None:
        yield partial(_forget_loose, keeper, turn, pruned)
    else:
        session = await reading.state(keeper, turn.session_id)
        left = replace(turn.past, given=(), answer=())
        yield partial(_rewrite, keeper, session, turn, left, pruned, gone=True)
    await pruned.finish()


async def _nothing(conn: Connection) -> None:
    """There is nothing to delete."""


async def _forget_loose(keeper: Keeper, turn: StoredTurn, pruned: pruning.Pruning, conn: Connection) -> None:
    await pruned.write(conn)
    values = {"turn_id": turn.turn_id, "tenant_id": keeper.tenant_id}
    row = await (await conn.execute(sql.FORGET_LOOSE, values)).fetchone()
    if row is not None:
        await conn.execute(sql.FORGET_UNUSED_KEY, {"key_id": row[0]})


async def delete_item(keeper: Keeper, account: str, session_id: UUID, item_id: str, if_match: str | None) -> None:
    """Delete an item of a conversation. Raises NotFound, VersionMoved, ConversationLocked."""
    await reading.until_settled(keeper, session_id)
    session = await reading.state(keeper, session_id)
    service.check_version(if_match, session.version)  # which `_rewrite` finds again, or changes nothing
    turn, place = await reading.item(keeper, session_id, item_id)
    left = await off_loop.of_size(turn.size, transcript.without, turn.past, place)
    pruned = await pruning.of_turn(keeper, turn, [left.given, left.answer])
    async with keeper.database.transaction() as conn:
        await _rewrite(keeper, session, turn, left, pruned, conn)
        await log.record(conn, Record(Act.CONVERSATION_CHANGE, service.name(session_id), account))
    await pruned.finish()


async def _rewrite(
    keeper: Keeper,
    session: Session,
    turn: StoredTurn,
    left: PastTurn,
    pruned: pruning.Pruning,
    conn: Connection,
    *,
    gone: bool = False,
) -> None:
    """Replace the items of an ended turn. A summary, which may tell what they said, goes too, and so do their values."""
    values = {
        "session_id": session.session_id,
        "tenant_id": keeper.tenant_id,
        "version": session.version,
        "turn_id": turn.turn_id,
        **await off_loop.of_size(turn.size, _bodies, turn, left, gone),
        "old_input": turn.stored[0],
        "old_output": turn.stored[1],
        "held": session.held if pruned.changes else None,
    }
    if await (await conn.execute(sql.REWRITE, values)).fetchone() is None:
        raise ConversationLocked(f"{_BUSY}. If none does, the turn has changed meanwhile. Then try again")
    await pruned.write(conn)


def _bodies(turn: StoredTurn, left: PastTurn, gone: bool) -> dict[str, bytes | None]:
    """The columns of a turn with the items that stay."""
    response = None if turn.response is None or gone else {**turn.response, "output": list(left.answer)}
    seal, turn_id = turn.seal, turn.turn_id
    return {
        "input": seal.sealed(turn_id, INPUT, orjson.dumps(list(left.given))),
        "output": None if response is None else seal.sealed(turn_id, OUTPUT, orjson.dumps(response)),
    }
