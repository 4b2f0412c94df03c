"""Who calls an installation: keys with every scope, operators, and what opens nothing."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from app.access import operator_tokens
from app.access.roles import Role
from app.crypto import secret_key
from app.db import embedded
from app.db.pool import Connection, Database
from app.tenants import service as tenants
from app.tenants.key_scope import KeyRole, KeyScope
from tests.system.stack import Stack

T = TypeVar("T")


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
