"""Who calls an installation: keys with every scope, operators, and what opens nothing."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from app.access import operator_tokens, sessions
from app.access.roles import Grant, Role
from app.crypto import secret_key
from app.db import embedded
from app.db.pool import Connection, Database
from app.engines.engine_key import door_token
from app.tenants import service as tenants
from app.tenants.key_scope import KeyRole, KeyScope, networks_of
from tests.system.stack import Stack

T = TypeVar("T")
ELSEWHERE = "of another network"  # a key that is refused for where it comes from, and not for what it is


def done(stack: Stack, do: Callable[[Connection, bytes], Awaitable[T]]) -> T:
    """The result of this in a transaction. It is given the secret of the installation."""

    async def do_it() -> T:
        async with Database(embedded.database_url(stack.settings), size=1) as database, database.transaction() as conn:
            return await do(conn, secret_key(stack.settings))

    return asyncio.run(do_it())


def key(stack: Stack, account: str, scope: KeyRole | KeyScope) -> str:
    """A key with this scope, or with this role and no other limit."""
    wanted = KeyScope(scope) if isinstance(scope, KeyRole) else scope
    return str(done(stack, lambda conn, secret: tenants.create_key(conn, secret, account, "test", scope=wanted)))


def operator(stack: Stack, role: Role) -> str:
    """A token of an operator."""
    return done(
        stack, lambda conn, secret: operator_tokens.create(conn, secret, "ann", role, timedelta(days=1), "test")
    )[1]


def no_operators(stack: Stack) -> None:
    """Remove all of them: while there is one, changes on the database itself need a reason."""
    stack.query("delete from operator_token returning token_id")


def dead(stack: Stack, account: str) -> dict[str, str]:
    """What opens nothing: keys of the account itself that no longer work, and credentials of other kinds."""
    found = {name: key(stack, account, KeyRole.ADMIN) for name in ("expired", "revoked", "old", "live")}
    found[ELSEWHERE] = key(stack, account, KeyScope(KeyRole.ADMIN, networks=networks_of(["10.0.0.0/8"])))
    ids = {name: each.split("_")[2] for name, each in found.items()}
    live = found.pop("live")

    async def end(conn: Connection, secret: bytes) -> dict[str, str]:
        await conn.execute("update api_key set expires_at = now() where key_id = %s", (ids["expired"],))
        assert await tenants.revoke_key(conn, ids["revoked"])
        await tenants.rotate_key(conn, secret, ids["old"], timedelta(0))
        link = await sessions.invite(conn, Grant("ann", Role.ADMIN, await tenants.find_tenant(conn, account)))
        session = await sessions.begin(conn, link)
        assert session
        token_id, token = await operator_tokens.create(conn, secret, "bob", Role.OPERATOR, timedelta(days=1), "test")
        await conn.execute("update operator_token set expires_at = now() where token_id = %s", (token_id,))
        return {"expired operator": token, "session": session, "invitation": link, "door": door_token(secret, "a")}

    forged = f"sk_op_{live.removeprefix('sk_sw_')}"
    others = {"none": "", "junk": "x" * 60, "forged operator": forged, "wrong secret": live[:-1] + "!"}
    return found | others | done(stack, end)
