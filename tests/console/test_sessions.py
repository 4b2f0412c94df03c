"""Claims about sign-in: links work once, sessions end, and only our own pages may act."""

import re

import httpx
import pytest

from app.access import sessions
from app.access.roles import Grant, Role
from app.cli.console import login
from app.console import csp
from app.db.pool import Database
from app.settings import Settings
from app.user_errors import Failure
from tests.console.conftest import SignIn


async def invited(database: Database, role: Role = Role.OPERATOR) -> str:
    async with database.transaction() as conn:
        return await sessions.invite(conn, Grant("ada", role))


async def test_without_a_session_every_page_leads_to_the_sign_in(stranger: httpx.AsyncClient) -> None:
    answer = await stranger.get("/console/now")
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/console/login")
    assert "slackwater console login" in (await stranger.get("/console/login")).text


async def test_a_link_signs_in_once_and_reading_it_does_not_use_it_up(
    stranger: httpx.AsyncClient, database: Database
) -> None:
    token = await invited(database)
    for _ in range(2):
        assert "Sign in as ada" in (await stranger.get(f"/console/login?token={token}")).text
    assert (await stranger.post("/console/login", data={"token": token})).status_code == 303
    assert (await stranger.get("/console/now")).status_code == 200
    again = await stranger.post("/console/login", data={"token": token})
    assert again.status_code == 403
    assert "no longer valid" in again.text


async def test_a_link_is_refused_after_its_five_minutes(stranger: httpx.AsyncClient, database: Database) -> None:
    token = await invited(database)
    async with database.durable() as conn:
        await conn.execute("update console_login set expires_at = now() - interval '1 second'")
    assert (await stranger.post("/console/login", data={"token": token})).status_code == 403


async def test_tokens_are_stored_as_hashes_only(database: Database) -> None:
    token = await invited(database)
    async with database.durable() as conn:
        [row] = await (await conn.execute("select hash from console_login")).fetchall()
    assert len(row[0]) == 32
    assert token.encode() not in row[0]


@pytest.mark.parametrize(
    "ends",
    [
        "update console_session set seen_at = now() - interval '31 minutes'",
        "update console_session set expires_at = now()",
        "update console_session set revoked_at = now()",
    ],
)
async def test_a_session_that_is_idle_too_old_or_revoked_opens_nothing(
    sign_in: SignIn, database: Database, ends: str
) -> None:
    client = await sign_in(Role.VIEWER)
    assert (await client.get("/console/now")).status_code == 200
    async with database.durable() as conn:
        await conn.execute(ends.encode())
    assert (await client.get("/console/now")).status_code == 303
    assert (await client.get("/console/stream?page=now", headers={"accept": "text/event-stream"})).status_code == 401


async def test_use_moves_the_end_of_the_idle_time(sign_in: SignIn, database: Database) -> None:
    client = await sign_in(Role.VIEWER)
    async with database.durable() as conn:
        await conn.execute("update console_session set seen_at = now() - interval '20 minutes'")
        await client.get("/console/now")
        [(idle,)] = await (
            await conn.execute("select extract(epoch from now() - seen_at)::float8 from console_session")
        ).fetchall()
    assert idle < 60


async def test_signing_out_ends_the_session_on_the_server(sign_in: SignIn) -> None:
    client = await sign_in(Role.VIEWER)
    cookie = client.cookies["sw"]
    assert (await client.post("/console/logout")).status_code == 303
    client.cookies.set("sw", cookie)
    assert (await client.get("/console/now")).status_code == 303


@pytest.mark.parametrize("headers", [{"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}, {}])
async def test_what_another_page_sends_changes_nothing(sign_in: SignIn, headers: dict[str, str]) -> None:
    client = await sign_in(Role.ADMIN)
    client.headers.pop("sec-fetch-site")
    assert (await client.post("/console/logout", headers=headers)).status_code == 403
    assert (await client.get("/console/now")).status_code == 200


async def test_an_old_browser_proves_the_page_by_its_origin(sign_in: SignIn) -> None:
    client = await sign_in(Role.ADMIN)
    client.headers.pop("sec-fetch-site")
    assert (await client.post("/console/logout", headers={"origin": "http://evil.example"})).status_code == 403
    assert (await client.post("/console/logout", headers={"origin": "http://127.0.0.1:8701"})).status_code == 303


async def test_the_cookie_is_strict_by_https_and_readable_by_no_script(settings: Settings, database: Database) -> None:
    from app.console import app as console

    https = settings.model_copy(update={"console_url": "https://console.example"})
    app = console.create_app(https)
    transport = httpx.ASGITransport(app=app)
    base = {"base_url": "https://console.example", "headers": {"sec-fetch-site": "same-origin"}}
    async with console.running(app, https), httpx.AsyncClient(transport=transport, **base) as client:
        answer = await client.post("/console/login", data={"token": await invited(database)})
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-sw=")
        assert {"HttpOnly", "Secure", "SameSite=lax", "Path=/"} <= set(cookie.split("; "))
        assert (await client.get("/console/now")).status_code == 200


async def test_every_answer_has_a_policy_with_a_nonce_of_its_own(sign_in: SignIn) -> None:
    client = await sign_in(Role.VIEWER)
    first, second = await client.get("/console/now"), await client.get("/console/now")
    policies = [answer.headers["content-security-policy"] for answer in (first, second)]
    assert policies[0] != policies[1]
    assert "unsafe" not in policies[0]
    assert "default-src 'none'" in policies[0]
    nonce = policies[0].split("'nonce-")[1].split("'")[0]
    assert first.text.count(f'nonce="{nonce}"') >= 5
    assert first.headers["cache-control"] == "no-store"


async def test_sessions_are_listed_and_revoked_within_the_own_account(sign_in: SignIn, database: Database) -> None:
    ada, eve = await sign_in(Role.ADMIN, "acme", "ada"), await sign_in(Role.VIEWER, "globex", "eve")
    async with database.durable() as conn:
        of_eve = next(each for each in await sessions.listing(conn) if each.subject == "eve")
    assert "eve" not in (await ada.get("/console/access")).text
    assert (await ada.post(f"/console/access/{of_eve.session_id}/revoke")).status_code == 404
    assert (await eve.get("/console/now")).status_code == 200
    chief = await sign_in(Role.OPERATOR, None, "chief")
    assert "eve" in (await chief.get("/console/access")).text
    assert (await chief.post(f"/console/access/{of_eve.session_id}/revoke")).status_code == 303
    assert (await eve.get("/console/now")).status_code == 303


async def test_sessions_are_read_page_by_page(sign_in: SignIn, database: Database) -> None:
    chief = await sign_in(Role.OPERATOR, None, "chief")
    async with database.durable() as conn:
        await conn.execute(
            "insert into console_session (hash, subject, role, expires_at)"
            " select sha256(n::text::bytea), 'x' || n, 'auditor', now() + interval '1 hour' from generate_series(1, 120) n"
        )
        assert len(await sessions.listing(conn)) == 121
    found, path = list[str](), "/console/access"
    while path:
        page = (await chief.get(path)).text
        found += re.findall(r'id="session-(\d+)"', page)
        older = re.search(r'href="([^"]+)" rel="next"', page)
        path = older[1] if older else ""
    assert (len(found), len(set(found))) == (121, 121)
    assert (await chief.get("/console/access", params={"before": "x"})).status_code == 400


async def test_the_audit_log_is_only_added_to(sign_in: SignIn, database: Database) -> None:
    import psycopg

    await sign_in(Role.ADMIN)
    async with database.durable() as conn:
        for change in (
            "update audit set body = 'eve'",
            "delete from audit",
            "truncate audit",
        ):
            with pytest.raises(psycopg.errors.RaiseException, match="only added to"):
                await conn.execute(change.encode())


def test_a_role_and_its_scope_have_to_fit() -> None:
    with pytest.raises(Failure, match="one account"):
        login(account=None, role=Role.VIEWER, name="ada")
    with pytest.raises(Failure, match="whole installation"):
        login(account="acme", role=Role.OPERATOR, name="ada")


@pytest.mark.parametrize(
    ("site", "origin", "passes"),
    [
        ("same-origin", None, True),
        ("none", None, False),
        ("same-site", "http://a", False),
        (None, "http://a", True),
        (None, "http://b", False),
        (None, None, False),
    ],
)
def test_only_a_page_of_ours_passes(site: str | None, origin: str | None, passes: bool) -> None:
    assert csp.same_origin(site, origin, "http://a") is passes
