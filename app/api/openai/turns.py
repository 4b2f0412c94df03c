"""`POST /responses` while its caller waits: what it continues comes before its input, and its answer is stored.

A response of a conversation begins once no other turn runs, and its last event is sent after its answer is stored. Any other
response touches the database after its last token only, and where it cannot be stored, it says `store: false`.
"""

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast
from uuid import UUID

import orjson
import structlog
from fastapi import Request, Response
from fastapi.responses import StreamingResponse

from app import cells, clock, crypto, off_loop
from app.admission import tool_output
from app.admission.admission import Admission
from app.api import body, response_headers, submit_params, sync_requests
from app.api.deps import Parts
from app.api.sync_requests import EngineRoute, Events, PreparedCall, Render
from app.batches.submit import KEY_REUSED
from app.causes import cause
from app.db.transient_errors import TRANSIENT
from app.engines.catalogue import Model
from app.engines.json_text import JsonText
from app.engines.pricing import priced
from app.engines.request_echo import echo
from app.errors import BadInput, CallerGone, ConversationLocked, KeyReused, SlackwaterError
from app.gateway import sse_frames
from app.gateway.relay import SyncCall
from app.gateway.sse_frames import SseEvent
from app.metering.spend_labels import Spender
from app.policy.redaction import restored
from app.policy.vaults import NO_VALUES
from app.sealing.keyring import Keyring, wanted
from app.sessions import continuing, ending, metrics, pruning, reading, sealing, service
from app.sessions.continuing import NOTHING, Continued
from app.sessions.sealing import TurnSeal
from app.sessions.service import RESPONSE, Keeper, Known, NewTurn, Session, StoredTurn
from app.sessions.transcript import Item
from app.settings import Settings
from app.tenants.service import Tenant

POLL_SECONDS = 0.05  # pause between two looks at a conversation that is busy
STORE_SECONDS = 1.0  # longest wait for the database that a response without a conversation has
CONTINUES = ("conversation", "previous_response_id")
_ENDED_WELL = ("completed", "incomplete")
_log = structlog.get_logger("api")
T = TypeVar("T")


def stores(item: Mapping[str, Any], settings: Settings) -> bool:
    """Whether the request is stored. Raises BadInput."""
    asked = item.get("store")
    if asked is not None and not isinstance(asked, bool):
        raise BadInput("store: must be true or false", param="store")
    if asked is False and item.get("conversation") is not None:
        raise BadInput("store: a turn of a conversation is stored; leave it out", param="store")
    return settings.store_responses == "on" if asked is None else asked


def refuse_flex(item: Mapping[str, Any]) -> None:
    """Raise BadInput for a flex call that continues something."""
    for name in CONTINUES:
        if item.get(name) is not None:
            raise BadInput(
                f"service_tier: flex keeps no turns, so it cannot be used with {name}; send background: true instead",
                param="service_tier",
            )


async def respond(
    route: EngineRoute, model: Model, item: dict[str, Any], request: Request, tenant: Tenant, parts: Parts
) -> Response:
    """One response, whole or streamed. Raises BadInput, NotFound, ConversationLocked, VersionMoved."""
    asked = {name: value for name, value in item.items() if name not in CONTINUES}
    kept, session_id = stores(item, parts.settings), continuing.conversation_of(item)
    incoming = _Incoming(route, model, asked, request, tenant, parts)
    if session_id is not None:
        return await _converse(incoming, session_id)
    found = NOTHING
    if item.get("previous_response_id") is not None:
        found = await continuing.of_response(incoming.keeper, item["previous_response_id"])
    prepared = await incoming.prepared(found)
    if not kept:
        return await incoming.answered(prepared, _Keeping(found))
    turn = NewTurn(
        cells.new_id(),
        tenant.tenant_id,
        model.name,
        found.own_input(prepared.calls[0].item),
        original=await original(asked, prepared.admission, prepared.placeholders),
        values=prepared.placeholders,
        parent=found.parent,
        n=found.n,
        spender=_spender(prepared),
    )
    return await incoming.answered(prepared, _Stored(incoming, found, prepared, turn))


def _spender(prepared: PreparedCall) -> Spender | None:
    """Whose request it is, and under which labels."""
    who = prepared.admission.who
    return None if who is None else Spender(who.key, prepared.admission.labels)


@dataclass(frozen=True, slots=True)
class _Incoming:
    """A request as it came, without what it continues."""

    route: EngineRoute
    model: Model
    asked: dict[str, Any]
    request: Request
    tenant: Tenant
    parts: Parts

    @property
    def keeper(self) -> Keeper:
        return self.parts.keeper(self.tenant)

    async def request_hash(self) -> bytes:
        """It distinguishes a repeated request from another one with the same key. Nobody can test a guess of a prompt with it."""
        secret = crypto.derive(self.parts.secret_key, b"request hashes")
        return await off_loop.done(self.asked, _hash, secret, self.asked)

    async def prepared(self, found: Continued) -> PreparedCall:
        item, affinity = found.item(self.asked), found.affinity
        return await sync_requests.prepare(
            self.model,
            item,
            self.request,
            self.tenant,
            self.parts,
            self.route,
            affinity=affinity,
            values=found.values,
        )

    async def answered(self, prepared: PreparedCall, keeping: "_Keeping") -> Response:
        """The answer, which is stored as `keeping` does."""
        if self.asked.get("stream"):
            return await sync_requests.streamed(prepared, self.request, self.parts, _render, keeping.through)
        answer, call = await sync_requests.whole(prepared, self.request, self.parts)
        text = priced(answer, call.model.price, {**echo(call.item), **keeping.shown})
        kept = await keeping.kept(call, orjson.loads(text))
        return Response(bytes(JsonText(text).set({"store": kept["store"]})), media_type=body.JSON)


def _hash(secret: bytes, asked: Mapping[str, Any]) -> bytes:
    return hmac.digest(secret, orjson.dumps(asked, option=orjson.OPT_SORT_KEYS), hashlib.sha256)


def _render(call: SyncCall) -> Render:
    repeated = echo(call.item)
    return lambda event: sse_frames.responses(sse_frames.echoed(event, repeated))


class _Keeping:
    """What becomes of an answer: this one keeps nothing. `shown`: the fields that its response has from us."""

    def __init__(self, found: Continued) -> None:
        self.shown: dict[str, Any] = found.shown | {"store": False}

    async def kept(self, call: SyncCall, response: dict[str, Any]) -> dict[str, Any]:
        """The response once it is stored."""
        return response

    def given_up(self, verb: str) -> None:
        """The answer ends too early: `fail`, or `cancel` by its caller."""

    async def through(self, call: SyncCall, events: Events) -> Events:
        """The events with the fields of `shown`. The last one comes once the response is stored."""
        begun, ended, verb = False, False, "cancel"
        try:
            async for event in events:
                begun = True
                verb = "fail" if event.error else verb
                shown = sse_frames.echoed(event, self.shown)
                if event.ends:
                    shown, ended = await self._last(call, shown), True
                yield shown
        finally:
            await events.aclose()
            if begun and not ended:
                self.given_up(verb)

    async def _last(self, call: SyncCall, event: SseEvent) -> SseEvent:
        event = sse_frames.echoed(sse_frames.priced(event, call.model.price), echo(call.item))
        response = event.body["response"]
        if response.get("status") not in _ENDED_WELL:
            self.given_up("fail")
            return event
        try:
            kept = await self.kept(call, response)
        except SlackwaterError as error:
            return sse_frames.failed(error)
        return sse_frames.echoed(event, {"store": kept["store"]})


class _Stored(_Keeping):
    """Stores a response of no conversation after its last token. `prepared`: what ran."""

    def __init__(self, incoming: _Incoming, found: Continued, prepared: PreparedCall, turn: NewTurn) -> None:
        super().__init__(found)
        self.shown |= {"id": RESPONSE + turn.turn_id.hex, "store": True}
        self._incoming, self._found, self._prepared, self._turn = incoming, found, prepared, turn

    async def kept(self, call: SyncCall, response: dict[str, Any]) -> dict[str, Any]:
        """See `_Keeping`. A failure costs the storing, not the answer."""
        turn = replace(self._turn, model=call.model.name)
        try:
            async with asyncio.timeout(STORE_SECONDS):
                output, values = await _redacted(self._prepared, response)
                turn = replace(turn, seal=await seal_of(self._incoming, self._found, self._prepared))
                await self._added(turn, output, values)
        except (SlackwaterError, TimeoutError, *TRANSIENT) as error:
            _log.warning("response.not_stored", error=cause(error))
            return {**response, "store": False}
        metrics.TURNS.labels("stored").inc()
        return response

    async def _added(self, turn: NewTurn, output: dict[str, Any], values: Mapping[str, str]) -> None:
        keeper, texts = self._incoming.keeper, [turn.given, turn.original, output]
        added = False
        while not added:
            known = await pruning.still_known(keeper, turn.parent, texts, values)
            added = await service.add(keeper, turn, output, known)


class _Turn(_Keeping):
    """Ends the running turn of a conversation with its answer."""

    def __init__(self, incoming: _Incoming, found: Continued, prepared: PreparedCall, turn: NewTurn) -> None:
        super().__init__(found)
        self.shown |= {"id": RESPONSE + turn.turn_id.hex, "store": True}
        self._incoming, self._session_id, self._prepared, self._turn = incoming, found.session_id, prepared, turn

    async def kept(self, call: SyncCall, response: dict[str, Any]) -> dict[str, Any]:
        """See `_Keeping`. Raises TurnLost where the turn was given up meanwhile, and the errors of the database."""
        leases, turn_id = self._incoming.parts.turns, self._turn.turn_id
        try:
            output, values = await _redacted(self._prepared, response)
            keeper, window = self._incoming.keeper, call.model.context_window
            await ending.end(keeper, self._turn, self._session_id, output, Known(values), window=window)
        except BaseException:
            leases.give_up(turn_id, "fail")
            raise
        leases.done(turn_id)
        return response

    def given_up(self, verb: str) -> None:
        """See `_Keeping`."""
        self._incoming.parts.turns.give_up(self._turn.turn_id, verb)


async def original(asked: Mapping[str, Any], admission: Admission, values: Mapping[str, str]) -> list[Item] | None:
    """The input of a request before the outputs of tools in it were shortened, redacted as the rest. None: nothing was."""
    given = asked.get("input")
    if asked.get(tool_output.FLAG) is not True or not isinstance(given, list):
        return None
    if await off_loop.done(given, tool_output.of_items, given) == given:
        return None
    if admission.redaction is None:
        return given
    return list((await off_loop.searched(given, admission.redaction.redact, given, values)).item)


async def _redacted(prepared: PreparedCall, response: dict[str, Any]) -> tuple[dict[str, Any], Mapping[str, str]]:
    """A response as it may be stored, and the values of all placeholders. Raises SensitiveFound."""
    redaction = prepared.admission.redaction
    if redaction is None:
        return response, prepared.placeholders
    output = response["output"]
    found = await off_loop.searched(output, redaction.redact, output, prepared.placeholders)
    return {**response, "output": found.item}, found.values


async def seal_of(incoming: _Incoming, found: Continued, prepared: PreparedCall) -> TurnSeal:
    """What seals a new turn: the key of what it continues, a new one, or none. Raises KeysUnavailable."""
    return await seal_for(incoming.parts, incoming.tenant, found.seal, prepared.admission.encrypts)


async def seal_for(parts: Parts, tenant: Tenant, present: TurnSeal, rule: str | None) -> TurnSeal:
    """The same. `present`: of what it continues. `rule`: of the policy that asks for encryption."""
    if present.key_id is not None or not wanted(parts.settings, rule):
        return present
    return await sealing.new_seal(parts.database, Keyring.of(parts.settings), tenant.tenant_id)


# ── a turn of a conversation ────────────────────────────────────────────────────────────────────────────────


async def _converse(incoming: _Incoming, session_id: UUID) -> Response:
    """Begin a turn as soon as no other runs, and answer it. A turn that was sent before gives its stored answer."""
    async with sync_requests.while_connected(incoming.request.receive):
        begun = await _begun(incoming, session_id)
    if isinstance(begun, StoredTurn):
        return await _again(incoming, begun)
    found, prepared, turn, n = begun
    keeping = _Turn(incoming, found, prepared, turn)
    response_headers.add(incoming.request, {"etag": f'"{n}"'})
    try:
        return await incoming.answered(prepared, keeping)
    except (CallerGone, asyncio.CancelledError):
        keeping.given_up("cancel")
        raise
    except BaseException:
        keeping.given_up("fail")
        raise


async def _begun(incoming: _Incoming, session_id: UUID) -> tuple[Continued, PreparedCall, NewTurn, int] | StoredTurn:
    headers, keeper = incoming.request.headers, incoming.keeper
    key = submit_params.key_of(headers)
    request_hash = await incoming.request_hash() if key else None
    deadline = clock.monotonic() + incoming.parts.settings.line_seconds
    while True:
        session = await reading.read(keeper, session_id)
        same = await same_turn(keeper, session_id, key, request_hash)
        if same is not None and same.response is not None:
            return same
        if same is None:
            service.check_version(headers.get("if-match"), session.version)
        if session.late:
            await ending.lapse(keeper.database, session_id)
            continue
        if same is None and not session.busy:
            found = await continuing.of_session(session)
            prepared = await incoming.prepared(found)
            turn = NewTurn(
                cells.new_id(),
                incoming.tenant.tenant_id,
                incoming.model.name,
                found.own_input(prepared.calls[0].item),
                await seal_of(incoming, found, prepared),
                await original(incoming.asked, prepared.admission, prepared.placeholders),
                values=prepared.placeholders,
                key=key,
                request_hash=request_hash,
                spender=_spender(prepared),
            )
            if (n := await service.begin(keeper, session, turn)) is not None:
                incoming.parts.turns.add(session_id, turn.turn_id)
                return found, prepared, turn, n
        if clock.monotonic() >= deadline:
            raise ConversationLocked(
                "Another turn of this conversation runs; send this one again, or with background: true"
            )
        await _moved(keeper, session, deadline)


async def _moved(keeper: Keeper, session: Session, deadline: float) -> None:
    """Wait until a turn of a conversation that was busy has ended, so that its past is not read again for nothing."""
    while True:
        await asyncio.sleep(POLL_SECONDS)
        now = await reading.state(keeper, session.session_id)
        if not now.busy or now.late or now.version != session.version or clock.monotonic() >= deadline:
            return


async def same_turn(keeper: Keeper, session_id: UUID, key: str | None, request_hash: bytes | None) -> StoredTurn | None:
    """The turn that came with this Idempotency-Key. Raises KeyReused for the key of another request."""
    same = None if key is None else await reading.keyed(keeper, session_id, key)
    if same is not None and same.request_hash != request_hash:
        raise KeyReused(KEY_REUSED)
    return same


def readable(turn: StoredTurn | NewTurn, stored: T, tenant: Tenant) -> T:
    """Something stored of a turn as this caller may read it."""
    values = turn.values if tenant.scope.restore else NO_VALUES
    return cast(T, restored(stored, values, of_answer=True)) if values else stored


async def _again(incoming: _Incoming, found: StoredTurn) -> Response:
    """The stored answer of a turn that was sent before."""
    return await off_loop.of_size(found.size, _answered, incoming, found)


def _answered(incoming: _Incoming, found: StoredTurn) -> Response:
    assert found.response is not None
    response = readable(found, found.response, incoming.tenant)
    if not incoming.asked.get("stream"):
        return Response(orjson.dumps(response), media_type=body.JSON)
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    events = (
        {"type": "response.created", "sequence_number": 0, "response": begun},
        {"type": f"response.{response['status']}", "sequence_number": 1, "response": response},
    )
    sent = [sse_frames.responses(SseEvent(orjson.dumps(event), event)) for event in events]

    async def frames() -> AsyncIterator[bytes]:
        for frame in sent:
            yield frame

    return StreamingResponse(frames(), media_type="text/event-stream")
