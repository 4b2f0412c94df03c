"""Claims about the policy that a process follows."""

import httpx
import psycopg
import pytest

from app.db.pool import Database
from app.engines import catalogue
from app.engines.model_registry import ModelRegistry
from app.errors import PolicyUnknown
from app.policy.in_force import PolicyInForce
from app.policy.rules import NO_POLICY
from app.settings import Settings
from tests.api import in_process
from tests.api.support import SUBMIT


@pytest.fixture
async def models(settings: Settings, database: Database) -> ModelRegistry:
    registry = ModelRegistry(database, catalogue.load(settings.models_file))
    await registry.renew()
    return registry


async def test_a_process_that_could_not_read_the_policy_yet_decides_nothing(
    settings: Settings, database: Database, models: ModelRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = PolicyInForce(database, models)
    with monkeypatch.context() as away:
        away.setattr("app.policy.service.newest_id", _fails)
        await policy.renew()
    with pytest.raises(PolicyUnknown):
        _ = policy.current
    await policy.renew()
    assert policy.current is NO_POLICY


async def test_until_then_requests_get_503_and_nothing_is_stored(client: httpx.AsyncClient, database: Database) -> None:
    policy = in_process.application().state.parts.admission.policy
    policy._current = None
    refused = await client.post(SUBMIT, json={"requests": [{"prompt": "hello"}]})
    assert refused.status_code == 503
    assert "policy could not be read" in refused.text
    async with database.relaxed() as conn:
        assert await (await conn.execute("select from batch")).fetchall() == []
    await policy.renew()
    assert (await client.post(SUBMIT, json={"requests": [{"prompt": "hello"}]})).status_code == 200


async def _fails(_: object) -> int:
    raise psycopg.OperationalError("away")
