"""No statement that claims of all accounts, or calls of one, wait for may be followed by a round trip before its commit.

A process that stops there, or whose host vanishes, would stop all batch work of a pool, or the calls under a budget. So in each
test that runs our code in its own process, a transaction that locks rows of `sched` or `budget` has to do so in its last message
(`PooledConnection.at_commit`). The mark `holds_accounts` is for tests that hold them on purpose, and for verbs that run while
nothing claims.
"""

import os
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from app.db import pooled_connection
from app.queue import retention_sql

_LOCKS = re.compile(
    r"\b(update|insert into|delete from) (sched (as )?s|budget( (as )?b)?)\b|"
    r"\bfrom (sched (s )?|budget (b )?)[^;]*\bfor update( of [sb])?\b(?! skip locked)"
)
_MAY = {retention_sql.FORGET_SHARES}  # of an account that is being deleted, and so has no work


@lru_cache(maxsize=4096)
def locks_accounts(text: str) -> bool:
    """Whether a statement locks rows of `sched`."""
    return text not in _MAY and _LOCKS.search(text) is not None


def _is_ours(text: str) -> bool:
    """Whether our code sends a statement. Those of tests are in one line."""
    if "\n" in text:
        return True
    frame = sys._getframe(2)
    while frame.f_back is not None and f"{os.sep}psycopg" in frame.f_code.co_filename:
        frame = frame.f_back
    return frame.f_code.co_filename.startswith(_OURS)


_ROOT = Path(pooled_connection.__file__).parents[2]
_OURS = tuple(f"{_ROOT / folder}{os.sep}" for folder in ("app", "workers"))
_allowed = [False]


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line("markers", "holds_accounts: a transaction of this test may hold accounts over a round trip")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note whether the test has the mark."""
    _allowed[0] = item.get_closest_marker("holds_accounts") is not None


@pytest.fixture(autouse=True, scope="session")
def _locks_are_short() -> Iterator[None]:
    cursor = pooled_connection._Cursor
    execute = cursor.execute

    async def checked(self: Any, query: Any, *args: Any, **options: Any) -> Any:
        connection = self.connection
        last = getattr(connection, "_pipeline", None) is not None and connection._pipeline.level > 0
        text = pooled_connection._text(query)
        if not (connection.idle or last or _allowed[0]) and locks_accounts(text) and _is_ours(text):
            raise AssertionError(f"claims or calls wait for this until the commit, so send it with that:\n{query}")
        return await execute(self, query, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cursor, "execute", checked)
        yield
