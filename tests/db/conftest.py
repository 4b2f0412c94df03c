"""A database with the roles of all parts."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from app.db import roles
from app.db.role_grants import BROKER, GRANTS


@pytest.fixture
def conn(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """An owner's connection to a database with the roles, which go with it."""
    roles.apply(database_url)
    with psycopg.connect(database_url, autocommit=True) as conn:
        yield conn
        conn.execute("reset role")
        for role in (*GRANTS, BROKER):
            conn.execute(f"drop owned by {role} cascade; drop role {role}".encode())
