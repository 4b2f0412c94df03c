"""What somebody does to an object that is no batch: the audit row first, then the act; a refusal adds a row that says why."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import structlog

from app.access.roles import Viewer
from app.audit.record import Record
from app.console.pages.actions import write
from app.console.parts import Parts
from app.errors import SlackwaterError

T = TypeVar("T")
log = structlog.get_logger("console")


async def recorded(
    parts: Parts,
    viewer: Viewer,
    action: str,
    target: str,
    account: str | None,
    verb: Callable[[], Awaitable[T]],
    **more: Any,
) -> T:
    """Write the audit row, then act. See `attempted`."""
    await write(parts, Record(action, target, account, **more))
    return await attempted(parts, viewer, action, target, account, verb, **more)


async def attempted(
    parts: Parts,
    viewer: Viewer,
    action: str,
    target: str,
    account: str | None,
    verb: Callable[[], Awaitable[T]],
    **more: Any,
) -> T:
    """Act. `verb` writes its own audit row in its transaction. Raises its errors, each of which is recorded."""
    try:
        made = await verb()
    except SlackwaterError as error:
        await write(parts, Record(action, target, account, outcome=error.message, **more))
        raise
    finally:
        parts.looks.expire()
    log.info(f"console.{action}", target=target, by=viewer.subject, role=str(viewer.role))
    return made
