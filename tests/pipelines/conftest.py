"""What tests of pipelines share beside `support`."""

import pytest

from app.db.pool import Database
from tests.queue.support import make_tenant


@pytest.fixture
async def tenant(database: Database) -> int:
    """An account that has no key."""
    async with database.durable() as conn:
        return await make_tenant(conn)
