"""Lists of conversations, of one account or of all, and of their turns: how they grow, without what was said."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from app import off_loop
from app.db.pool import Connection, Database
from app.errors import KeysUnavailable
from app.metering.slope import turns_left
from app.sealing.keyring import Keyring
from app.sessions import listing_sql as sql
from app.sessions import sealing, service
from app.sessions.sealing import INPUT, OUTPUT, TurnSeal
from app.states import TurnState

PAGE_ROWS = 50


@dataclass(frozen=True, slots=True)
class Filter:
    """Which conversations a list has. Empty: all. `busy`: a turn runs; `growing`: its prompts become longer.

    `after`, `before`: when the conversation at the end of the page before was used, and its id; or at the begin of the one after.
    """

    tenant_id: int | None = None
    account: str = ""
    busy: bool = False
    growing: bool = False
    id_range: tuple[UUID, UUID] | None = None
    after: tuple[datetime, UUID] | None = None
    before: tuple[datetime, UUID] | None = None

    def values(self) -> dict[str, Any]:
        """The parameters of the conditions that it has."""
        values: dict[str, Any] = {
            "tenant_id": self.tenant_id,
            "account": self.account or None,
            "busy": self.busy or None,
            "growing": self.growing or None,
        }
        if self.id_range:
            values["id_from"], values["id_to"] = self.id_range
        if self.after:
            values["after_at"], values["after"] = self.after
        if self.before:
            values["before_at"], values["before"] = self.before
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Listed:
    """A conversation. `version`: turns that have ended. `busy`: one runs; `waits`: one is queued. `base`: its summary stands for
    the turns up to this one; `summarising`: one is being made. `slope`: tokens by which a prompt is longer than the one before;
    None: not known. `sealed`: its turns have a data key. `model` and tokens: of its last answer; None: it has none.
    """

    session_id: UUID
    tenant_id: int
    account: str
    version: int
    busy: bool
    waits: bool
    base: int
    has_summary: bool
    summarising: bool
    slope: float | None
    metadata: Mapping[str, str]
    sealed: bool
    created_at: datetime
    used_at: datetime
    model: str | None
    prompt_tokens: int | None
    completion_tokens: int | None

    @property
    def public_id(self) -> str:
        """The id callers see."""
        return service.name(self.session_id)

    @property
    def tokens(self) -> int:
        """What the next prompt begins with: the last prompt and its answer."""
        return (self.prompt_tokens or 0) + (self.completion_tokens or 0)

    def fill(self, window: int | None) -> float | None:
        """The share of the context window that is full. None: not known."""
        return self.tokens / window if window and self.prompt_tokens else None

    def turns_left(self, window: int | None) -> int | None:
        """Turns until the window is full, as it grows now. None: it does not grow, or is not known."""
        return turns_left(self.tokens if self.prompt_tokens else None, self.slope, window)


@dataclass(frozen=True, slots=True)
class ListedTurn:
    """A turn. `model`: None: items that its owner added. `shortened`: parts of its input were left out. `batch`: the request id
    of its batch; None: it was not queued.
    """

    n: int
    turn_id: UUID
    state: TurnState
    model: str | None
    shortened: bool
    batch: UUID | None
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    created_at: datetime
    finished_at: datetime | None

    @property
    def public_id(self) -> str:
        """The id of its response."""
        return service.RESPONSE + self.turn_id.hex


class Said(NamedTuple):
    """What was said in a turn: the items that came in, and those that were answered; None: there is no answer."""

    given: Sequence[Any]
    answered: Sequence[Any] | None


async def page(conn: Connection, wanted: Filter, limit: int = PAGE_ROWS) -> tuple[list[Listed], bool]:
    """A page of conversations, the last used first, and whether there are more in the direction that was asked for."""
    values = wanted.values()
    found = await (await conn.execute(sql.page(values).encode(), values | {"limit": limit + 1})).fetchall()
    rows = [Listed(*row) for row in found[:limit]]
    return (rows[::-1] if wanted.before else rows), len(found) > limit


async def one(conn: Connection, tenant_id: int | None, session_id: UUID) -> Listed | None:
    """A conversation; None: there is none, or it is another account's."""
    row = await (await conn.execute(sql.ONE, {"tenant_id": tenant_id, "session_id": session_id})).fetchone()
    return None if row is None else Listed(*row)


async def turns(
    conn: Connection, session_id: UUID, *, before: int | None = None, limit: int = PAGE_ROWS
) -> tuple[list[ListedTurn], bool]:
    """The newest turns before a number, the newest first, and whether there are more."""
    values = {"session_id": session_id, "before": before, "limit": limit + 1}
    found = await (await conn.execute(sql.TURNS, values)).fetchall()
    return [_turn(row) for row in found[:limit]], len(found) > limit


async def turn(conn: Connection, session_id: UUID, n: int) -> ListedTurn | None:
    """One turn; None: there is none with this number."""
    row = await (await conn.execute(sql.TURN, {"session_id": session_id, "n": n})).fetchone()
    return None if row is None else _turn(row)


def _turn(row: Sequence[Any]) -> ListedTurn:
    return ListedTurn(row[0], row[1], TurnState(row[2]), *row[3:])


async def said(database: Database, keyring: Keyring, session_id: UUID, n: int) -> Said | None:
    """What was said in a turn, as it is stored: with placeholders where its text was redacted. Raises KeysUnavailable."""
    async with database.relaxed() as conn:
        row = await (await conn.execute(sql.BODIES, {"session_id": session_id, "n": n}, binary=True)).fetchone()
        if row is None:
            return None
        turn_id, given, output, key_id = row
        keys = await sealing.wrapped_keys(conn, [key_id])
    seals = await sealing.seals_of(keyring, keys)
    if key_id not in seals:
        raise KeysUnavailable("The key of this turn was destroyed", gone=True)
    return await off_loop.of_size(len(given) + len(output or b""), _said, seals[key_id], turn_id, given, output)


def _said(seal: TurnSeal, turn_id: UUID, given: bytes, output: bytes | None) -> Said:
    answer = None if output is None else orjson.loads(seal.opened(turn_id, OUTPUT, output)).get("output") or []
    return Said(orjson.loads(seal.opened(turn_id, INPUT, given)), answer)
