"""Claims about the routes of operators: what they change, that each change is recorded, and where they are served."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import pytest

from app.access import operator_tokens
from app.access.roles import Role
from app.api import app as api
from app.crypto import MasterKey, secret_key
from app.db.pool import Database
from app.errors import BadInput
from app.settings import Settings
from app.tenants import service as tenants
from testing.fakes.identity_provider import CLIENT, ISSUER, FakeIdentityProvider
from tests.api import in_process
from tests.api.support import BATCHES, MODEL, SUBMIT, TWO

ADMIN = "/admin/v1"
POLICY = '[[rule]]\nid = "short"\nwhen = { task = ["extract"] }\nmax_tokens = 200\n'


async def token(settings: Settings, database: Database, role: Role = Role.OPERATOR) -> str:
    async with database.transaction() as conn:
        made = await operator_tokens.create(conn, secret_key(settings), "ann", role, timedelta(days=1), "test")
        return made[1]


@pytest.fixture
async def operator(settings: Settings, database: Database) -> AsyncIterator[httpx.AsyncClient]:
    async with in_process.running(settings, await token(settings, database)) as (_, client):
        client.headers["x-slackwater-reason"] = "OPS-7"
        yield client


async def result(answer: httpx.Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()["result"] if status == 200 else answer.text


async def test_an_operator_makes_accounts_and_keys_which_then_work(operator: httpx.AsyncClient) -> None:
    made = await result(await operator.post(f"{ADMIN}/accounts", json={"account": "clinic"}))
    assert (made["account_id"], made["keys"]) == ("clinic", 0)
    await result(await operator.post(f"{ADMIN}/accounts", json={"account": "clinic"}), 409)
    wanted = {
        **{"account": "clinic", "name": "ward", "role": "submitter", "models": ["smollm2"], "expires": "30d"},
        **{"networks": ["127.0.0.1"], "requests_per_minute": 60, "pins": {"workflow": "notes"}},
    }
    key = await result(await operator.post(f"{ADMIN}/keys", json=wanted | {"models": [MODEL]}))
    assert (key["role"], key["models"], key["networks"]) == ("submitter", [MODEL], ["127.0.0.1/32"])
    [listed] = await result(await operator.get(f"{ADMIN}/keys", params={"account": "clinic"}))
    assert listed["created_by"].startswith("ann (sk_op_")
    assert "key" not in listed
    shown = {"authorization": f"Bearer {key['key']}"}
    theirs = BATCHES.replace("acme", "clinic")
    assert (await operator.get(theirs, headers=shown)).status_code == 200
    submitted = await operator.post(SUBMIT.replace("acme", "clinic"), json={"requests": TWO}, headers=shown)
    assert submitted.status_code == 200, submitted.text
    changed = await result(await operator.post(f"{ADMIN}/keys/{key['id']}/rotate", json={"overlap": "1h"}))
    for secret in (key["key"], changed["key"]):
        assert (await operator.get(theirs, headers={"authorization": f"Bearer {secret}"})).status_code == 200
    await result(await operator.delete(f"{ADMIN}/keys/{key['id']}"))
    await result(await operator.delete(f"{ADMIN}/keys/{key['id']}"), 404)
    await result(await operator.delete(f"{ADMIN}/accounts/clinic"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"account": "nobody"}, "no account nobody"),
        ({"role": "owner"}, "role: must be one of viewer, submitter, admin"),
        ({"models": ["none"]}, "models: no such model 'none'"),
        ({"networks": ["10.0.0.1/8"]}, "networks: 10.0.0.1/8"),
        ({"expires": "yesterday"}, "expires: 'yesterday'"),
        ({"expires": "9999-12-31"}, "within 36500 days"),
        ({"pins": {"colour": "red"}}, "pins: colour is no label"),
        ({"scope": "all"}, "scope"),
    ],
)
async def test_a_wrong_key_is_refused_and_nothing_is_stored(
    operator: httpx.AsyncClient, database: Database, change: dict[str, Any], message: str
) -> None:
    async with database.transaction() as conn:
        await tenants.ensure_tenant(conn, "clinic")
    answer = await operator.post(f"{ADMIN}/keys", json={"account": "clinic"} | change)
    assert answer.status_code in (400, 404)
    assert message in answer.text
    assert await result(await operator.get(f"{ADMIN}/keys", params={"account": "clinic"})) == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "accounts/%00"),
        ("DELETE", "accounts/a%00b"),
        ("GET", "quotas/%00"),
        ("GET", "budgets/%00"),
        ("DELETE", "budgets/clinic/%00"),
        ("DELETE", "keys/%00"),
        ("GET", "keys?account=%00"),
        ("GET", "audit?account=%00"),
        ("GET", "audit?limit=0"),
        ("GET", "audit?everything=1"),
    ],
)
async def test_what_names_nothing_is_refused_as_such(operator: httpx.AsyncClient, method: str, path: str) -> None:
    answer = await operator.request(method, f"{ADMIN}/{path}")
    assert answer.status_code == 400, answer.text
    assert answer.json()["errors"][0]["code"] == 5006


async def test_each_change_is_recorded_with_who_made_it_and_why(operator: httpx.AsyncClient) -> None:
    await operator.post(f"{ADMIN}/accounts", json={"account": "clinic"})
    await operator.put(f"{ADMIN}/quotas/clinic", json={"open_batches": 3})
    await operator.put(f"{ADMIN}/budgets/clinic/month", json={"max_cost": "5 USD"})
    await operator.put(f"{ADMIN}/policy", json={"policy": POLICY})
    refused = await operator.put(f"{ADMIN}/policy", json={"policy": "[[rule]]\n"})
    assert refused.status_code == 400
    await operator.post(f"{ADMIN}/policy/rollback", json={})
    await operator.delete(f"{ADMIN}/budgets/clinic/month")
    seen = [each for each in await result(await operator.get(f"{ADMIN}/audit")) if each["act"] != "operator.create"]
    assert [(each["act"], each["account"]) for each in reversed(seen)][:4] == [
        ("account.create", "clinic"),
        ("quota.set", "clinic"),
        ("budget.set", "clinic"),
        ("policy.apply", None),
    ]
    assert {(each["role"], each["reason"], each["outcome"]) for each in seen} == {("operator", "OPS-7", "done")}
    assert seen[0]["act"] == "budget.remove"
    page = (await operator.get(f"{ADMIN}/audit", params={"limit": 2, "account": "clinic"})).json()
    assert len(page["result"]) == 2
    assert page["result_info"]["before"] == page["result"][-1]["audit_id"]
    found = await result(await operator.get(f"{ADMIN}/quotas/clinic"))
    assert found["limits"]["open_batches"] == 3


async def test_the_versions_of_the_policy_are_listed_page_by_page(operator: httpx.AsyncClient) -> None:
    for most in (100, 200, 300):
        await result(await operator.put(f"{ADMIN}/policy", json={"policy": POLICY.replace("200", str(most))}))
    path, found, before = f"{ADMIN}/policy/versions", list[Any](), ""
    while before is not None:
        page = (await operator.get(f"{path}?limit=2{before}")).json()
        found += page["result"]
        before = page["result_info"]["before"] and f"&before={page['result_info']['before']}"
    versions = [each["version"] for each in found]
    assert (len(versions), versions) == (3, sorted(versions, reverse=True))
    assert versions[0] == (await result(await operator.get(f"{ADMIN}/policy")))["version"]
    assert "text" not in found[0]


async def test_the_audit_log_is_read_by_what_was_acted_on(operator: httpx.AsyncClient) -> None:
    for account in ("clinic", "ward"):
        await result(await operator.post(f"{ADMIN}/accounts", json={"account": account}))
    found = await result(await operator.get(f"{ADMIN}/audit", params={"target": "ward"}))
    assert [(each["act"], each["target"]) for each in found] == [("account.create", "ward")]


async def test_a_token_ends_when_it_expires_or_is_revoked(
    operator: httpx.AsyncClient, database: Database, settings: Settings
) -> None:
    auditor = await token(settings, database, Role.AUDITOR)
    shown = {"authorization": f"Bearer {auditor}"}
    assert (await operator.get(f"{ADMIN}/audit", headers=shown)).status_code == 200
    for wrong in (f"{auditor}x", auditor[:-1], "sk_op_", "sk_op__", auditor.replace("sk_op_", "sk_sw_")):
        assert (await operator.get(f"{ADMIN}/audit", headers={"authorization": f"Bearer {wrong}"})).status_code == 401
    async with database.transaction() as conn:
        assert await operator_tokens.revoke(conn, auditor.split("_")[2])
    assert (await operator.get(f"{ADMIN}/audit", headers=shown)).status_code == 401
    async with database.transaction() as conn:
        await conn.execute("update operator_token set expires_at = now()")
    assert (await operator.get(f"{ADMIN}/audit")).status_code == 401


async def test_a_token_lives_ninety_days_at_most_and_follows_the_master_key(
    database: Database, settings: Settings
) -> None:
    old, new = secret_key(settings), MasterKey(b"the next master key of 32 bytes or more")
    async with database.transaction() as conn:
        with pytest.raises(BadInput, match="90 days"):
            await operator_tokens.create(conn, old, "ann", Role.OPERATOR, timedelta(days=91), "test")
        _, made = await operator_tokens.create(conn, old, "ann", Role.OPERATOR, timedelta(days=90), "test")
        assert await operator_tokens.authenticate(conn, new, made) is None
        new.others = (bytes(old),)
        assert await operator_tokens.of_other_masters(conn, new) == 1
        assert await operator_tokens.authenticate(conn, new, made) is not None
        assert await operator_tokens.of_other_masters(conn, new) == 0


async def test_the_port_of_operators_serves_their_routes_and_the_other_port_does_not(
    settings: Settings, database: Database, key: str
) -> None:
    apart = settings.model_copy(update={"admin_port": 8799})
    app = api.create_app(apart)
    by = {port: f"Bearer {shown}" for port, shown in ((8799, await token(settings, database)), (8700, key))}
    async with api.running(app, apart):
        found = {}
        for port in (8700, 8799):
            transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url=f"http://api:{port}") as client:
                for path in (f"{ADMIN}/accounts", "/operator/batches", BATCHES, "/v1/models", "/health"):
                    headers = {"authorization": by[8799 if "admin" in path or "operator" in path else 8700]}
                    found[port, path] = (await client.get(path, headers=headers)).status_code
                    # What a caller says of itself does not open the other port.
                    lied = await client.get(path, headers=headers | {"host": f"api:{15499 + 2000 - port}"})
                    assert lied.status_code == found[port, path]
    assert {path for (port, path), status in found.items() if port == 8799 and status == 200} == {
        *(f"{ADMIN}/accounts", "/operator/batches", "/health")
    }
    assert {path for (port, path), status in found.items() if port == 8700 and status == 200} == {
        *(BATCHES, "/v1/models", "/health")
    }


async def test_somebody_whom_the_identity_provider_names_an_operator_uses_the_admin_routes(
    settings: Settings, database: Database
) -> None:
    rules = "groups=platform -> operator; groups=look -> auditor; groups=acme -> admin:acme"
    given = {"oidc_issuer": ISSUER, "oidc_client_id": CLIENT, "oidc_audience": "sw-admin", "oidc_rules": rules}
    provider = FakeIdentityProvider()
    async with in_process.running(settings.model_copy(update=given), "none") as (app, client):
        app.state.parts.oidc.client = provider.client

        def shown(**claims: Any) -> dict[str, str]:
            return {"authorization": f"Bearer {provider.token(**{'aud': 'sw-admin'} | claims)}"}

        async def create(name: str, **claims: Any) -> int:
            answer = await client.post(f"{ADMIN}/accounts", json={"account": name}, headers=shown(**claims))
            return answer.status_code

        async def look(group: str) -> int:
            return (await client.get(f"{ADMIN}/accounts", headers=shown(groups=[group]))).status_code

        assert await create("one", groups=["platform"]) == 200
        assert await create("two", groups=["look"]) == 403
        assert await create("three", groups=["acme"]) == 403
        assert await create("four", groups=["nobody"]) == 401
        assert [await look(group) for group in ("platform", "look", "acme", "nobody")] == [200, 200, 403, 401]
        assert await create("five", groups=["platform"], aud=CLIENT) == 401
    async with database.durable() as conn:
        found = await (
            await conn.execute("select body::json->>'who', account from audit where act = 'account.create'")
        ).fetchall()
    assert found == [("ann (u-1)", "one")]
