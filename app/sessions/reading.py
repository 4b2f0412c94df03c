"""Reads conversations and their turns, opened, with the values behind their placeholders."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import orjson

from app import clock, off_loop
from app.db import byte_pages
from app.errors import KeysUnavailable, NotFound
from app.policy.vaults import NO_VALUES
from app.sessions import sealing, service, sql, transcript
from app.sessions.sealing import INPUT, OUTPUT, SUMMARY, TurnSeal
from app.sessions.service import Keeper, Session, StoredTurn
from app.sessions.transcript import PastTurn
from app.states import TurnState

_SESSION_COLUMNS, _KEY_ID, _VAULT_KEY_ID = 13, 5, 11  # of a row of `sql.WITH_PAST`; those of the turn follow
PAGE_TURNS = 20
SETTLE_SECONDS, POLL_SECONDS = 5.0, 0.05  # the steward stores the turn of a batch that has ended at once
Seals = Mapping[UUID | None, TurnSeal]


async def read(keeper: Keeper, session_id: UUID) -> Session:
    """A conversation with its past. Raises NotFound, KeysUnavailable."""
    return await _session(keeper, session_id, sql.WITH_PAST)


async def state(keeper: Keeper, session_id: UUID) -> Session:
    """A conversation without its past, which takes the same time however long it is. Raises NotFound, KeysUnavailable."""
    return await _session(keeper, session_id, sql.WITHOUT_PAST)


async def _session(keeper: Keeper, session_id: UUID, query: str) -> Session:
    values = {"session_id": session_id, "tenant_id": keeper.tenant_id}
    async with keeper.database.relaxed() as conn:
        rows = await (await conn.execute(query, values, binary=True)).fetchall()
        if not rows:
            raise service.missing(service.name(session_id), "conversation")
        past = [row[_SESSION_COLUMNS:] for row in rows if any(row[_SESSION_COLUMNS:])]
        key_ids = [rows[0][_KEY_ID], rows[0][_VAULT_KEY_ID], *(turn[8] for turn in past)]
        keys = await sealing.wrapped_keys(conn, key_ids)
    seals = await sealing.seals_of(keeper.keyring, keys)
    size = sum(map(_size, [rows[0][:_SESSION_COLUMNS], *past]))
    return await off_loop.of_size(size, _opened, keeper, session_id, rows[0][:_SESSION_COLUMNS], past, seals)


def _opened(
    keeper: Keeper, session_id: UUID, row: Sequence[Any], past: Sequence[Sequence[Any]], seals: Seals
) -> Session:
    version, busy, late, summary, meta, key_id, created_at, slope, held, *vault_row, edits = row
    seal = _seal(seals, key_id)
    turns = [_turn(keeper, turn, seals) for turn in past]
    _check_sealed(turns)
    return Session(
        session_id,
        version,
        edits,
        busy=busy,
        late=late,
        meta=meta,
        created_at=created_at,
        slope=slope,
        held=held,
        past=[turn.past for turn in turns],
        summary=None if summary is None else seal.opened(session_id, SUMMARY, summary).decode(),
        values={**values_of(turns), **_values(keeper, seals, *vault_row)},
        seal=seal,
    )


def values_of(turns: Sequence[StoredTurn]) -> dict[str, str]:
    """The values of the placeholders in these turns, of which each continues those before it. The last one has all of them, but
    for those of a redaction of what was stored, while it ran.
    """
    found: dict[str, str] = {}
    for turn in turns:
        found.update(turn.values)
    return found


def _size(row: Sequence[Any]) -> int:
    """The bytes of the bodies in a row."""
    return sum(len(each) for each in row if isinstance(each, bytes))


async def find(keeper: Keeper, turn_id: UUID) -> StoredTurn | None:
    """A stored turn of the account. None: there is none with this id."""
    found = await _turns(keeper, sql.TURN_OF, {"turn_id": turn_id, "tenant_id": keeper.tenant_id})
    return found[0] if found else None


async def page(keeper: Keeper, session_id: UUID, start: int | None, *, ascending: bool) -> list[StoredTurn]:
    """Some turns of a conversation that have ended, from the number `start` on. None: from the first one, or from the last one
    down. Raises NotFound for an unknown conversation.
    """
    values = {"session_id": session_id, "tenant_id": keeper.tenant_id, "start": start, "limit": PAGE_TURNS}
    async with keeper.database.relaxed() as conn:
        cursor = await conn.execute(sql.PAGE[ascending], values, binary=True)
        rows, _ = await byte_pages.read(cursor, PAGE_TURNS)
        keys = await sealing.wrapped_keys(conn, [row[8] for row in rows])
    found = await _opened_turns(keeper, rows, keys)
    if not found and start is None:
        async with keeper.database.relaxed() as conn:
            if await (await conn.execute(sql.VERSION, values)).fetchone() is None:
                raise service.missing(service.name(session_id), "conversation")
    return found


async def item(keeper: Keeper, session_id: UUID, item_id: str) -> tuple[StoredTurn, int]:
    """The turn of a conversation that has this item, and its place in what `transcript.shown` lists of it. Raises NotFound."""
    turn = await turn_of(keeper, session_id, item_id)
    place = None if turn is None else await off_loop.of_size(turn.size, _place, turn.past, item_id)
    if turn is None or place is None:
        raise NotFound(f"Item with id {item_id[:60]!r} not found in the conversation.")
    return turn, place


async def turn_of(keeper: Keeper, session_id: UUID, item_id: str) -> StoredTurn | None:
    """The turn of a conversation that has this item, or had it. None: there is none."""
    turn_id = transcript.turn_of(item_id)
    turn = None if turn_id is None else await find(keeper, turn_id)
    return turn if turn is not None and turn.session_id == session_id and turn.state == TurnState.DONE else None


def _place(turn: PastTurn, item_id: str) -> int | None:
    return next((place for place, shown in enumerate(transcript.shown(turn)) if shown["id"] == item_id), None)


async def chain(keeper: Keeper, turn_id: UUID) -> list[StoredTurn]:
    """A response and those that it continues, the first one first; of a conversation: its turns until this one.

    Empty: there is no such response, or one that it continues was deleted.
    """
    found = await _turns(keeper, sql.CHAIN, {"turn_id": turn_id, "tenant_id": keeper.tenant_id})
    if found and found[-1].session_id is not None:
        values = {"session_id": found[-1].session_id}
        found = [each for each in await _turns(keeper, sql.PAST, values) if each.n <= found[-1].n]
    elif found and found[0].session_id is not None:  # a response that continues a turn of a conversation
        values = {"session_id": found[0].session_id}
        found = [*(t for t in await _turns(keeper, sql.PAST, values) if t.n < found[0].n), *found]
    elif found and found[0].parent is not None:
        return []
    _check_sealed(found)
    return found


async def turn_ids(keeper: Keeper, session_id: UUID, first: int = 1) -> list[UUID]:
    """The turns of a conversation from number `first` on that have values of placeholders."""
    async with keeper.database.relaxed() as conn:
        rows = await (await conn.execute(sql.TURN_IDS, {"session_id": session_id, "n": first})).fetchall()
    return [turn_id for (turn_id,) in rows]


async def past_with_values(keeper: Keeper, session_id: UUID) -> list[StoredTurn]:
    """The turns of a conversation that have ended and have values of placeholders."""
    return await _turns(keeper, sql.PAST_WITH_VALUES, {"session_id": session_id})


async def below(keeper: Keeper, turn_ids: Iterable[UUID]) -> list[StoredTurn]:
    """The responses that continue these, and those that continue them; also of those that were deleted."""
    return await _turns(keeper, sql.BELOW, {"turn_ids": list(turn_ids), "tenant_id": keeper.tenant_id})


async def is_ending(keeper: Keeper, turn: StoredTurn) -> bool:
    """Whether the batch of a background turn that was found running has ended: its answer is stored soon, or just was."""
    if turn.state != TurnState.RUNNING or turn.batch_id is None:
        return False
    async with keeper.database.relaxed() as conn:
        return await (await conn.execute(sql.IS_ENDING, {"turn_id": turn.turn_id})).fetchone() is not None


async def until_settled(keeper: Keeper, session_id: UUID) -> None:
    """Wait while turns of a conversation whose batches have ended, and so are shown as ended, are not stored yet."""
    deadline = clock.monotonic() + SETTLE_SECONDS
    while clock.monotonic() < deadline:
        async with keeper.database.relaxed() as conn:
            if await (await conn.execute(sql.ENDING_IN, {"session_id": session_id})).fetchone() is None:
                return
        await asyncio.sleep(POLL_SECONDS)


async def keyed(keeper: Keeper, session_id: UUID, key: str) -> StoredTurn | None:
    """The turn of a conversation that came with this Idempotency-Key."""
    found = await _turns(keeper, sql.KEYED, {"session_id": session_id, "key": key})
    return found[0] if found else None


async def _turns(keeper: Keeper, query: str, values: Mapping[str, Any]) -> list[StoredTurn]:
    async with keeper.database.relaxed() as conn:
        rows = await (await conn.execute(query, values, binary=True)).fetchall()
        keys = await sealing.wrapped_keys(conn, [row[8] for row in rows])
    return await _opened_turns(keeper, rows, keys)


async def _opened_turns(keeper: Keeper, rows: Sequence[Sequence[Any]], keys: Any) -> list[StoredTurn]:
    seals = await sealing.seals_of(keeper.keyring, keys)
    return await off_loop.of_size(sum(map(_size, rows)), lambda: [_turn(keeper, row, seals) for row in rows])


def _turn(keeper: Keeper, row: Sequence[Any], seals: Seals) -> StoredTurn:
    turn_id, n, state, batch_id, _, given, output, vault, key_id, prompt_tokens, session_id, parent, *rest = row
    seal = _seal(seals, key_id)
    request_hash, forged = rest or (None, False)
    if forged:
        raise _forged()
    return StoredTurn(
        turn_id,
        n,
        TurnState(state),
        session_id,
        parent,
        batch_id,
        orjson.loads(seal.opened(turn_id, INPUT, given)),
        None if output is None else orjson.loads(seal.opened(turn_id, OUTPUT, output)),
        _values(keeper, seals, turn_id, vault, key_id),
        seal,
        (given, output, vault),
        prompt_tokens,
        request_hash,
        _size(row),
    )


def _values(
    keeper: Keeper,
    seals: Seals,
    turn_id: UUID | None,
    vault: bytes | None,
    key_id: UUID | None,
) -> Mapping[str, str]:
    if turn_id is None or vault is None:
        return NO_VALUES
    return keeper.vaults.opened(_seal(seals, key_id).opened_vault(turn_id, vault), turn_id.bytes)


def _seal(seals: Seals, key_id: UUID | None) -> TurnSeal:
    if key_id not in seals:
        raise KeysUnavailable("A turn of the conversation is not readable: its key does not exist any more", gone=True)
    return seals[key_id]


def _check_sealed(turns: Sequence[StoredTurn]) -> None:
    """Raise KeysUnavailable where a turn in the clear comes after a sealed one: nobody but a thief of the database wrote it."""
    keys = [turn.seal.key_id for turn in turns]
    if None in keys and any(keys[: len(keys) - keys[::-1].index(None)]):
        raise _forged()


def _forged() -> KeysUnavailable:
    return KeysUnavailable(
        "A turn of the conversation is not readable: it is in the clear, and one before it is sealed", gone=True
    )
