"""Claims about errors: each is a page with a way on and the id that the log has, whoever asks and whatever has failed."""

from typing import Any

import pytest
from psycopg_pool import PoolTimeout
from starlette.applications import Starlette
from structlog.testing import capture_logs

from app.access.roles import Role
from app.api_url import known_url
from app.console import looks
from app.console.error_pages import REQUEST_ID
from app.console.pages import PAGES
from app.settings import Settings
from tests.console.conftest import SAME, SignIn

ADDRESSES = {page.name: page.path for page in PAGES if "{" not in page.path}


def _failing(monkeypatch: pytest.MonkeyPatch, error: Exception, *, badges: bool = True) -> None:
    """No page can be looked at; `badges`: the numbers of the rail neither."""
    seen = looks.Looks.at

    async def at(self: Any, key: Any, *given: Any) -> Any:
        if key[0] != "badges" or badges:
            raise error
        return await seen(self, key, *given)

    monkeypatch.setattr(looks.Looks, "at", at)


async def test_a_page_that_fails_keeps_the_rail_and_names_the_request_of_the_log(
    sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await sign_in(Role.OPERATOR)
    _failing(monkeypatch, KeyError("Database"), badges=False)
    for address in ADDRESSES.values():
        with capture_logs() as logged:
            answer = await client.get(address)
        assert answer.status_code == 500, address
        assert "This page has failed" in answer.text
        assert 'class="rail"' in answer.text
        name = answer.headers[REQUEST_ID]
        assert f"<code>{name}</code>" in answer.text
        assert "content-security-policy" in answer.headers
        [line] = [each for each in logged if each["event"] == "request.failed"]
        assert (line["request_id"], line["path"]) == (name, address)


async def test_a_fault_of_the_rail_itself_is_a_page_too(sign_in: SignIn, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await sign_in(Role.VIEWER)
    _failing(monkeypatch, KeyError("Parts"))
    answer = await client.get("/console/incidents?range=6h")
    assert answer.status_code == 500
    assert "This page has failed" in answer.text
    assert 'class="rail"' not in answer.text
    assert 'href="/console/incidents?range=6h"' in answer.text


async def test_a_database_that_is_away_is_a_page_that_says_when_to_try_again(
    sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await sign_in(Role.VIEWER)
    _failing(monkeypatch, PoolTimeout("no connection"))
    answer = await client.get("/console/batches")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert "The database does not answer" in answer.text
    assert answer.headers[REQUEST_ID] in answer.text


async def test_an_act_that_fails_is_not_said_to_be_undone(
    site: Starlette, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await sign_in(Role.ADMIN)

    async def broken(*given: Any, **named: Any) -> None:
        raise RuntimeError("half way")

    monkeypatch.setattr("app.console.pages.keys.key_list.key", broken)
    answer = await client.post("/console/keys/k0000000/revoke")
    assert answer.status_code == 500
    assert "It is not known whether" in answer.text


async def test_what_a_script_asked_for_gets_words_instead_of_a_page(sign_in: SignIn) -> None:
    client = await sign_in(Role.VIEWER)
    answer = await client.get("/console/nowhere", headers=SAME | {"sec-fetch-dest": "empty"})
    assert (answer.status_code, answer.text) == (404, "There is nothing here, or it is not yours to see.\n")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/chat/completions"),
        ("GET", "/v1/models"),
        ("GET", "/client/v4/accounts/a/ai/queue"),
        ("GET", "/consoles"),
    ],
)
async def test_a_client_of_the_api_learns_where_the_api_is(
    sign_in: SignIn, settings: Settings, method: str, path: str
) -> None:
    client = await sign_in(Role.VIEWER)
    client.cookies.clear()
    answer = await client.request(method, path, headers={"authorization": "Bearer sk-1"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_url")
    assert f"its API is at {known_url(settings)}/v1." in answer.json()["error"]["message"]


async def test_a_stranger_gets_a_page_too(site: Starlette, sign_in: SignIn) -> None:
    client = await sign_in(Role.VIEWER)
    client.cookies.clear()
    for answer in (
        await client.get("/console/login/nothing"),
        await client.post("/console/logout", headers={"sec-fetch-site": "cross-site"}),
    ):
        assert answer.status_code in (403, 404)
        assert "<h1>" in answer.text
        assert answer.headers[REQUEST_ID] in answer.text
