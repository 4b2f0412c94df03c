"""How a conversation grows: the slope of its prompts, and the event that says that its window will be full soon."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from app.db.pool import Connection
from app.events import NO_REQUEST, ConversationData, EventKind
from app.metering.slope import TURNS, is_soon, slope, turns_left
from app.sessions import sql
from app.webhooks import emitter

Lengths = Sequence[tuple[int, int]]  # tokens of the prompt and of the answer of each turn, the last one last


@dataclass(frozen=True, slots=True)
class Growth:
    """What a turn that ends changes. `slope`: None, after too few turns. `left`: turns until the window is full, if it fills soon
    now and did not before.
    """

    slope: float | None
    tokens: int = 0
    left: int | None = None


async def of_turn(conn: Connection, session_id: UUID, prompt: int, answer: int, window: int | None) -> Growth:
    """The growth of a conversation whose running turn ends with these tokens. `window`: of its model."""
    values = {"session_id": session_id, "limit": TURNS}
    before = [(row[0], row[1]) for row in await (await conn.execute(sql.PROMPTS, values)).fetchall()]
    return after([*before, (prompt, answer)], window)


def after(lengths: Lengths, window: int | None) -> Growth:
    """The growth after the last of these turns. Pure."""
    grows, left = _outlook(lengths, window)
    begins = is_soon(left) and not is_soon(_outlook(lengths[:-1], window)[1])
    return Growth(grows, sum(lengths[-1]), left if begins else None)


def _outlook(lengths: Lengths, window: int | None) -> tuple[float | None, int | None]:
    grows = slope([prompt for prompt, _ in lengths])
    return grows, turns_left(sum(lengths[-1]) if lengths else None, grows, window)


async def tell(conn: Connection, tenant_id: int, conversation: str, model: str, growth: Growth) -> None:
    """Write `conversation.filling`. Call in the transaction that ends the turn."""
    [(account,)] = await (await conn.execute(sql.ACCOUNT, {"tenant_id": tenant_id})).fetchall()
    data = ConversationData(
        request_id=NO_REQUEST,
        account_id=account,
        conversation=conversation,
        tokens=growth.tokens,
        slope=round(growth.slope or 0, 1),
        turns=growth.left or 0,
    )
    kind = EventKind.CONVERSATION_FILLING
    await emitter.emit(conn, tenant_id=tenant_id, kind=kind, model=model, batch_id=None, run=None, data=data)
