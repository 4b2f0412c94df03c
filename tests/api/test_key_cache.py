"""Claims about the key cache: a key is looked up once a second at most, and a revoked key stops working within a second."""

import httpx
import pytest

from app import clock
from app.crypto import secret_key
from app.db import stale_if_error
from app.db.pool import Database
from app.settings import Settings
from app.tenants import key_cache, sql
from app.tenants import service as tenants
from app.tenants.key_cache import TRUST_SECONDS, KeyCache


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow database does not count as unavailable."""
    monkeypatch.setattr(stale_if_error, "PATIENCE_SECONDS", 10.0)


@pytest.fixture
def keys(settings: Settings, database: Database) -> KeyCache:
    return KeyCache(database, secret_key(settings))


async def revoke(database: Database, key: str) -> None:
    async with database.durable() as conn:
        assert await tenants.revoke_key(conn, key.split("_")[2])


async def test_a_revoked_key_works_no_longer_than_the_time_of_trust(
    keys: KeyCache, database: Database, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = clock.monotonic()
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    assert await keys.tenant(key)
    await revoke(database, key)
    now += TRUST_SECONDS - 0.01
    assert await keys.tenant(key)
    now += 0.02
    assert await keys.tenant(key) is None


async def test_a_known_key_costs_no_statement(keys: KeyCache, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await keys.tenant(key)
    monkeypatch.setattr(sql, "FIND_KEY", "no statement")
    assert await keys.tenant(key) == first


async def test_a_known_id_with_another_secret_is_refused(keys: KeyCache, key: str) -> None:
    assert await keys.tenant(key)
    assert await keys.tenant(key[:-1] + ("a" if key[-1] != "a" else "b")) is None


async def test_a_key_refused_before_it_was_made_is_taken_at_once(
    keys: KeyCache, database: Database, settings: Settings
) -> None:
    assert await keys.tenant("sk_sw_000000000000_secret") is None
    async with database.transaction() as conn:
        made = str(await tenants.create_key(conn, secret_key(settings), "acme", "test"))
    found = await keys.tenant(made)
    assert found is not None
    assert found.account_id == "acme"


async def test_no_more_keys_are_kept_than_there_is_room_for(
    keys: KeyCache, database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_cache, "_MAX_KEYS", 2)
    async with database.transaction() as conn:
        made = [str(await tenants.create_key(conn, secret_key(settings), "acme", "test")) for _ in range(3)]
    for key in made:
        assert await keys.tenant(key)
    assert len(keys._cached) == 2


async def test_the_api_answers_a_known_key_and_refuses_it_after_revocation(
    client: httpx.AsyncClient, database: Database, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_cache, "TRUST_SECONDS", 0.0)
    assert (await client.get("/v1/models")).status_code == 200
    await revoke(database, key)
    assert (await client.get("/v1/models")).status_code == 401
