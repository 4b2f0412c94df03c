"""An account for the tests of budgets."""

import pytest

from app.db.pool import Database
from tests.budgets.world import World


@pytest.fixture
async def world(database: Database) -> World:
    """The account, with its line in workflow `w`."""
    found = World(database)
    await found.begin()
    return found
