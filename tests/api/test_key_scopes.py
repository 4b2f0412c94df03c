"""Claims about what limits an API key: models, endpoints, networks, rotation of its secret, and of the master key."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.admission import key_terms
from app.api import deps
from app.crypto import MasterKey, key_id, secret_key
from app.db.pool import Database
from app.engines import catalogue
from app.engines.requests import UNFIT
from app.errors import BadInput
from app.settings import Settings
from app.tenants import key_cache
from app.tenants import service as tenants
from app.tenants.api_key import ApiKey
from app.tenants.key_scope import KeyRole, KeyScope, networks_of
from tests.api.support import BATCHES, MODEL, RUN, SUBMIT, TWO, line, uploaded

OTHER_MODEL = "@cf/openai/gpt-oss-20b"
CHAT = "/v1/chat/completions"
SAY = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"line_seconds": 0.0})


async def make(settings: Settings, database: Database, **scope: Any) -> ApiKey:
    models = catalogue.load(settings.models_file)
    async with database.transaction() as conn:
        terms = key_terms.scope_of(models, **scope)
        return await tenants.create_key(conn, secret_key(settings), "acme", "limited", scope=terms)


def shown(key: object) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def test_a_key_of_some_models_is_refused_the_others_on_every_surface(
    client: httpx.AsyncClient, settings: Settings, database: Database
) -> None:
    key = await make(settings, database, models=[OTHER_MODEL])
    sent = {"headers": shown(key)}
    alone = {key: value for key, value in SAY.items() if key != "model"}
    refused = [
        await client.post(RUN, json=alone, **sent),
        await client.post(SUBMIT, json={"requests": TWO}, **sent),
        await client.post(CHAT, json=SAY, **sent),
        await client.post("/v1/responses", json={"model": MODEL, "input": "hi", "background": True}, **sent),
    ]
    for answer in refused:
        assert answer.status_code == 403, answer.text
        [error] = answer.json()["errors"]
        assert error["code"] == 5018
        assert f"The API key {key.key_id} is limited to {OTHER_MODEL}; it may not use {MODEL}." in error["message"]
    assert refused[2].json()["error"]["code"] == "model_not_allowed"
    assert (await client.get(BATCHES, params={"limit": 100})).json()["result_info"]["count"] <= 1


async def test_a_key_is_a_submitters_unless_its_maker_says_more(
    client: httpx.AsyncClient, settings: Settings, database: Database
) -> None:
    budget = "/client/v4/accounts/acme/ai/budgets/b"
    async with database.transaction() as conn:
        plain = await tenants.create_key(conn, secret_key(settings), "acme", "plain")
    for key in (plain, await make(settings, database)):
        assert (await client.put(budget, json={"max_tokens": 1}, headers=shown(key))).status_code == 403
        assert (await client.get(BATCHES, headers=shown(key))).status_code == 200


async def test_a_key_of_some_endpoints_is_refused_the_others(
    client: httpx.AsyncClient, settings: Settings, database: Database
) -> None:
    key = await make(settings, database, endpoints=["/v1/embeddings"])
    answer = await client.post(CHAT, json=SAY, headers=shown(key))
    assert answer.status_code == 403
    assert answer.json()["errors"][0]["code"] == 3023
    assert answer.json()["error"]["code"] == "endpoint_not_allowed"
    queued = await client.post(SUBMIT, json={"requests": TWO}, headers=shown(key))
    assert queued.status_code == 403
    assert "requests[0]: " in queued.text


async def test_a_key_of_a_network_works_only_from_there(
    client: httpx.AsyncClient, settings: Settings, database: Database
) -> None:
    near = await make(settings, database, networks=["127.0.0.0/8"])
    far = await make(settings, database, networks=["10.0.0.0/8", "2001:db8::/32"])
    assert (await client.get(BATCHES, headers=shown(near))).status_code == 200
    for path in (BATCHES, "/v1/models"):
        answer = await client.get(path, headers=shown(far))
        assert answer.status_code == 403
        assert f"The API key {far.key_id} may not be used from 127.0.0.1" in answer.text
    assert answer.json()["error"]["code"] == "network_not_allowed"


@given(st.ip_addresses(v=4))
def test_an_address_that_ipv6_maps_is_the_same_address(address: Any) -> None:
    scope = KeyScope(networks=networks_of([f"{address}/32"]))
    assert scope.may_come_from(str(address))
    assert scope.may_come_from(f"::ffff:{address}")
    assert not scope.may_come_from(None)
    assert not scope.may_come_from("not an address")


@pytest.mark.parametrize(
    ("scope", "field"),
    [
        ({"role": "owner"}, "role"),
        ({"models": ["no-such-model"]}, "models"),
        ({"endpoints": ["chat"]}, "endpoints"),
        ({"networks": ["10.0.0.1/8"]}, "networks"),
        ({"networks": ["here"]}, "networks"),
        ({"networks": ["10.0.0.1"] * 101}, "networks"),
    ],
)
def test_a_wrong_limit_is_refused_and_named(settings: Settings, scope: Any, field: str) -> None:
    with pytest.raises(BadInput, match=f"{field}: ") as error:
        key_terms.scope_of(catalogue.load(settings.models_file), **scope)
    assert error.value.param == field


def test_an_expiry_is_a_length_of_time_or_the_end_of_a_day() -> None:
    now = datetime(2026, 11, 23, 12, tzinfo=UTC)
    assert key_terms.lifetime_of("90d", now) == timedelta(days=90)
    assert key_terms.lifetime_of("2026-11-23", now) == timedelta(hours=12)
    for wrong in ("", "soon", "0d", "2026-11-22", "999999d"):
        with pytest.raises(BadInput, match="expires"):
            key_terms.lifetime_of(wrong, now)


async def test_a_key_that_is_known_is_checked_without_a_query(
    client: httpx.AsyncClient, settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await make(settings, database, role="viewer", networks=["127.0.0.0/8"], models=[MODEL])
    monkeypatch.setattr(key_cache, "TRUST_SECONDS", 60.0)
    assert (await client.get("/v1/models", headers=shown(key))).status_code == 200
    calls = []

    async def asked(*_: object) -> None:
        calls.append(1)

    monkeypatch.setattr(tenants, "authenticate", asked)
    assert (await client.get("/v1/models", headers=shown(key))).status_code == 200
    assert (await client.post(CHAT, json=SAY, headers=shown(key))).status_code == 403
    assert calls == []
    assert deps.KeyHolder is not None


async def test_an_old_secret_works_until_the_overlap_ends_and_the_id_stays(
    settings: Settings, database: Database
) -> None:
    pepper, first = secret_key(settings), await make(settings, database, role="submitter")
    async with database.transaction() as conn:
        second = await tenants.rotate_key(conn, pepper, first.key_id, timedelta(hours=1))
        assert second.key_id == first.key_id
        old, new = [await tenants.authenticate(conn, pepper, str(key)) for key in (first, second)]
        assert old is not None
        assert new is not None
        assert (old.rotation, new.rotation) == (0, 1)
        assert old.scope == new.scope == KeyScope(KeyRole.SUBMITTER)
        assert {*await tenants.live_keys(conn, [(first.key_id, 0)])} == {(first.key_id, 0), (first.key_id, 1)}
    async with database.transaction() as conn:
        await conn.execute("update api_key set old_until = now() - interval '1 second'")
        assert await tenants.authenticate(conn, pepper, str(first)) is None
        assert await tenants.authenticate(conn, pepper, str(second)) is not None
        assert {*await tenants.live_keys(conn, [(first.key_id, 0)])} == {(first.key_id, 1)}


async def test_a_rotation_without_overlap_ends_the_old_secret_at_once(settings: Settings, database: Database) -> None:
    pepper, first = secret_key(settings), await make(settings, database)
    async with database.transaction() as conn:
        await tenants.rotate_key(conn, pepper, first.key_id, timedelta(0))
    async with database.transaction() as conn:
        assert await tenants.authenticate(conn, pepper, str(first)) is None


async def test_a_key_follows_the_master_key_at_its_next_use(settings: Settings, database: Database) -> None:
    key = await make(settings, database)
    old, new = secret_key(settings), MasterKey(b"the next master key of 32 bytes or more")
    async with database.transaction() as conn:
        assert await tenants.authenticate(conn, new, str(key)) is None
        new.others = (bytes(old),)
        assert await tenants.keys_of_other_masters(conn, new) >= 1
        assert await tenants.authenticate(conn, new, str(key)) is not None
        await conn.execute("delete from api_key where key_id <> %s", (key.key_id,))
        assert await tenants.keys_of_other_masters(conn, new) == 0
        assert await tenants.authenticate(conn, MasterKey(bytes(new)), str(key)) is not None
        assert await tenants.authenticate(conn, bytes(old), str(key)) is None
    assert key_id(old) != key_id(new)


async def test_lines_for_a_model_that_the_key_may_not_use_fail_alone_and_never_reach_an_engine(
    client: httpx.AsyncClient, settings: Settings, database: Database
) -> None:
    key = await make(settings, database, models=[OTHER_MODEL])
    client.headers["authorization"] = f"Bearer {key}"
    new = {"input_file_id": await uploaded(client, line(1) + line(2)), "endpoint": CHAT, "completion_window": "24h"}
    created = await client.post("/v1/batches", json=new)
    assert created.status_code == 200, created.text
    async with database.durable() as conn:
        rows = await (await conn.execute("select seq, endpoint, body from item_payload order by seq")).fetchall()
    assert [endpoint for _, endpoint, _ in rows] == [UNFIT, UNFIT]
    assert all(b"model_not_allowed" in bytes(body) for _, _, body in rows)
