"""Background turns: each is a batch of one item. The steward ends a turn whose batch has ended, and then starts the next one.

A turn that waits has its batch from the beginning, which is paused, so that all that a submit decides is decided. When its time
comes, its item gets the turns before it, and the batch goes on. What is stored or run anew is redacted as if it had just come.
"""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from uuid import UUID

import orjson
import psycopg
import structlog

from app import off_loop
from app.admission.control import AdmissionControl
from app.batches import single_request
from app.batches.openai import background_responses
from app.batches.single_request import SingleRequest
from app.db.pool import Connection, Database
from app.db.transient_errors import TRANSIENT
from app.engines.catalogue import Catalogue
from app.errors import KeysUnavailable, NotFound, PolicyUnknown, RedactionDown, SensitiveFound, StorageError, TurnLost
from app.policy import vaults
from app.policy.redaction import used
from app.policy.vaults import Vaults
from app.queue import batch_state, held_items, wakes
from app.queue.held_items import HeldItem
from app.queue.types import Kind
from app.sealing.keyring import Keyring
from app.sessions import ending, pruning, reading, sealing, service, sql, transcript
from app.sessions.service import Keeper, NewTurn, Session, StoredTurn
from app.settings import Settings
from app.states import TurnState
from app.tenants.service import Tenant

_SLICE = 50
_ENDED_WELL = ("completed", "incomplete")
_log = structlog.get_logger("sessions")


async def add(
    conn: Connection, keeper: Keeper, turn: NewTurn, session: Session | None, if_match: str | None = None
) -> None:
    """Add a background turn, in the transaction that queues its batch. It runs, unless `session` is busy or has changed since it
    was read: then its batch is paused. Raises VersionMoved unless it runs on the version in the header `if_match`; BadInput.
    """
    if session is None:
        await service.add_running(conn, keeper, turn)
        return
    await sealing.store(conn, turn.seal)
    values = {"session_id": session.session_id, "turn_id": turn.turn_id, "key_id": turn.seal.key_id}
    row = await (await conn.execute(sql.LOCK, values)).fetchone()
    if row is None:
        raise service.missing(service.name(session.session_id), "conversation")
    runs = not session.busy and row == (session.version, None, session.edits)
    service.check_version(if_match, row[0], waits=not runs)
    if runs:
        await conn.execute(sql.TAKE, values | {"version": session.version, "edits": session.edits})
    else:
        await batch_state.transition(conn, "pause", turn.tenant_id, turn.turn_id)
    state = TurnState.RUNNING if runs else TurnState.QUEUED
    added = await service.row_of(keeper, turn, state) | values
    [(n, held)] = await (await conn.execute(sql.QUEUE, added)).fetchall()
    service.check_room(n - 1, held, added)


@dataclass(frozen=True, slots=True)
class Steward:
    """What the steps of the steward need. `control`: the policy, by which texts are redacted and withheld calls are noted.
    `stuck`: turns that could not be started or ended, which are tried again later.
    """

    database: Database
    settings: Settings
    secret: bytes
    models: Catalogue
    control: AdmissionControl
    stuck: set[UUID] = field(default_factory=set)

    def keeper(self, tenant_id: int) -> Keeper:
        """What reads and writes the turns of an account."""
        return Keeper(self.database, Keyring.of(self.settings), Vaults(self.secret, tenant_id), tenant_id)

    async def single(self, tenant: Tenant, turn_id: UUID) -> SingleRequest | None:
        """The batch of a turn, its request and its result. None: it was deleted. Forbidden calls are withheld and noted."""
        noted = partial(self.control.withheld, tenant.account_id)
        return await single_request.find(
            self.database, self.settings, tenant.tenant_id, turn_id, Kind.RESPONSE, on_withheld=noted
        )

    async def redacted(self, tenant: Tenant, items: Any, values: Mapping[str, str]) -> tuple[Any, Mapping[str, str]]:
        """Items as the policy lets them rest and run, and the values of all placeholders. `values`: of those that they have.

        Raises SensitiveFound, RedactionDown, PolicyUnknown.
        """
        redaction = self.control.redaction(tenant)
        if redaction is None:
            return items, values
        found = await off_loop.searched(items, redaction.redact, items, values)
        return found.item, found.values


async def end(steward: Steward, turn_ids: Sequence[UUID] | None = None) -> int:
    """End the turns whose batches have ended: those of `turn_ids`, or some of all. Returns their number."""
    query = sql.ENDED_BATCHES if turn_ids is None else sql.ENDED_OF
    async with steward.database.relaxed() as conn:
        values = {"limit": _SLICE, "turn_ids": list(turn_ids or ()), "stuck": list(steward.stuck)}
        ended = await (await conn.execute(query, values)).fetchall()
    for turn_id, tenant_id, account, state in ended:
        await _attempted(steward, turn_id, _end(steward, Tenant(tenant_id, account), turn_id, TurnState(state)))
    return len(ended)


async def start(steward: Steward) -> int:
    """Start the turns that wait for nothing more. Returns their number."""
    async with steward.database.relaxed() as conn:
        values = {"limit": _SLICE, "stuck": list(steward.stuck)}
        waiting = await (await conn.execute(sql.NEXT_QUEUED, values)).fetchall()
    for turn_id, session_id, tenant_id, account, batch_id in waiting:
        tenant = Tenant(tenant_id, account)
        await _attempted(steward, turn_id, _start(steward, tenant, session_id, turn_id, batch_id))
    return len(waiting)


async def _attempted(steward: Steward, turn_id: UUID, work: Awaitable[None]) -> None:
    """Do the work, or leave this turn alone for a while, so that it holds up no other."""
    try:
        await work
    except TRANSIENT:
        raise
    except (KeysUnavailable, StorageError, NotFound, PolicyUnknown, RedactionDown, TurnLost) as error:
        steward.stuck.add(turn_id)
        _log.warning("turn.waits", turn_id=str(turn_id), error=error.message)
    except Exception:
        steward.stuck.add(turn_id)
        _log.exception("turn.failed", turn_id=str(turn_id))


async def _end(steward: Steward, tenant: Tenant, turn_id: UUID, state: TurnState) -> None:
    keeper = steward.keeper(tenant.tenant_id)
    turn = await reading.find(keeper, turn_id)
    if turn is None:
        return
    single = await steward.single(tenant, turn_id)
    if state == TurnState.QUEUED:
        await ending.cancel_queued(
            steward.database, turn_id, await _own_item(steward, keeper, turn, single, turn.values)
        )
        return
    shown = None if single is None else background_responses.view(single, steward.models)
    if shown is None or shown["status"] not in _ENDED_WELL:
        cancelled = shown is not None and shown["status"] == "cancelled"
        own = await _own_item(steward, keeper, turn, single, turn.values)
        await ending.give_up(steward.database, turn_id, "cancel" if cancelled else "fail", own)
        return
    try:
        output, values = await steward.redacted(tenant, shown["output"], turn.values)
    except SensitiveFound as refusal:
        _log.info("turn.refused", turn_id=str(turn_id), error=refusal.message)
        own = await _own_item(steward, keeper, turn, single, turn.values)
        await ending.give_up(steward.database, turn_id, "fail", own)
        return
    known = await pruning.still_known(keeper, turn.parent, [turn.given, shown | {"output": output}], values)
    ended = NewTurn(turn_id, tenant.tenant_id, None, turn.given, turn.seal)
    model = steward.models.resolve(str(shown.get("model")))
    window = None if model is None else model.context_window
    response = shown | continued(turn) | {"output": output}
    own = await _own_item(steward, keeper, turn, single, known.values)
    await ending.end(keeper, ended, turn.session_id, response, known, window=window, item=own)


async def _own_item(
    steward: Steward, keeper: Keeper, turn: StoredTurn, single: SingleRequest | None, values: Mapping[str, str]
) -> HeldItem | None:
    """What the batch of an ended turn keeps of its request: what came before the turn is no longer in it, so that it ends with
    the turns that said it. `values`: of all placeholders. None: the batch was deleted.
    """
    if single is None:
        return None
    batch_id, result = single.status.batch_id, single.result.body or b""
    body, kept = await off_loop.of_size(turn.size + len(result), _kept, single.request, turn, result, values)
    vault = keeper.vaults.sealed(kept, vaults.of_item(batch_id, 0)) if kept else None
    return await held_items.prepare(steward.database, steward.settings, batch_id, body, vault)


def _kept(
    request: Mapping[str, Any], turn: StoredTurn, result: bytes, values: Mapping[str, str]
) -> tuple[bytes, Mapping[str, str]]:
    """A request with the items of its turn alone, and the values that it and its result have."""
    body = orjson.dumps({**request, "input": list(turn.given)})
    return body, used(body + result, values)


def continued(turn: StoredTurn) -> dict[str, object]:
    """The fields of a response object that say what it continues."""
    conversation = {"id": service.name(turn.session_id)} if turn.session_id is not None else None
    previous = service.RESPONSE + turn.parent.hex if turn.parent is not None else None
    return {"conversation": conversation, "previous_response_id": previous}


async def _start(steward: Steward, tenant: Tenant, session_id: UUID, turn_id: UUID, batch_id: int) -> None:
    """Give the item of a turn what comes before it, and let its batch go on. Without effect if the turn may not run yet."""
    keeper = steward.keeper(tenant.tenant_id)
    await ending.lapse(steward.database, session_id)
    session = await reading.read(keeper, session_id)
    turn, single = await reading.find(keeper, turn_id), await steward.single(tenant, turn_id)
    if turn is None or single is None:
        return
    own, rest, known = await off_loop.of_size(turn.size, _renamed, turn, single.request, session.values)
    before = await off_loop.of_size(session.held, transcript.rendered, session.past, session.summary)
    try:
        whole, values = await steward.redacted(tenant, [*before, *own], known)
        rest, values = await steward.redacted(tenant, rest, values)
    except SensitiveFound as refusal:  # a rule that has come since
        _log.info("turn.refused", turn_id=str(turn_id), error=refusal.message)
        async with steward.database.transaction() as conn:
            await batch_state.transition(conn, "cancel", tenant.tenant_id, turn_id)
        return
    given, item = whole[len(before) :], rest | {"input": whole}
    vault = keeper.vaults.sealed(values, vaults.of_item(batch_id, 0)) if values else None
    body = await off_loop.done(item, orjson.dumps, item)
    held = await held_items.prepare(steward.database, steward.settings, batch_id, body, vault)
    model = steward.models.resolve(single.status.model)
    held = replace(held, window=model.context_window if model else None)
    new = NewTurn(turn_id, tenant.tenant_id, None, given, turn.seal, values=values)
    await _run(steward, session, await service.row_of(keeper, new, turn.state), held)


def _renamed(
    turn: StoredTurn, request: Mapping[str, Any], known: Mapping[str, str]
) -> tuple[list[Any], dict[str, Any], Mapping[str, str]]:
    """The items of a turn, and the rest of its request, with placeholders that fit to `known`; and the values of all of them."""
    rest = {name: value for name, value in request.items() if name != "input"}
    text, values = transcript.renamed(orjson.dumps([list(turn.given), rest]).decode(), turn.values, known)
    own, rest = orjson.loads(text)
    return own, rest, values


async def _run(steward: Steward, session: Session, row: Mapping[str, Any], held: HeldItem) -> None:
    """Let the batch of a queued turn go on with this item, unless another turn is before it."""
    ready: Mapping[str, int] = {}
    async with steward.database.transaction() as conn:
        if await batch_state.transition(conn, "resume", row["tenant_id"], row["turn_id"]) is None:
            return
        await held_items.rewrite(conn, held)
        taken = {name: row[name] for name in ("turn_id", "key_id")}
        taken |= {"session_id": session.session_id, "version": session.version, "edits": session.edits}
        if await (await conn.execute(sql.TAKE, taken)).fetchone() is None:
            raise psycopg.Rollback
        await conn.execute(sql.START, row)
        ready = await batch_state.ready_chunks(conn, held.batch_id)
    wakes.notify(ready)
