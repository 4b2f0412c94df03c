"""Claims about sign-in with an identity provider, which here is a fake one that signs real tokens."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
from joserfc.jwk import OctKey, RSAKey
from pydantic import SecretStr
from starlette.applications import Starlette

from app import clock
from app.access import oidc, oidc_rules
from app.access.oidc import OidcError, Provider
from app.access.roles import Role
from app.audit import log
from app.audit.acts import Act
from app.console import app as console
from app.crypto import secret_key
from app.db.pool import Database
from app.settings import Settings
from app.tenants import service as tenants
from testing.fakes.identity_provider import CLIENT, ISSUER, SECRET, FakeIdentityProvider
from tests.console.conftest import ORIGIN, SAME

START, BACK = "/console/login/oidc", f"{ORIGIN}/console/login/oidc/callback"
RULES = "groups=platform -> operator; groups=acme-ml -> admin:acme; roles.names=look -> auditor; email=eve@x.example -> operator"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    changes: dict[str, Any] = {
        "oidc_issuer": ISSUER,
        "oidc_client_id": CLIENT,
        "oidc_rules": RULES,
        "console_port": 8701,
    }
    secret = {"oidc_client_secret": SecretStr(SECRET), "oidc_audience": "slackwater-admin"}
    return settings.model_copy(update=changes | secret)


@pytest.fixture
def provider() -> FakeIdentityProvider:
    return FakeIdentityProvider()


@pytest.fixture
async def site(settings: Settings, provider: FakeIdentityProvider) -> AsyncIterator[Starlette]:
    app = console.create_app(settings)
    async with console.running(app, settings):
        app.state.parts.oidc.client = provider.client
        yield app


@pytest.fixture
async def browser(site: Starlette) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=site, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url=ORIGIN, headers=SAME) as client:
        yield client


async def signed_in(browser: httpx.AsyncClient, provider: FakeIdentityProvider, **claims: Any) -> httpx.Response:
    provider.claims |= claims
    begun = await browser.get(START)
    assert begun.status_code == 303
    return await browser.get(provider.sign_in(begun.headers["location"]))


async def test_somebody_with_a_role_signs_in_and_it_is_recorded(
    browser: httpx.AsyncClient, provider: FakeIdentityProvider, database: Database
) -> None:
    assert "Sign in with your organisation" in (await browser.get("/console/login")).text
    answer = await signed_in(browser, provider, groups=["other", "platform"])
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/now")
    assert (await browser.get("/console/now")).status_code == 200
    async with database.durable() as conn:
        [row] = await (
            await conn.execute("select body::json->>'who', body::json->>'role', act, body::json->'after' from audit")
        ).fetchall()
    assert row == ("ann (u-1)", "operator", "session.start", {"by": "oidc"})


async def test_a_role_of_an_account_opens_that_account(
    browser: httpx.AsyncClient, provider: FakeIdentityProvider, database: Database
) -> None:
    refused = await signed_in(browser, provider, groups=["acme-ml"])
    assert refused.status_code == 403
    assert "no account acme" in refused.text
    async with database.transaction() as conn:
        tenant_id = await tenants.ensure_tenant(conn, "acme")
    assert (await signed_in(browser, provider)).status_code == 303
    async with database.durable() as conn:
        found = await (await conn.execute("select role, tenant_id from console_session")).fetchall()
    assert found == [("admin", tenant_id)]


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"groups": []},
        {"groups": ["Platform"]},
        {"groups": "platform-2"},
        {"groups": {"platform": True}},
        {"email": "eve@x.example"},
        {"email": "eve@x.example", "email_verified": "true"},
        {"roles": "look"},
    ],
)
async def test_nobody_enters_whom_no_rule_names(
    browser: httpx.AsyncClient, provider: FakeIdentityProvider, claims: dict[str, Any]
) -> None:
    answer = await signed_in(browser, provider, **claims)
    assert answer.status_code == 403
    assert "no rule gives you a role" in answer.text
    assert (await browser.get("/console/now")).status_code == 303


async def test_a_refused_sign_in_is_recorded_with_who_it_was_if_the_provider_knows_them(
    browser: httpx.AsyncClient, provider: FakeIdentityProvider, site: Starlette, database: Database
) -> None:
    assert (await signed_in(browser, provider)).status_code == 403
    assert (await browser.get(f"{BACK}?state=guessed&code=x")).status_code == 403
    await site.state.parts.admission.audit.store()
    async with database.relaxed() as conn:
        found = await log.latest(conn)
    assert {(each.act, each.target, len(each.correlation)) for each in found} == {
        (Act.SESSION_REFUSED, "identity provider", 1)
    }
    outcomes = {each.who: each.outcome for each in found}
    assert outcomes.keys() == {"ann (u-1)", "unknown caller"}
    assert "no rule gives you a role" in outcomes["ann (u-1)"]
    assert "not begun in this browser" in outcomes["unknown caller"]


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "another-client"},
        {"aud": [CLIENT, "other"], "azp": "other"},
        {"iss": "https://elsewhere.example"},
        {"exp": int(time.time()) - 120},
        {"nonce": "of another sign-in"},
        {"nonce": None},
    ],
)
async def test_a_token_that_is_not_for_this_sign_in_is_refused(
    browser: httpx.AsyncClient, provider: FakeIdentityProvider, claims: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    make = provider.token
    monkeypatch.setattr(provider, "token", lambda **own: make(**{**own, **claims}))
    answer = await signed_in(browser, provider, groups=["platform"])
    assert answer.status_code == 403
    assert (await browser.get("/console/now")).status_code == 303


@pytest.mark.parametrize(
    ("algorithm", "key"),
    [("RS256", RSAKey.generate_key(2048, auto_kid=True)), ("HS256", OctKey.generate_key(256, auto_kid=True))],
)
async def test_a_token_that_the_provider_did_not_sign_is_refused(
    browser: httpx.AsyncClient, provider: FakeIdentityProvider, algorithm: str, key: Any
) -> None:
    provider.algorithm, provider.key = algorithm, key
    assert (await signed_in(browser, provider, groups=["platform"])).status_code == 403


async def test_another_browser_cannot_end_a_sign_in(
    browser: httpx.AsyncClient, provider: FakeIdentityProvider, site: Starlette
) -> None:
    provider.claims |= {"groups": ["platform"]}
    place = provider.sign_in((await browser.get(START)).headers["location"])
    transport = httpx.ASGITransport(app=site, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url=ORIGIN, headers=SAME) as victim:
        assert (await victim.get(place)).status_code == 403
        await victim.get(START)
        assert (await victim.get(place)).status_code == 403
        assert (await victim.get("/console/now")).status_code == 303


async def test_a_sign_in_ends_once_and_within_its_time(
    browser: httpx.AsyncClient, provider: FakeIdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.claims |= {"groups": ["platform"]}
    begun = await browser.get(START)
    cookie, place = begun.cookies["sw-oidc"], provider.sign_in(begun.headers["location"])
    assert (await browser.get(place)).status_code == 303
    again = await browser.get(place, headers={"cookie": f"sw-oidc={cookie}"})
    assert again.status_code == 403
    begun = await browser.get(START)
    monkeypatch.setattr(oidc, "ATTEMPT_SECONDS", -1.0)
    late = await browser.get(provider.sign_in(begun.headers["location"]))
    assert "took too long" in late.text


async def test_the_providers_new_key_is_found(
    settings: Settings, provider: FakeIdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = Provider(settings, secret_key(settings), provider.client)
    aud = {"aud": "slackwater-admin", "groups": ["platform"]}
    assert (await ours.bearer(provider.token(**aud))).rule.role is Role.OPERATOR
    provider.key = provider.own = RSAKey.generate_key(2048, auto_kid=True)
    with pytest.raises(OidcError):
        await ours.bearer(provider.token(**aud))
    monkeypatch.setattr(oidc, "_KEYS_SECONDS", 1e-9)
    assert (await ours.bearer(provider.token(**aud))).subject == "ann (u-1)"
    with pytest.raises(OidcError):
        await ours.bearer(provider.token(groups=["platform"]))  # its audience is the console


async def test_a_key_that_the_provider_has_withdrawn_is_believed_for_an_hour_at_most(
    settings: Settings, provider: FakeIdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = Provider(settings, secret_key(settings), provider.client)
    token = provider.token(aud="slackwater-admin", groups=["platform"])
    assert (await ours.bearer(token)).rule.role is Role.OPERATOR
    provider.key = provider.own = RSAKey.generate_key(2048, auto_kid=True)
    monkeypatch.setattr(oidc, "_METADATA_SECONDS", -1.0)  # the hour is over
    with pytest.raises(OidcError):
        await ours.bearer(token)


async def test_a_state_of_any_characters_is_refused(browser: httpx.AsyncClient) -> None:
    await browser.get(START)
    assert (await browser.get(BACK, params={"state": "é", "code": "x"})).status_code == 403


def test_a_provider_that_could_be_overheard_or_lets_nobody_in_is_refused_at_the_start(settings: Settings) -> None:
    assert oidc.problem(settings) is None
    for change, reason in (
        ({"oidc_issuer": "http://identity.example"}, "https"),
        ({"oidc_rules": ""}, "empty"),
        ({"oidc_rules": "groups=a -> owner"}, "no role owner"),
        ({"oidc_rules": "groups=a -> admin"}, "admin:ACCOUNT"),
        ({"oidc_rules": "groups=a -> operator:acme"}, "whole installation"),
        ({"oidc_rules": "operator"}, "is no rule"),
        ({"oidc_client_id": ""}, "CLIENT_ID"),
        ({"oidc_audience": CLIENT}, "AUDIENCE is the client's id"),
    ):
        assert reason in (oidc.problem(settings.model_copy(update=change)) or "")


def test_the_first_rule_that_matches_holds() -> None:
    rules = oidc_rules.parse(RULES)
    both = oidc_rules.decide(rules, {"groups": ["acme-ml", "platform"]})
    assert both is not None
    assert both.role is Role.OPERATOR
    nested = oidc_rules.decide(rules, {"roles": {"names": ["look"]}})
    assert nested is not None
    assert nested.role is Role.AUDITOR


async def test_with_a_maximum_age_only_somebody_enters_who_authenticated_within_it(
    settings: Settings, provider: FakeIdentityProvider
) -> None:
    key = secret_key(settings)
    limited = Provider(settings.model_copy(update={"oidc_max_age_minutes": 10}), key, provider.client)
    unlimited = Provider(settings, key, provider.client)

    async def enters(by: Provider, **claims: Any) -> str:
        provider.claims = {"sub": "u-1", "groups": ["platform"], **claims}
        url, cookie = await by.begin(BACK)
        asked = dict(parse_qsl(urlsplit(url).query))
        assert asked.get("max_age") == ("600" if by is limited else None)
        answer = dict(parse_qsl(urlsplit(provider.sign_in(url)).query))
        try:
            return (await by.end(cookie, answer, BACK)).subject
        except OidcError as error:
            return str(error)

    now = int(time.time())
    assert await enters(limited, auth_time=now - 300) == "u-1"
    assert "too long ago" in await enters(limited, auth_time=now - 700)
    for missing in ({}, {"auth_time": None}, {"auth_time": str(now)}, {"auth_time": True}):
        assert "auth_time" in await enters(limited, **missing)
    assert await enters(unlimited, auth_time=now - 86_400) == "u-1"
    assert await enters(unlimited) == "u-1"


async def test_a_provider_that_is_away_is_asked_once_in_ten_seconds(
    settings: Settings, provider: FakeIdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = Provider(settings, secret_key(settings), provider.client)
    provider.away = True
    refusals = await asyncio.gather(*(asking.begin(BACK) for _ in range(20)), return_exceptions=True)
    assert {type(each) for each in refusals} == {OidcError}
    assert provider.asked == 1
    provider.away = False
    with pytest.raises(OidcError):
        await asking.begin(BACK)
    monkeypatch.setattr(clock, "monotonic", lambda: time.monotonic() + 11)
    await asking.begin(BACK)
    assert provider.asked == 2
