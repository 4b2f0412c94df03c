"""Claims about several batches at once, saved views, the keys and the first lines of a file, on a real database."""

import asyncio
import re
from collections.abc import AsyncIterator

import orjson
import pytest
from starlette.applications import Starlette

from app.access.roles import Role
from app.audit import log as audit
from app.console import nav, saved_views
from app.console.saved_views import SavedView
from app.db.pool import Database
from app.errors import BadInput
from app.queue.ingest import NewBatch
from app.tenants import service as tenants
from testing.waiting import eventually
from tests.console.conftest import SignIn
from tests.queue import support

SELECTED = "/console/batches/selected"


@pytest.fixture
async def made(database: Database) -> list[NewBatch]:
    """Three batches of the account `acme`, and one of `globex`."""
    async with database.transaction() as conn:
        tenant = await tenants.ensure_tenant(conn, "acme")
        other = await tenants.ensure_tenant(conn, "globex")
        pool = await support.make_pool(conn, "smollm2-135m-instruct")
    return [await support.submit(database, owner, pool, 16) for owner in (tenant, tenant, tenant, other)]


async def states(database: Database) -> list[str]:
    async with database.durable() as conn:
        rows = await (await conn.execute("select state from batch order by batch_id")).fetchall()
    return [state for (state,) in rows]


def offered(page: str) -> list[str]:
    """The batches that a confirmation would change, as its form sends them."""
    return re.findall(r'name="id" value="([^"]+)"', page)


async def test_one_confirmation_names_the_selected_batches_and_each_leaves_its_own_record(
    made: list[NewBatch], sign_in: SignIn, database: Database
) -> None:
    client = await sign_in(Role.ADMIN)
    ids = [str(batch.request_id) for batch in made[:2]]
    page = (await client.get(SELECTED, params={"verb": "pause", "id": ids})).text
    assert "Pause 2 batches?" in page
    assert all(f"slackwater batch pause {each[:8]}" in page for each in ids)
    assert await states(database) == ["open"] * 4
    answer = await client.post(SELECTED, data={"verb": "pause", "id": offered(page)}, follow_redirects=True)
    assert "Paused: " in answer.text
    assert await states(database) == ["paused", "paused", "open", "open"]
    async with database.durable() as conn:
        found = await audit.latest(conn)
    assert sorted(each.target for each in found if each.act == "batch.pause") == sorted(ids)


async def test_what_cannot_change_is_left_alone_and_said(
    made: list[NewBatch], sign_in: SignIn, database: Database
) -> None:
    client = await sign_in(Role.ADMIN)
    first, second = (str(batch.request_id) for batch in made[:2])
    await client.post(f"/console/batches/{first}/cancel")
    page = (await client.get(SELECTED, params={"verb": "pause", "id": [first, second]})).text
    assert "Pause 1 batch?" in page
    assert "It is cancelled" in page
    assert " not done</td>" in page
    assert [each.partition(".")[0] for each in offered(page)] == [second]
    refused = await client.post(SELECTED, data={"verb": "pause", "id": [first, second]})
    assert refused.status_code == 409
    assert "1 batch did not change" in refused.text
    assert "1 batch did." in refused.text
    assert (await states(database))[:2] == ["cancelled", "paused"]


async def test_all_that_match_are_those_of_the_filter_and_the_account(
    made: list[NewBatch], sign_in: SignIn, database: Database
) -> None:
    client = await sign_in(Role.ADMIN)
    page = (await client.get(f"{SELECTED}?verb=cancel&all=1&view=open")).text
    assert "Cancel 3 batches?" in page
    assert str(made[3].request_id) not in page
    page = (await client.get(f"{SELECTED}?verb=cancel&all=1&q={made[0].request_id}")).text
    assert "Cancel 1 batch?" in page


@pytest.mark.parametrize("role", [Role.VIEWER, Role.AUDITOR])
async def test_who_may_not_act_selects_nothing(
    made: list[NewBatch], sign_in: SignIn, database: Database, role: Role
) -> None:
    client = await sign_in(role)
    assert 'id="bulk"' not in (await client.get("/console/batches")).text
    values = {"verb": "cancel", "id": str(made[0].request_id)}
    assert (await client.get(SELECTED, params=values)).status_code == 403
    assert (await client.post(SELECTED, data=values)).status_code == 403
    assert await states(database) == ["open"] * 4


async def test_a_selection_with_a_foreign_or_an_unknown_id_or_none_changes_nothing(
    made: list[NewBatch], sign_in: SignIn, database: Database
) -> None:
    client = await sign_in(Role.ADMIN)
    own, foreign = str(made[0].request_id), str(made[3].request_id)
    assert (await client.post(SELECTED, data={"verb": "cancel", "id": [own, foreign]})).status_code == 404
    assert (await client.post(SELECTED, data={"verb": "cancel", "id": [own, "x"]})).status_code == 404
    assert (await client.get(f"{SELECTED}?verb=explode&id={own}")).status_code == 404
    nothing = await client.get(f"{SELECTED}?verb=cancel")
    assert nothing.status_code == 400
    assert "tick at least one" in nothing.text
    assert await states(database) == ["open"] * 4


async def test_a_confirmation_leads_back_to_no_other_site(made: list[NewBatch], sign_in: SignIn) -> None:
    client = await sign_in(Role.ADMIN)
    values = {"verb": "pause", "id": str(made[0].request_id), "back": "//evil.example/?x"}
    answer = await client.post(SELECTED, data=values)
    assert answer.headers["location"] == "/console/batches?did=paused-all"


# ------------------------------------------------------------ saved views


async def test_a_saved_view_is_a_tab_of_its_reader_alone_until_it_is_removed(
    made: list[NewBatch], sign_in: SignIn
) -> None:
    client = await sign_in(Role.VIEWER)
    form = {"name": "Nightly, <mine>", "view": "all", "q": "tag:nightly"}
    saved = await client.post("/console/batches/views", data=form, follow_redirects=True)
    assert "Nightly, &lt;mine&gt;" in saved.text
    assert "Remove view" in saved.text
    assert "Nightly" in (await client.get("/console/batches")).text
    other = await sign_in(Role.VIEWER, subject="bob")
    other.cookies.update({name: value for name, value in client.cookies.items() if name.startswith("sw-views")})
    assert "Nightly" not in (await other.get("/console/batches")).text
    await client.post("/console/batches/views", data={"remove": "Nightly, <mine>"})
    assert "Nightly" not in (await client.get("/console/batches")).text


async def test_a_filter_that_is_none_is_not_saved(sign_in: SignIn) -> None:
    client = await sign_in(Role.VIEWER)
    for form in ({"name": "x", "q": "colour:red"}, {"name": " ", "q": "tag:a"}, {"name": "x", "q": "y" * 200}):
        answer = await client.post("/console/batches/views", data=form)
        assert answer.status_code == 400
        assert not any(name.startswith("sw-views") for name in client.cookies)


def test_a_cookie_keeps_views_and_what_is_none_keeps_nothing() -> None:
    views = [SavedView(f"v{n}", "all", "tag:ä") for n in range(saved_views.MOST)]
    assert saved_views.read(saved_views.write(views)) == views
    for odd in ("", "x", "bnVsbA", "WzEsMl0", "W1siYSJdXQ", "é"):
        assert saved_views.read(odd) == []
    with pytest.raises(BadInput):
        saved_views.write(saved_views.added(views, "one more", "all", ""))
    with pytest.raises(BadInput):
        saved_views.write([SavedView("n" * 40, "all", "q" * 300)] * saved_views.MOST)


# ------------------------------------------------------------ keys


def test_no_two_pages_of_a_reader_have_the_same_key() -> None:
    for role in Role:
        keys = [each.key for group in nav.GROUPS for each in group if each.key and role in each.roles]
        assert len(keys) == len(set(keys))


async def test_every_page_has_the_help_of_its_keys_and_their_switch(sign_in: SignIn) -> None:
    client = await sign_in(Role.VIEWER)
    page = (await client.get("/console/now")).text
    assert 'id="keys"' in page
    assert 'id="single-keys"' in page
    assert "Next row" in page


# ------------------------------------------------------------ a file that arrives


async def test_the_first_wrong_line_is_told_before_the_last_line_has_come(sign_in: SignIn, site: Starlette) -> None:
    client, other = await sign_in(Role.ADMIN), await sign_in(Role.ADMIN, subject="bob")
    more = asyncio.Event()
    model = {"model": "smollm2-135m-instruct", "messages": [{"role": "user", "content": "<b>"}]}
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": model | {"max_tokens": -1}}

    async def body() -> AsyncIterator[bytes]:
        yield orjson.dumps(line) + b"\n"
        await more.wait()
        yield orjson.dumps(line | {"custom_id": "b", "body": model}) + b"\n"

    path = "/console/batches/new/file?upload=one"
    sending = asyncio.create_task(client.post(f"{path}&name=a.jsonl", content=body()))
    report = (await eventually(lambda: client.get(path), until=lambda answer: answer.json()["problems"])).json()
    assert report["words"] == "1 line of 1 so far"
    assert report["problems"][0]["line"] == "1"
    assert "max_tokens" in report["problems"][0]["words"]
    assert (await other.get(path)).status_code == 404
    assert not sending.done()
    more.set()
    answer = await sending
    assert answer.status_code == 201, answer.text
    assert (await client.get(path)).status_code == 404
