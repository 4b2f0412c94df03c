"""What somebody does in the console: the use case records it in its transaction; a refusal adds a row that says why."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from app.access.roles import Viewer
from app.audit import log as audit
from app.audit.acts import Act
from app.audit.record import Record
from app.console.parts import Parts
from app.errors import SlackwaterError

T = TypeVar("T")
log = structlog.get_logger("console")


async def attempted(
    parts: Parts, viewer: Viewer, act: Act, target: str, account: str | None, verb: Callable[[], Awaitable[T]]
) -> T:
    """Call `verb`, which records what it does. Raises its errors, each of which is recorded."""
    try:
        made = await verb()
    except SlackwaterError as error:
        await write(parts, Record(act, target, account, outcome=error.message))
        raise
    finally:
        parts.looks.expire()
    log.info(f"console.{act}", target=target, by=viewer.subject, role=str(viewer.role))
    return made


async def write(parts: Parts, record: Record) -> None:
    """Add a row to the audit log, durably: of a look, before it is shown, or of a refusal."""
    async with parts.database.transaction() as conn:
        await audit.record(conn, record)
