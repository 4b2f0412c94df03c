"""What tests of pipelines share beside `support`."""

from collections.abc import Awaitable, Callable

import httpx
import pytest

from app.db.pool import Database
from app.engines import catalogue
from app.policy import service as policies
from app.settings import Settings
from tests.api import in_process
from tests.queue.support import make_tenant

Apply = Callable[[str], Awaitable[None]]


@pytest.fixture
async def apply(database: Database, settings: Settings, client: httpx.AsyncClient) -> Apply:
    """Sets the policy."""

    async def put(text: str) -> None:
        async with database.transaction() as conn:
            await policies.apply(conn, text, catalogue.load(settings.models_file), "test")
        await in_process.application().state.parts.admission.policy.renew()

    return put


@pytest.fixture
async def tenant(database: Database) -> int:
    """An account that has no key."""
    async with database.durable() as conn:
        return await make_tenant(conn)
