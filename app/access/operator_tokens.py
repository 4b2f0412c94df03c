"""Tokens of operators, `sk_op_<id>_<secret>`: they open the admin routes, and nothing of an account's requests and answers.

A token lives 90 days at most. Of its secret, only an HMAC under a pepper of the master key is stored.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

from app import clock, crypto
from app.access import operator_sql as sql
from app.access.roles import Role
from app.audit import log
from app.audit.acts import Act
from app.audit.record import Record
from app.db.pool import Connection
from app.errors import BadInput

PREFIX = "sk_op_"
LONGEST = timedelta(days=90)
ROLES = (Role.OPERATOR, Role.AUDITOR)
_PEPPER = b"operator-token pepper"


@dataclass(frozen=True, slots=True)
class Operator:
    """Who uses the admin routes. `subject`: as the audit log shows it."""

    subject: str
    role: Role


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """A token without its secret."""

    token_id: str
    name: str
    role: str
    created_by: str
    created_at: datetime
    expires_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None

    def state(self, now: datetime) -> str:
        """`live`, `expired` or `revoked`."""
        return "revoked" if self.revoked_at else "expired" if self.expires_at <= now else "live"


async def create(
    conn: Connection, pepper: bytes, name: str, role: Role, lifetime: timedelta, created_by: str
) -> tuple[str, str]:
    """Create a token. Returns its id, and the whole token, which cannot be read again. Raises BadInput."""
    if not timedelta(0) < lifetime <= LONGEST:
        raise BadInput(f"expires: a token of an operator lives {LONGEST.days} days at most")
    if role not in ROLES:
        raise BadInput(f"role: must be one of {', '.join(ROLES)}, not {role}")
    token_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    values = {"token_id": token_id, "name": name, "role": str(role), "lifetime": lifetime, "created_by": created_by}
    async with conn.transaction():
        [(until,)] = await (await conn.execute(sql.ADD, values | _hashed(pepper, secret))).fetchall()
        await log.record(conn, Record(Act.OPERATOR_CREATE, token_id, after=_terms(name, role, until)))
    return token_id, f"{PREFIX}{token_id}_{secret}"


async def authenticate(conn: Connection, pepper: bytes, token: str) -> Operator | None:
    """The operator with this token. None: it is unknown, expired or revoked."""
    token_id, _, secret = token.removeprefix(PREFIX).partition("_")
    shown = [_hash(master, secret) for master in crypto.accepted(pepper)]
    values = {"token_id": token_id, "shown": shown, "master_key": crypto.key_id(pepper)}
    row = await (await conn.execute(sql.USE, values)).fetchone()
    if row is None or not token.startswith(PREFIX):
        return None
    name, role = row
    return Operator(f"{name} ({PREFIX}{token_id})", Role(role))


async def listing(conn: Connection) -> list[TokenInfo]:
    """Every token, newest first."""
    return [TokenInfo(*row) for row in await (await conn.execute(sql.LISTING)).fetchall()]


async def revoke(conn: Connection, token_id: str) -> bool:
    """Revoke a token at once. False: there is no such live token."""
    async with conn.transaction():
        row = await (await conn.execute(sql.REVOKE, {"token_id": token_id})).fetchone()
        if row is None:
            return False
        before, after = _terms(*row) | {"state": "live"}, {"state": "revoked"}
        await log.record(conn, Record(Act.OPERATOR_REVOKE, token_id, before=before, after=after))
    return True


def _terms(name: str, role: str, expires_at: datetime) -> dict[str, object]:
    return {"name": name, "role": str(role), "expires_at": clock.iso(expires_at)}


async def any_live(conn: Connection) -> bool:
    """Whether somebody has a token that works."""
    return await (await conn.execute(sql.ANY_LIVE)).fetchone() is not None


async def of_other_masters(conn: Connection, pepper: bytes) -> int:
    """How many live tokens depend on a master key other than the one in use."""
    values = {"master_key": crypto.key_id(pepper)}
    [(count,)] = await (await conn.execute(sql.COUNT_OF_OTHERS, values)).fetchall()
    return int(count)


def _hash(master: bytes, secret: str) -> bytes:
    return hmac.digest(crypto.derive(master, _PEPPER), secret.encode(), hashlib.sha256)


def _hashed(pepper: bytes, secret: str) -> dict[str, object]:
    return {"secret_hash": _hash(pepper, secret), "master_key": crypto.key_id(pepper)}
