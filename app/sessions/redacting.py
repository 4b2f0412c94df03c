"""Redacts what is stored of an account's conversations and responses, by the rule in force now.

What continues something has the placeholders of all that came before it, so a conversation, or a tree of responses, is written
in one transaction. New placeholders have high numbers: a turn that begins meanwhile, with what it read before, gives none of
them to another value.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

import orjson

from app.admission.redaction import Redaction
from app.admission.stored import Search, kinds, without_tokens
from app.batches.redacting import CHANGED, NO_KEY, TURN_RUNS, look_at_name
from app.db.pool import Connection
from app.errors import KeysUnavailable
from app.policy.placeholders import MOST_VALUES, TooManyValues
from app.policy.vaults import NO_VALUES
from app.queue.rewriting import Changed
from app.sessions import sealing, service, sql
from app.sessions.sealing import CLEAR, INPUT, ORIGINAL, OUTPUT, SUMMARY, TurnSeal
from app.sessions.service import Keeper
from app.states import TurnState

TURNS = "turns of conversations"
_COLUMNS = {"input": INPUT, "original": ORIGINAL, "output": OUTPUT}
_FIRST_NEW = MOST_VALUES // 2


class _Turn(NamedTuple):
    """A turn as it is stored."""

    turn_id: UUID
    session_id: UUID | None
    parent: UUID | None
    state: str
    input: bytes
    original: bytes | None
    output: bytes | None
    vault: bytes | None
    key_id: UUID | None

    @property
    def open(self) -> bool:
        """Whether it has not ended."""
        return self.state in (TurnState.QUEUED, TurnState.RUNNING)


@dataclass(frozen=True, slots=True)
class _NewTurn:
    """A turn without its values."""

    turn: _Turn
    hits: Counter[str]
    columns: Mapping[str, bytes | None]


async def open_batches(keeper: Keeper) -> frozenset[int]:
    """The batches of background turns that have not ended."""
    async with keeper.database.relaxed() as conn:
        rows = await (await conn.execute(sql.OPEN_BATCHES, {"tenant_id": keeper.tenant_id})).fetchall()
    return frozenset(batch_id for (batch_id,) in rows)


async def redact(keeper: Keeper, redaction: Redaction, search: Search) -> None:
    """Search all conversations and stored responses of an account, and redact them if `search` says so."""
    async with keeper.database.relaxed() as conn:
        families = await (await conn.execute(sql.FAMILIES, {"tenant_id": keeper.tenant_id})).fetchall()
    for session_id, turn_id, meta in families:
        look_at_name(redaction, search, meta)
        await _family(keeper, redaction, search, {"session_id": session_id, "turn_id": turn_id})


async def _family(keeper: Keeper, redaction: Redaction, search: Search, of: Mapping[str, UUID | None]) -> None:
    async with keeper.database.relaxed() as conn:
        rows = await (await conn.execute(sql.FAMILY, {"tenant_id": keeper.tenant_id, **of}, binary=True)).fetchall()
        turns = [_Turn(*row) for row in rows]
        summaries = await (await conn.execute(sql.SUMMARY, {"session_id": of["session_id"]})).fetchall()
        summary, key_id = summaries[0] if summaries else (None, None)
        keys = await sealing.wrapped_keys(conn, [turn.key_id for turn in turns])
        keys |= await sealing.wrapped_keys(conn, [key_id])
    try:
        seals = await sealing.seals_of(keeper.keyring, keys)
        found = list(_rewritten(keeper, redaction, turns, seals))
        tells = _of_summary(redaction, of["session_id"], summary, seals.get(key_id, CLEAR))
    except KeysUnavailable:
        why = NO_KEY
    except TooManyValues:
        why = "its conversation has too many values"
    else:
        left = TURN_RUNS if any(turn.open for turn in turns) else None
        wanted = [search.note(TURNS, each.hits, left) for each in found]
        if summary is not None:
            wanted.append(search.note(TURNS, tells, left))
        if any(wanted):
            having = sum(wanted)
            left = None if await _written(keeper, of["session_id"], found) else CHANGED
            for _ in range(having):
                search.written(TURNS, left)
        return
    for _ in turns:
        search.unread(TURNS, why)


def _rewritten(
    keeper: Keeper, redaction: Redaction, turns: Sequence[_Turn], seals: Mapping[UUID | None, TurnSeal]
) -> Iterator[_NewTurn]:
    """Each turn as it is to be. Raises KeysUnavailable, TooManyValues."""
    values: dict[UUID | None, Mapping[str, str]] = {None: NO_VALUES}  # after each turn
    last: UUID | None = None  # of the conversation
    redactor, above = redaction.redactor, _FIRST_NEW
    for turn in turns:
        if turn.key_id not in seals:
            raise KeysUnavailable(NO_KEY)
        seal = seals[turn.key_id]
        before = values.get(last if turn.session_id else turn.parent, NO_VALUES)
        redacting = redactor.over({**before, **_values(keeper, seal, turn)}, above=above)
        known, hits = len(redacting.values), Counter[str]()
        columns: dict[str, bytes | None] = {}
        for name, place in _COLUMNS.items():
            columns[name] = was = getattr(turn, name)
            if was is None:
                continue
            item = orjson.loads(seal.opened(turn.turn_id, place, was))
            redacted = redacting.redact(item, of_engine=False)
            hits.update(of_column := kinds(redacted))
            if redacted.item is not item:
                other = without_tokens(redacted.item) if of_column else redacted.item
                columns[name] = seal.sealed(turn.turn_id, place, orjson.dumps(other))
        above += len(redacting.values) - known
        values[turn.turn_id] = dict(redacting.values)
        last = turn.turn_id if turn.session_id else last
        columns["vault"] = service.vault(keeper, turn.turn_id, seal, redacting.values)
        yield _NewTurn(turn, hits, columns)


def _of_summary(redaction: Redaction, session_id: UUID | None, summary: bytes | None, seal: TurnSeal) -> Counter[str]:
    """The values in a summary, which is made anew once a turn of its conversation is written. Raises KeysUnavailable."""
    if session_id is None or summary is None:
        return Counter()
    return kinds(redaction.redactor.redact(seal.opened(session_id, SUMMARY, summary).decode()))


def _values(keeper: Keeper, seal: TurnSeal, turn: _Turn) -> Mapping[str, str]:
    if turn.vault is None:
        return NO_VALUES
    values = keeper.vaults.opened(seal.opened_vault(turn.turn_id, turn.vault), turn.turn_id.bytes)
    if values is NO_VALUES:
        raise KeysUnavailable(NO_KEY)
    return values


async def _written(keeper: Keeper, session_id: UUID | None, found: Sequence[_NewTurn]) -> bool:
    """Write a family. False: it is not as it was read."""
    try:
        async with keeper.database.transaction() as conn:
            if session_id is not None:
                row = await (await conn.execute(sql.LOCK_FAMILY, {"session_id": session_id})).fetchone()
                if row is None or row[0] is not None:
                    raise Changed
                await conn.execute(sql.FORGET_SUMMARY, {"session_id": session_id})
            for each in found:
                await _write(conn, each)
    except Changed:
        return False
    return True


async def _write(conn: Connection, rewrite: _NewTurn) -> None:
    turn = rewrite.turn
    old = {f"old_{name}": getattr(turn, name) for name in (*_COLUMNS, "vault")}
    cursor = await conn.execute(sql.REDACT, {"turn_id": turn.turn_id, **rewrite.columns, **old})
    if cursor.rowcount != 1:
        raise Changed
