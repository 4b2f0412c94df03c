"""Checkpoints: summaries that stand for the first turns of a conversation, so that its prompts stay short.

They are made ahead of need, as batches of one in idle GPU time, so that nobody waits: a turn uses a summary if it is there. The
request is the conversation itself and an instruction, so that its prompt is in the prefix cache. The turns stay.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

import orjson
import structlog

from app import off_loop
from app.batches import final_events, single_request
from app.batches.request_labels import RequestLabels
from app.batches.submit import Order, rules_of
from app.batches.validation import openai
from app.batches.validation.text_generation import ItemFacts
from app.db.pool import Connection, Database
from app.engines.catalogue import Model
from app.engines.requests import RESPONSES
from app.errors import KeysUnavailable, PolicyDenied, SlackwaterError, StorageError
from app.metering.spend_labels import Spender
from app.queue import batch_state, response_log, settling
from app.queue.bodies import BatchSeal
from app.queue.ingest import NewBatch
from app.queue.types import Kind
from app.sessions import metrics, reading, service, sql, transcript
from app.sessions.queued import Steward
from app.sessions.sealing import SUMMARY
from app.sessions.service import Session, StoredTurn
from app.storage.store import Store
from app.tenants.service import Tenant

EVERY_TURNS = 8
FULL_SHARE = 0.6  # of the context window: then before EVERY_TURNS
LEAST_SAVED = 2_000  # tokens that a summary must replace
_SUMMARY_TOKENS = 1_024
_SLICE = 20
_INSTRUCTION = (
    "Summarise our conversation until now for yourself, so that you can continue without reading it again. Keep facts, names, "
    "numbers, decisions, results of tools, and what is still open. Do not answer anything, and do not add anything."
)
_log = structlog.get_logger("sessions")


class _Moved(Exception):
    """The conversation has changed since it was read."""


@dataclass(frozen=True, slots=True)
class _Due:
    """A conversation that may get a checkpoint. `model`, `last`, `spender`: of its last turn."""

    session_id: UUID
    tenant_id: int
    account: str
    model: str
    last: UUID
    spender: dict[str, Any] | None


async def begin(steward: Steward) -> int:
    """Ask for the summaries that are due. Returns their number."""
    known = list(steward.models.models.values())
    full = [round(FULL_SHARE * model.context_window) for model in known]
    values = {"least": LEAST_SAVED, "turns": EVERY_TURNS, "models": [model.name for model in known], "full": full}
    async with steward.database.relaxed() as conn:
        rows = await (await conn.execute(sql.CHECKPOINTS_DUE, values | {"limit": _SLICE})).fetchall()
    count = 0
    for due in (_Due(*row) for row in rows):
        model = steward.models.resolve(due.model)
        if model is None:
            continue
        try:
            count += await _asked(steward, due, model)
        except (SlackwaterError, ValueError, _Moved) as error:
            metrics.CHECKPOINTS.labels("refused").inc()
            _log.info("checkpoint.refused", conversation=service.name(due.session_id), error=str(error))
            async with steward.database.relaxed() as conn:
                await conn.execute(sql.CHECKPOINT_FAILED, {"session_id": due.session_id, "batch_id": None})
    return count


async def _asked(steward: Steward, due: _Due, model: Model) -> bool:
    keeper = steward.keeper(due.tenant_id)
    session = await reading.read(keeper, due.session_id)
    end = await off_loop.of_size(session.held, transcript.foldable, session.past)
    if not end or session.past[end - 1].prompt_tokens < LEAST_SAVED:
        raise _Moved("too little would be saved")
    last = await reading.find(keeper, due.last)
    item = await off_loop.of_size(session.held, _request, model, session, end, last)
    spender = Spender.of(due.spender)
    tenant = Tenant(due.tenant_id, due.account, spender.key_id)
    admission = steward.control.begin(tenant, spender.labels, Kind.CHECKPOINT, steward.models, stored=())
    if session.seal.key_id is not None and admission.encrypts is None and steward.settings.encrypt != "on":
        raise PolicyDenied("the conversation is sealed, and its summary would not be")
    admitted = await off_loop.searched(item, admission.admit, model, item, RESPONSES, _examined, session.values)
    labels = RequestLabels(session=service.name(due.session_id), spend=spender.labels)
    order = Order(
        tenant,
        admitted.model,
        labels,
        endpoint=RESPONSES,
        kind=Kind.CHECKPOINT,
        open_ended=True,
        admission=admission,
    )
    register = partial(_register, session, session.past[end - 1].n)
    await single_request.enqueue(
        steward.database,
        steward.settings,
        order,
        admitted.item,
        admitted.facts,
        values=admitted.values,
        register=register,
    )
    metrics.CHECKPOINTS.labels("asked").inc()
    return True


def _examined(model: Model, item: dict[str, Any]) -> ItemFacts:
    return openai.response(item, rules_of(model, stream=True))


def _request(model: Model, session: Session, end: int, last: StoredTurn | None) -> dict[str, Any]:
    """What asks for a summary of the turns before `end`. `last`: the turn whose instructions hold."""
    instructions = (last.response or {}).get("instructions") if last else None
    past = transcript.rendered(session.past[:end], session.summary)
    return {
        "model": model.name,
        "input": [*past, {"role": "user", "content": _INSTRUCTION}],
        "max_output_tokens": _SUMMARY_TOKENS,
    } | ({"instructions": instructions} if isinstance(instructions, str) else {})


async def _register(session: Session, n: int, conn: Connection, batch: NewBatch, _: BatchSeal | None) -> None:
    values = {"session_id": session.session_id, "version": session.version, "batch_id": batch.batch_id, "n": n}
    if await (await conn.execute(sql.CHECKPOINT_ASKED, values)).fetchone() is None:
        raise _Moved("another turn came in between")


async def end(steward: Steward) -> int:
    """Take the summaries that were made, and stop those that are not wanted any more. Returns the number of the first."""
    async with steward.database.relaxed() as conn:
        unwanted = await (await conn.execute(sql.CHECKPOINTS_UNWANTED, {"limit": _SLICE})).fetchall()
    for tenant_id, request_id in unwanted:
        await stop(steward.database, tenant_id, request_id)
    async with steward.database.relaxed() as conn:
        rows = await (await conn.execute(sql.CHECKPOINTS_MADE, {"limit": _SLICE})).fetchall()
    for session_id, tenant_id, batch_id, request_id in rows:
        try:
            await _taken(steward, tenant_id, session_id, batch_id, request_id)
        except (KeysUnavailable, StorageError) as error:
            _log.warning("checkpoint.waits", conversation=service.name(session_id), error=error.message)
    return len(rows)


async def stop(database: Database, tenant_id: int, request_id: UUID) -> None:
    """Stop the making of a summary. What an engine is working on ends a little later."""
    async with database.transaction() as conn:
        if (moved := await batch_state.transition(conn, "cancel", tenant_id, request_id)) is not None:
            await final_events.write(conn, await settling.finalise(conn, [moved[0]]))


async def _taken(steward: Steward, tenant_id: int, session_id: UUID, batch_id: int, request_id: UUID) -> None:
    keeper = steward.keeper(tenant_id)
    single = await single_request.find(steward.database, steward.settings, tenant_id, request_id, Kind.CHECKPOINT)
    session = await reading.state(keeper, session_id)
    text = summary_of(single.result.body) if single is not None and single.result.ok else None
    values: dict[str, Any] = {"session_id": session_id, "batch_id": batch_id}
    async with steward.database.transaction() as conn:
        if text is not None:
            values["summary"] = session.seal.sealed(session_id, SUMMARY, text.encode())
            if await (await conn.execute(sql.CHECKPOINT_TAKEN, values)).fetchone() is None:
                text = None
        if text is None:
            await conn.execute(sql.CHECKPOINT_FAILED, values)
        objects = [] if single is None else await response_log.forget(conn, batch_id)
    metrics.CHECKPOINTS.labels("failed" if text is None else "made").inc()
    if objects:
        await Store.of(steward.settings).delete(objects)


def summary_of(body: bytes | None) -> str | None:
    """The text of an answer. None: it has none, or it is not complete."""
    answer = orjson.loads(body or b"{}")
    if answer.get("status") != "completed":
        return None
    messages = (item for item in answer.get("output") or () if item.get("type") == "message")
    texts = [part.get("text") or "" for item in messages for part in item.get("content") or ()]
    return "".join(texts).strip() or None
