"""Claims about the policy that a process follows."""

import httpx
import psycopg
import pytest

from app.db.pool import Connection, Database
from app.engines import catalogue
from app.engines.model_registry import ModelRegistry
from app.errors import PolicyUnknown
from app.policy import service
from app.policy.in_force import REFRESH_SECONDS, PolicyInForce
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


async def test_a_process_that_does_not_follow_the_policy_reads_it_when_it_needs_it_and_not_more_often_than_the_others(
    database: Database, models: ModelRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, reads, newest_id = [1000.0], list[float](), service.newest_id

    async def read(conn: Connection) -> int:
        reads.append(now[0])
        return await newest_id(conn)

    monkeypatch.setattr(service, "newest_id", read)
    monkeypatch.setattr("app.policy.in_force.clock.monotonic", lambda: now[0])
    policy = PolicyInForce(database, models)
    for _ in range(10):
        await policy.fresh()
    assert policy.known
    assert len(reads) == 1
    now[0] += REFRESH_SECONDS
    await policy.fresh()
    assert len(reads) == 2


async def _fails(_: object) -> int:
    raise psycopg.OperationalError("away")
