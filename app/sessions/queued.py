"""Background turns: each is a batch of one item. The steward ends a turn whose batch has ended, and then starts the next one.

A turn that waits has its batch from the beginning, which is paused, so that all that a submit decides is decided. When its time
comes, its item gets the turns before it, and the batch goes on.
"""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import orjson
import psycopg
import structlog

from app.batches import single_request
from app.batches.openai import background_responses
from app.batches.single_request import SingleRequest
from app.db.pool import Connection, Database
from app.db.transient_errors import TRANSIENT
from app.engines.catalogue import Catalogue
from app.errors import KeysUnavailable, NotFound, StorageError
from app.policy import vaults
from app.policy.vaults import Vaults
from app.queue import batch_state, held_items, wakes
from app.queue.types import Kind
from app.sealing.keyring import Keyring
from app.sessions import ending, metrics, reading, sealing, service, sql, transcript
from app.sessions.service import Keeper, NewTurn, Session, StoredTurn
from app.settings import Settings
from app.states import TurnState

_SLICE = 50
_ENDED_WELL = ("completed", "incomplete")
_log = structlog.get_logger("sessions")


async def add(
    conn: Connection, keeper: Keeper, turn: NewTurn, session: Session | None, if_match: str | None = None
) -> None:
    """Add a background turn, in the transaction that queues its batch. It runs, unless `session` is busy or has changed since it
    was read: then its batch is paused. Raises VersionMoved unless the conversation is at the version in the header `if_match`.
    """
    if session is None:
        await service.add_in(conn, keeper, turn, None)
        return
    await sealing.store(conn, turn.seal)
    values = {"session_id": session.session_id, "turn_id": turn.turn_id, "key_id": turn.seal.key_id}
    row = await (await conn.execute(sql.LOCK, values)).fetchone()
    if row is None:
        raise service.missing(service.name(session.session_id), "conversation")
    service.check_version(if_match, row[0])
    runs = not session.busy and row == (session.version, None)
    if runs:
        await conn.execute(sql.TAKE, values | {"version": session.version})
    else:
        await batch_state.transition(conn, "pause", turn.tenant_id, turn.turn_id)
    state = TurnState.RUNNING if runs else TurnState.QUEUED
    await conn.execute(sql.QUEUE, service.row_of(keeper, turn, state) | values)


@dataclass(frozen=True, slots=True)
class Steward:
    """What the steps of the steward need. `stuck`: turns that could not be started or ended, which are tried again later."""

    database: Database
    settings: Settings
    secret: bytes
    models: Catalogue
    stuck: set[UUID] = field(default_factory=set)

    def keeper(self, tenant_id: int) -> Keeper:
        """What reads and writes the turns of an account."""
        return Keeper(self.database, Keyring.of(self.settings), Vaults(self.secret, tenant_id), tenant_id)

    async def single(self, tenant_id: int, turn_id: UUID) -> SingleRequest | None:
        """The batch of a turn, its request and its result. None: it was deleted."""
        return await single_request.find(self.database, self.settings, tenant_id, turn_id, Kind.RESPONSE)


async def end(steward: Steward, turn_ids: Sequence[UUID] | None = None) -> int:
    """End the turns whose batches have ended: those of `turn_ids`, or some of all. Returns their number."""
    query = sql.ENDED_BATCHES if turn_ids is None else sql.ENDED_OF
    async with steward.database.relaxed() as conn:
        values = {"limit": _SLICE, "turn_ids": list(turn_ids or ()), "stuck": list(steward.stuck)}
        ended = await (await conn.execute(query, values)).fetchall()
    for turn_id, tenant_id, state in ended:
        await _attempted(steward, turn_id, _end(steward, tenant_id, turn_id, TurnState(state)))
    return len(ended)


async def start(steward: Steward) -> int:
    """Start the turns that wait for nothing more. Returns their number."""
    async with steward.database.relaxed() as conn:
        values = {"limit": _SLICE, "stuck": list(steward.stuck)}
        waiting = await (await conn.execute(sql.NEXT_QUEUED, values)).fetchall()
    for turn_id, session_id, tenant_id, batch_id in waiting:
        await _attempted(steward, turn_id, _start(steward, tenant_id, session_id, turn_id, batch_id))
    return len(waiting)


async def _attempted(steward: Steward, turn_id: UUID, work: Awaitable[None]) -> None:
    """Do the work, or leave this turn alone for a while, so that it holds up no other."""
    try:
        await work
    except TRANSIENT:
        raise
    except (KeysUnavailable, StorageError, NotFound) as error:
        steward.stuck.add(turn_id)
        _log.warning("turn.waits", turn_id=str(turn_id), error=error.message)
    except Exception:
        steward.stuck.add(turn_id)
        _log.exception("turn.failed", turn_id=str(turn_id))


async def _end(steward: Steward, tenant_id: int, turn_id: UUID, state: TurnState) -> None:
    keeper = steward.keeper(tenant_id)
    turn = await reading.find(keeper, turn_id)
    single = await steward.single(tenant_id, turn_id)
    if turn is None:
        return
    if state == TurnState.QUEUED:
        await ending.cancel_queued(steward.database, turn_id)
        metrics.ended("cancelled")
        return
    shown = None if single is None else background_responses.view(single, steward.models)
    if shown is None or shown["status"] not in _ENDED_WELL:
        verb = "cancel" if shown is not None and shown["status"] == "cancelled" else "fail"
        await ending.give_up(steward.database, turn_id, verb)
        metrics.ended("cancelled" if verb == "cancel" else "failed")
        return
    ended = NewTurn(turn_id, tenant_id, None, turn.given, turn.seal)
    model = steward.models.resolve(str(shown.get("model")))
    window = None if model is None else model.context_window
    await ending.end(keeper, ended, turn.session_id, shown | continued(turn), window=window)
    metrics.ended("done")


def continued(turn: StoredTurn) -> dict[str, object]:
    """The fields of a response object that say what it continues."""
    conversation = {"id": service.name(turn.session_id)} if turn.session_id is not None else None
    previous = service.RESPONSE + turn.parent.hex if turn.parent is not None else None
    return {"conversation": conversation, "previous_response_id": previous}


async def _start(steward: Steward, tenant_id: int, session_id: UUID, turn_id: UUID, batch_id: int) -> None:
    """Give the item of a turn what comes before it, and let its batch go on. Without effect if the turn may not run yet."""
    keeper = steward.keeper(tenant_id)
    await ending.lapse(steward.database, session_id)
    session = await reading.read(keeper, session_id)
    turn, single = await reading.find(keeper, turn_id), await steward.single(tenant_id, turn_id)
    if turn is None or single is None:
        return
    done = await reading.last_values(keeper, session_id)
    own, values = transcript.renamed(orjson.dumps(list(turn.given)).decode(), turn.values, done)
    given = orjson.loads(own)
    item = single.request | {"input": [*transcript.rendered(session.past, session.summary), *given]}
    vault = keeper.vaults.sealed(values, vaults.of_item(batch_id, 0)) if values else None
    held = await held_items.prepare(steward.database, steward.settings, batch_id, orjson.dumps(item), vault)
    turn_row = service.row_of(keeper, NewTurn(turn_id, tenant_id, None, given, turn.seal, values=values), turn.state)
    ready: Mapping[str, int] = {}
    async with steward.database.transaction() as conn:
        if await batch_state.transition(conn, "resume", tenant_id, turn_id) is None:
            return
        await held_items.rewrite(conn, held)
        taken = {"session_id": session_id, "turn_id": turn_id, "key_id": turn.seal.key_id, "version": session.version}
        if await (await conn.execute(sql.TAKE, taken)).fetchone() is None:
            raise psycopg.Rollback  # another turn is before it
        await conn.execute(sql.START, turn_row)
        ready = await batch_state.ready_chunks(conn, batch_id)
    wakes.notify(ready)
