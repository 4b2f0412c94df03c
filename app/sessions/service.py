"""The verbs of conversations. One turn runs at a time: it takes the session's row, and only it can give the row back.

A turn is prepared without a lock, from what `read` found, and `begin` refuses it if another turn came in between. So nothing has
to be given back when a request is refused, and no connection is held while one is checked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
import psycopg
from psycopg.types.json import Jsonb

from app import cells, off_loop
from app.db.pool import Connection, Database
from app.errors import BadInput, NotFound, VersionMoved
from app.metering.spend_labels import Spender
from app.policy.vaults import NO_VALUES, Vaults
from app.sealing.keyring import Keyring
from app.sessions import sealing, sql
from app.sessions.sealing import CLEAR, INPUT, ORIGINAL, OUTPUT, TurnSeal
from app.sessions.transcript import Item, PastTurn
from app.states import TurnState

LEASE_SECONDS = 30.0  # a synchronous turn whose process says nothing for this long has failed
MOST_BYTES = 4 * 2**20  # of the input of a turn
MOST_TURNS = 10_000  # of a conversation, with those that failed
MOST_HELD = 64 * 2**20  # bytes that the turns of a conversation take when another one begins
CONVERSATION, RESPONSE = "conv_", "resp_"


@dataclass(frozen=True, slots=True)
class Session:
    """A conversation as it is now. `past`: its turns that no summary replaces. `values`: of all placeholders so far.

    `edits`: how often something in it was deleted. `busy`: a turn runs or waits. `late`: the turn that runs has lost its lease.
    `held`: bytes that its turns take. `seal`: of its next turn, if it has a key.
    """

    session_id: UUID
    version: int
    edits: int
    busy: bool
    late: bool
    meta: Mapping[str, str]
    created_at: datetime
    slope: float | None = None
    held: int = 0
    past: Sequence[PastTurn] = ()
    summary: str | None = None
    values: Mapping[str, str] = field(default_factory=lambda: NO_VALUES)
    seal: TurnSeal = CLEAR


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """One stored turn. `response`: the response object; None: it has none (yet). `values`: of its placeholders. `stored`: what
    `given`, `response` and `values` were read from. `size`: bytes that they take.
    """

    turn_id: UUID
    n: int
    state: TurnState
    session_id: UUID | None
    parent: UUID | None
    batch_id: int | None
    given: Sequence[Item]
    response: dict[str, Any] | None
    values: Mapping[str, str]
    seal: TurnSeal
    stored: tuple[bytes, bytes | None, bytes | None]
    prompt_tokens: int = 0
    request_hash: bytes | None = None
    size: int = 0

    @property
    def past(self) -> PastTurn:
        """It as a part of a conversation."""
        answer = (self.response or {}).get("output") or ()
        return PastTurn(self.n, self.turn_id, self.given, answer, self.prompt_tokens)


@dataclass(frozen=True, slots=True)
class NewTurn:
    """A turn that is to begin. `original`: its input before it was shortened. `values`: of all placeholders of the conversation.

    `key`, `request_hash`: so that the same request again finds this turn. `spender`: of its request; None: there was none.
    """

    turn_id: UUID
    tenant_id: int
    model: str | None
    given: Sequence[Item]
    seal: TurnSeal = CLEAR
    original: Sequence[Item] | None = None
    values: Mapping[str, str] = field(default_factory=lambda: NO_VALUES)
    key: str | None = None
    request_hash: bytes | None = None
    parent: UUID | None = None
    n: int = 1
    batch_id: int | None = None
    spender: Spender | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """What a turn knows when it is stored: the values of all placeholders so far. `parent`: the response that it continues, which
    has to have this `vault` still; None: it has nothing from another one.
    """

    values: Mapping[str, str] = field(default_factory=lambda: NO_VALUES)
    parent: UUID | None = None
    vault: bytes | None = None


@dataclass(frozen=True, slots=True)
class Keeper:
    """What reading and writing turns takes: the database, the keys of sealed turns, and the vaults of the account."""

    database: Database
    keyring: Keyring
    vaults: Vaults
    tenant_id: int


def name(session_id: UUID) -> str:
    """The id of a conversation as callers see it."""
    return CONVERSATION + session_id.hex


def parse(text: object, prefix: str, param: str) -> UUID:
    """The id in a name with this prefix. Raises NotFound."""
    if isinstance(text, str) and text.startswith(prefix):
        try:
            return UUID(text.removeprefix(prefix))
        except ValueError:
            pass
    raise missing(text, param)


def missing(text: object, param: str | None = None) -> NotFound:
    """The error for an unknown conversation or response."""
    what = "Conversation" if param == "conversation" else "Previous response"
    return NotFound(f"{what} with id {str(text)[:60]!r} not found.", param=param)


def check_version(given: str | None, version: int, *, waits: bool = False) -> None:
    """Raise VersionMoved unless the header If-Match, if there is one, names this version. `waits`: of a turn that would run on a
    later version, so that it may name none.
    """
    named = "*" if given is None else given.strip().removeprefix("W/").strip('" ')
    if named not in ("*", str(version)):
        raise VersionMoved(f"If-Match: the conversation is at version {version}, not {named[:20]}; read it again")
    if waits and named != "*":
        raise VersionMoved(
            f"If-Match: this turn would wait for another one, and run on a later version than {version}; "
            "send it again once no turn runs or waits, or without If-Match"
        )


def check_room(last: int, held: int, row: Mapping[str, Any]) -> None:
    """Raise BadInput unless a conversation has room for the turn in `row`. `last`: the number of its last turn. `held`: the bytes
    that its turns take.
    """
    held += sum(len(row[name] or b"") for name in sql.BODIES)
    if last >= MOST_TURNS or held > MOST_HELD:
        raise BadInput(
            f"conversation: with this it would have {last + 1:,} turns of {held / 2**20:.1f} MB together, and it can have "
            f"{MOST_TURNS:,} turns of {MOST_HELD // 2**20} MB; begin a new one",
            param="conversation",
        )


async def create(keeper: Keeper, meta: Mapping[str, str], seal: TurnSeal, first: NewTurn | None = None) -> UUID:
    """A new conversation. `first`: a turn without a response that it begins with. Raises BadInput."""
    session_id = cells.new_id()
    values = {"session_id": session_id, "tenant_id": keeper.tenant_id, "meta": orjson.dumps(dict(meta)).decode()}
    row = None if first is None else await _items_row(keeper, first, session_id)
    async with keeper.database.transaction() as conn:
        await sealing.store(conn, seal)
        await conn.execute(sql.ADD_SESSION, values | {"key_id": seal.key_id})
        if row is not None:
            await conn.execute(sql.APPEND, row)
    return session_id


async def begin(keeper: Keeper, session: Session, turn: NewTurn) -> int | None:
    """Begin a turn of a conversation that is as `session` says. Returns its number; None: it has changed since.

    Raises BadInput.
    """
    values = await row_of(keeper, turn, TurnState.RUNNING) | {
        "session_id": session.session_id,
        "version": session.version,
        "edits": session.edits,
        "lease": timedelta(seconds=LEASE_SECONDS),
    }
    check_room(session.version, session.held, values)
    return await _written(keeper, sql.BEGIN, turn.seal, values, durable=False)


async def append(keeper: Keeper, session: Session, turn: NewTurn) -> int | None:
    """Add items without a response, as a turn that has ended. Returns its number; None: the conversation has changed since.

    Raises BadInput.
    """
    values = await _items_row(keeper, turn, session.session_id, session.version, session.edits)
    check_room(session.version, session.held, values)
    return await _written(keeper, sql.APPEND, turn.seal, values, durable=True)


async def _items_row(
    keeper: Keeper, turn: NewTurn, session_id: UUID, version: int = 0, edits: int = 0
) -> dict[str, Any]:
    """The values of `sql.APPEND`."""
    row = await row_of(keeper, turn, TurnState.DONE, "items")
    return row | {"session_id": session_id, "version": version, "edits": edits}


async def _written(
    keeper: Keeper, statement: str, seal: TurnSeal, values: Mapping[str, Any], *, durable: bool
) -> int | None:
    database = keeper.database
    try:
        async with database.durable() if durable else database.relaxed() as conn:
            if seal.new is None:
                row = await (await conn.execute(statement, values)).fetchone()
            else:
                async with conn.transaction():
                    await sealing.store(conn, seal)
                    row = await (await conn.execute(statement, values)).fetchone()
    except psycopg.errors.UniqueViolation:
        return None
    return None if row is None else int(row[0])


async def add(keeper: Keeper, turn: NewTurn, response: Mapping[str, Any], known: Known) -> bool:
    """Store a response of no conversation with its answer. False: what it knows from another one was deleted meanwhile."""
    row = await row_of(keeper, turn, TurnState.DONE) | await answer_columns(keeper, turn, response, known)
    async with keeper.database.transaction() as conn:
        added = await _added(conn, turn, row)
        if not added:
            raise psycopg.Rollback
    return added


async def add_running(conn: Connection, keeper: Keeper, turn: NewTurn) -> None:
    """Add a response of no conversation whose answer its batch will have, in a transaction of the caller."""
    row = await row_of(keeper, turn, TurnState.RUNNING)
    await _added(conn, turn, row | {"parent": None, "known": None})


async def _added(conn: Connection, turn: NewTurn, row: Mapping[str, Any]) -> bool:
    if turn.seal.new is not None:
        await sealing.store(conn, turn.seal)
    return await (await conn.execute(sql.ADD, {**row, "n": turn.n})).fetchone() is not None


async def row_of(keeper: Keeper, turn: NewTurn, state: TurnState, param: str = "input") -> dict[str, Any]:
    """The columns of a new turn. `param`: the field of the request that has its items. Raises BadInput: they are too large."""
    return await off_loop.done([turn.given, turn.original, turn.values], _row_of, keeper, turn, state, param)


def _row_of(keeper: Keeper, turn: NewTurn, state: TurnState, param: str) -> dict[str, Any]:
    seal, turn_id = turn.seal, turn.turn_id
    given = orjson.dumps(list(turn.given))
    if len(given) > MOST_BYTES:
        remedy = "add them in several requests" if param == "items" else "shorten it"
        raise BadInput(f"{param}: at most {MOST_BYTES // 2**20} MB of a turn can be stored; {remedy}", param=param)
    original = None if turn.original is None else orjson.dumps(list(turn.original))
    return {
        "turn_id": turn_id,
        "tenant_id": turn.tenant_id,
        "parent_turn": turn.parent,
        "state": state.value,
        "batch_id": turn.batch_id,
        "model": turn.model,
        "spender": None if turn.spender is None else Jsonb(turn.spender.stored()),
        "input": seal.sealed(turn_id, INPUT, given),
        "original": None if original is None else seal.sealed(turn_id, ORIGINAL, original),
        "output": None,
        "vault": vault(keeper, turn_id, seal, turn.values),
        "key_id": seal.key_id,
        **dict.fromkeys(("prompt_tokens", "cached_tokens", "completion_tokens"), 0),
        "key": turn.key,
        "request_hash": turn.request_hash,
    }


async def answer_columns(keeper: Keeper, turn: NewTurn, response: Mapping[str, Any], known: Known) -> dict[str, Any]:
    """The columns of an answer, and `parent` and `known` of the statement that stores them."""
    return await off_loop.done([response, known.values], _answer_columns, keeper, turn, response, known)


def _answer_columns(keeper: Keeper, turn: NewTurn, response: Mapping[str, Any], known: Known) -> dict[str, Any]:
    usage = response.get("usage") or {}
    output = orjson.dumps(response)
    return {
        "turn_id": turn.turn_id,
        "output": turn.seal.sealed(turn.turn_id, OUTPUT, output),
        "vault": vault(keeper, turn.turn_id, turn.seal, known.values),
        "parent": known.parent,
        "known": known.vault,
        "prompt_tokens": usage.get("input_tokens") or 0,
        "cached_tokens": (usage.get("input_tokens_details") or {}).get("cached_tokens") or 0,
        "completion_tokens": usage.get("output_tokens") or 0,
    }


def vault(keeper: Keeper, turn_id: UUID, seal: TurnSeal, values: Mapping[str, str]) -> bytes | None:
    """The vault of a turn as it is stored. None: it has no values."""
    return seal.sealed_vault(turn_id, keeper.vaults.sealed(values, turn_id.bytes)) if values else None
