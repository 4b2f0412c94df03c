"""Claims about making keys and webhooks in the console: once shown, for the own account only, by the rules of the API."""

import re
from urllib.parse import urlencode

import httpx
import pytest
from starlette.applications import Starlette

from app import crypto
from app.access.roles import Role
from app.audit import log
from app.audit.acts import Act
from app.console import forms
from app.db.pool import Database
from app.tenants import service as tenants
from app.tenants.key_scope import KeyRole
from app.webhooks import endpoints
from tests.console.conftest import SignIn

KEY = {"name": "ward 3", "role": "submitter", "expires": "90d"}
HOOK = {"url": "https://93.184.215.14/hook?token=of-theirs", "format": "standard"}
FORMS = {"/console/keys/new": KEY, "/console/webhooks/new": HOOK}


def hidden(page: str, pattern: str) -> str:
    """The secret on a page: shown, and in its button for copying."""
    assert page.count("It is shown only here, and only now.") == 1
    [secret] = set(re.findall(pattern, page))
    return str(secret)


async def test_a_key_is_shown_once_and_opens_the_account_of_who_made_it(
    site: Starlette, sign_in: SignIn, database: Database
) -> None:
    admin = await sign_in(Role.ADMIN, "acme")
    form = KEY | {"networks": "10.1.0.0/16", "requests": "60", "workflow": "billing"}
    answer = await admin.post("/console/keys/new", data=form)
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    secret = hidden(answer.text, r"sk_sw_[\w.-]+")
    async with database.durable() as conn:
        tenant = await tenants.authenticate(conn, crypto.secret_key(site.state.parts.settings), secret)
        [key] = await tenants.list_keys(conn, "acme")
        [row] = [each for each in await log.latest(conn) if each.act == Act.KEY_CREATE]
    assert tenant is not None
    assert (tenant.account_id, tenant.scope.role, tenant.limits.requests) == ("acme", KeyRole.SUBMITTER, 60)
    assert (key.name, key.created_by, dict(key.pins)) == ("ward 3", "ada", {"workflow": "billing"})
    assert (row.who, row.role, row.account) == ("ada", "admin", "acme")
    assert secret not in str(row)
    listed = (await admin.get("/console/keys")).text
    assert secret not in listed
    assert "ward 3" in listed
    assert "One key is live" in listed
    assert "unused for 30 days." in listed  # it is new, not forgotten
    assert "No key is like this" in (await admin.get("/console/keys?view=unused")).text


async def test_a_webhook_is_made_by_the_rules_of_the_api_and_its_secret_is_shown_once(
    sign_in: SignIn, database: Database
) -> None:
    admin = await sign_in(Role.ADMIN, "acme")
    body = urlencode([*HOOK.items(), ("event", "batch.failed"), ("event", "batch.expired")])
    kind = {"content-type": "application/x-www-form-urlencoded"}
    answer = await admin.post("/console/webhooks/new", content=body, headers=kind)
    secret = hidden(answer.text, r"whsec_[\w+/=]+")
    async with database.relaxed() as conn:
        tenant_id = await tenants.find_tenant(conn, "acme")
        [made], _ = await endpoints.listing(conn, tenant_id)
        [row] = [each for each in await log.latest(conn) if each.act == Act.WEBHOOK_CREATE]
    assert (made.name, made.state, made.format) == ("93.184.215.14", "pending", "standard")
    assert made.kinds == ["batch.failed", "batch.expired"]
    assert (row.who, row.account) == ("ada", "acme")
    page = (await admin.get(f"/console/webhooks/{made.endpoint_id.hex}")).text
    assert secret not in page
    assert "of-theirs" not in page + str(row)
    assert (await admin.post(f"/console/webhooks/{made.endpoint_id.hex}/delete")).status_code == 303
    assert (await admin.get(f"/console/webhooks/{made.endpoint_id.hex}")).status_code == 404


async def test_without_a_choice_a_webhook_gets_the_usual_events(sign_in: SignIn, database: Database) -> None:
    await (await sign_in(Role.ADMIN, "acme")).post("/console/webhooks/new", data=HOOK | {"name": "mine"})
    async with database.relaxed() as conn:
        [made], _ = await endpoints.listing(conn, await tenants.find_tenant(conn, "acme"))
    assert made.name == "mine"
    assert {"batch.succeeded", "batch.failed"} <= {*made.kinds}
    assert not {kind for kind in made.kinds if kind.startswith("item.")}


@pytest.mark.parametrize(
    ("path", "change", "words"),
    [
        ("/console/keys/new", {"name": " "}, "name: must be 1 to 100 printable characters"),
        ("/console/keys/new", {"name": "x" * 101}, "name: must be 1 to 100 printable characters"),
        ("/console/keys/new", {"role": "root"}, "role: must be one of"),
        ("/console/keys/new", {"models": "gpt-9"}, "models: no such model"),
        ("/console/keys/new", {"networks": "here"}, "networks: "),
        ("/console/keys/new", {"expires": "soon"}, "expires: "),
        ("/console/keys/new", {"requests": "-1"}, "requests: must be a whole number"),
        ("/console/keys/new", {"requests": "0"}, "requests: must be 1 to"),
        ("/console/keys/new", {"workflow": "a b<c"}, "workflow: "),
        ("/console/webhooks/new", {"url": "ftp://example.com/"}, "the scheme is ftp"),
        ("/console/webhooks/new", {"url": "https://10.1.2.3/"}, "the address is a private or special one"),
        ("/console/webhooks/new", {"url": ""}, "url: must be 1 to 2048 characters"),
        ("/console/webhooks/new", {"format": "xml"}, "destination.format: must be one of"),
        ("/console/webhooks/new", {"event": "batch.done"}, "events[0]: must be one of"),
        ("/console/webhooks/new", {"model": "gpt-9"}, "model: no such model"),
        ("/console/webhooks/new", {"rate": "many"}, "rate: must be a number"),
        ("/console/webhooks/new", {"rate": "nan"}, "destination.max_per_second: must be"),
    ],
)
async def test_what_cannot_be_made_is_told_beside_the_form_with_what_was_filled_in(
    sign_in: SignIn, database: Database, path: str, change: dict[str, str], words: str
) -> None:
    admin = await sign_in(Role.ADMIN, "acme")
    answer = await admin.post(path, data=FORMS[path] | {"name": "kept <b>"} | change)
    assert (answer.status_code, 'role="alert"' in answer.text) == (400, True), answer.text[-500:]
    assert words in answer.text
    assert ("kept &lt;b&gt;" in answer.text) or "name" in change
    async with database.relaxed() as conn:
        assert await tenants.list_keys(conn, "acme") == []
        assert (await endpoints.listing(conn, await tenants.find_tenant(conn, "acme")))[1] == 0


@pytest.mark.parametrize("path", FORMS)
async def test_only_an_admin_makes_what_has_a_secret_and_only_for_the_own_account(
    sign_in: SignIn, database: Database, path: str
) -> None:
    admin = await sign_in(Role.ADMIN, "acme")
    for role in (Role.VIEWER, Role.OPERATOR, Role.AUDITOR):
        client = await sign_in(role, "acme", str(role))
        assert (await client.get(path)).status_code == 403
        assert (await client.post(path, data=FORMS[path])).status_code == 403
        assert path not in (await client.get(path.removesuffix("/new"))).text
    theirs = FORMS[path] | {"account": "globex", "tenant_id": "2", "tenant": "globex"}
    assert (await admin.post(path, data=theirs)).status_code == 200
    other = await sign_in(Role.ADMIN, "globex", "eve")
    for page in ("/console/keys?view=all", "/console/webhooks"):
        text = (await other.get(page)).text
        assert "ward 3" not in text
        assert "93.184.215.14" not in text
    async with database.relaxed() as conn:
        assert await tenants.list_keys(conn, "globex") == []


async def test_a_webhook_of_another_account_is_deleted_by_nobody(sign_in: SignIn, database: Database) -> None:
    await (await sign_in(Role.ADMIN, "acme")).post("/console/webhooks/new", data=HOOK)
    async with database.relaxed() as conn:
        tenant_id = await tenants.find_tenant(conn, "acme")
        [made], _ = await endpoints.listing(conn, tenant_id)
    path = f"/console/webhooks/{made.endpoint_id.hex}/delete"
    assert (await (await sign_in(Role.ADMIN, "globex", "eve")).post(path)).status_code == 404
    assert (await (await sign_in(Role.VIEWER, "acme", "vic")).post(path)).status_code == 403
    async with database.relaxed() as conn:
        assert (await endpoints.listing(conn, tenant_id))[1] == 1


@pytest.mark.parametrize(
    "headers", [{"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}, {"origin": "http://evil.example"}]
)
@pytest.mark.parametrize("path", FORMS)
async def test_a_form_of_another_site_makes_nothing(
    sign_in: SignIn, database: Database, path: str, headers: dict[str, str]
) -> None:
    admin = await sign_in(Role.ADMIN, "acme")
    if "origin" in headers:
        del admin.headers["sec-fetch-site"]
    answer = await admin.post(path, data=FORMS[path], headers=headers)
    assert answer.status_code == 403
    assert "does not come from a page of the console" in answer.text
    async with database.relaxed() as conn:
        assert await tenants.list_keys(conn, "acme") == []
        assert (await endpoints.listing(conn, await tenants.find_tenant(conn, "acme")))[1] == 0


async def test_a_form_is_bounded(sign_in: SignIn) -> None:
    admin: httpx.AsyncClient = await sign_in(Role.ADMIN, "acme")
    answer = await admin.post("/console/keys/new", data=KEY | {"name": "x" * forms.MOST_BYTES})
    assert answer.status_code == 413
