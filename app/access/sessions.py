"""Sign-in by one-time links or an identity provider, and the sessions that follow. There is no password.

A link works once, for five minutes. Its token and that of a session are 256 random bits, of which only the hash is stored.
A session ends half an hour after its last use, twelve hours after its begin, or when it is revoked.
"""

import hashlib
import secrets
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from app import clock
from app.access import sql
from app.access.roles import Grant, Role, Viewer
from app.audit import actor, log
from app.audit.acts import Act
from app.audit.record import Record
from app.db.pool import Connection

LINK_LIFETIME = timedelta(minutes=5)
IDLE = timedelta(minutes=30)
LIFETIME = timedelta(hours=12)


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A live session without its token. `account`: None: the installation."""

    session_id: int
    subject: str
    role: Role
    account: str | None
    signed_in_at: datetime
    seen_at: datetime
    expires_at: datetime


async def invite(conn: Connection, grant: Grant) -> str:
    """The token of a new one-time link."""
    token = secrets.token_urlsafe(32)
    async with conn.transaction():
        values = {**_values(grant), "hash": _hashed(token), "lifetime": LINK_LIFETIME}
        [(account, until)] = await (await conn.execute(sql.ADD_LINK, values)).fetchall()
        after = {"role": str(grant.role), "until": clock.iso(until)}
        await log.record(conn, Record(Act.SESSION_INVITE, grant.subject, account, after=after))
    return token


async def invited(conn: Connection, token: str) -> Grant | None:
    """Whom a link would sign in. None: it is unknown, used or too old. The link stays usable."""
    row = await (await conn.execute(sql.FIND_LINK, {"hash": _hashed(token)})).fetchone()
    return None if row is None else Grant(row[0], Role(row[1]), row[2])


async def begin(conn: Connection, token: str) -> str | None:
    """Use a link up. Returns the token of a new session; None: the link is unknown, used or too old. Call in a transaction."""
    session = secrets.token_urlsafe(32)
    values = {"hash": _hashed(token), "session": _hashed(session), "lifetime": LIFETIME}
    row = await (await conn.execute(sql.USE_LINK, values)).fetchone()
    if row is None:
        return None
    await _started(conn, row[0], Grant(row[1], Role(row[2]), row[3]), row[4], "link")
    return session


async def open_session(conn: Connection, grant: Grant) -> str:
    """The token of a new session of somebody whom an identity provider has signed in. Call in a transaction."""
    session = secrets.token_urlsafe(32)
    values = {**_values(grant), "session": _hashed(session), "lifetime": LIFETIME}
    [(session_id, account)] = await (await conn.execute(sql.OPEN_SESSION, values)).fetchall()
    await _started(conn, session_id, grant, account, "oidc")
    return session


async def _started(conn: Connection, session_id: int, grant: Grant, account: str | None, means: str) -> None:
    """Record a new session as begun by whom it belongs to, and forget those that are long over."""
    await conn.execute(sql.FORGET_SESSIONS)
    by = replace(actor.current(), who=grant.subject, role=str(grant.role), session_id=session_id)
    after = {"by": means}
    await log.record(conn, Record(Act.SESSION_START, f"session {session_id}", account, after=after, actor=by))


async def find(conn: Connection, token: str) -> tuple[Viewer, bool] | None:
    """Who holds this session, and whether its use should be noted. None: it is unknown, idle for too long, ended or revoked."""
    row = await (await conn.execute(sql.FIND_SESSION, {"hash": _hashed(token), "idle": IDLE})).fetchone()
    if row is None:
        return None
    session_id, subject, role, *rest, due = row
    return Viewer(session_id, subject, Role(role), *rest), due


async def note_use(conn: Connection, session_id: int) -> None:
    """Note that a session is in use, at most once a minute."""
    await conn.execute(sql.SEE_SESSION, {"session_id": session_id})


async def listing(
    conn: Connection, tenant_id: int | None = None, *, before: int | None = None, limit: int | None = None
) -> list[SessionInfo]:
    """The live sessions, newest first: of one account, or all. `before`: only those with a smaller number."""
    values = {"tenant_id": tenant_id, "idle": IDLE, "before": before, "limit": limit}
    rows = await (await conn.execute(sql.LIST_SESSIONS, values)).fetchall()
    return [SessionInfo(row[0], row[1], Role(row[2]), *row[3:]) for row in rows]


async def revoke(conn: Connection, session_id: int, tenant_id: int | None = None) -> bool:
    """End a session at once. False: there is no such live session (of this account)."""
    return await _end(conn, session_id, tenant_id, Act.SESSION_REVOKE)


async def end(conn: Connection, session_id: int) -> bool:
    """The same, by whom it belongs to."""
    return await _end(conn, session_id, None, Act.SESSION_END)


async def _end(conn: Connection, session_id: int, tenant_id: int | None, act: Act) -> bool:
    values = {"session_id": session_id, "tenant_id": tenant_id}
    async with conn.transaction():
        row = await (await conn.execute(sql.REVOKE_SESSION, values)).fetchone()
        if row is None:
            return False
        subject, role, account = row
        before = {"subject": subject, "role": role, "state": "live"}
        await log.record(conn, Record(act, f"session {session_id}", account, before=before, after={"state": "ended"}))
    return True


def _values(grant: Grant) -> dict[str, object]:
    return {"subject": grant.subject, "role": str(grant.role), "tenant_id": grant.tenant_id}


def _hashed(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
