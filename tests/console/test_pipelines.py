"""Claims about the pages of pipelines: who sees and does what, what a stage is said to wait for, and the lineage of a line."""

import re
from uuid import UUID, uuid4

import httpx
import pytest
from starlette.applications import Starlette

from app.access.roles import Role
from app.console import stream
from app.db.pool import Database
from app.pipelines import ids
from tests.console import pipelines
from tests.console.conftest import SignIn
from tests.console.test_pages import entries

URL = "/console/pipelines"


@pytest.fixture
async def made(site: Starlette, database: Database) -> str:
    """A pipeline of acme that has begun; its path."""
    public_id = await pipelines.create(site, database, pipelines.tickets())
    await pipelines.begin(database, public_id)
    return f"{URL}/{public_id}"


def words(page: str) -> str:
    """A page without its markup."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.partition('<main id="main"')[2]))


async def shown(client: httpx.AsyncClient, path: str) -> str:
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text[-1500:]
    return words(answer.text)


@pytest.mark.parametrize("role", list(Role))
async def test_every_role_reads_a_pipeline_its_stages_and_its_lineage(made: str, sign_in: SignIn, role: Role) -> None:
    client = await sign_in(role)
    assert "tickets" in await shown(client, URL)
    page = await client.get(made)
    assert page.status_code == 200, page.text[-1500:]
    for address in sorted(set(re.findall(r"/console/batches/[0-9a-f-]{36}", page.text))):
        assert "tickets" in await shown(client, address)
    assert "ticket-7" in await shown(client, f"{made}/item?custom_id=ticket-7")
    assert ("Cancel tickets?" in page.text) == role.acts


async def test_a_pipeline_shows_counts_of_each_stage_and_why_it_waits(made: str, sign_in: SignIn) -> None:
    page = await shown(await sign_in(Role.VIEWER), made)
    flow, table = page.partition("What it waits for")[::2]
    for box in ("classify 25 of 40 so far · 1 failed", "reply 10 of 20 so far · 2 failed", "judge no item yet"):
        assert box in flow, page
    assert "fans out, up to 5" in table
    # waiting, running, done, failed, passed, dropped
    assert "reply smollm2-135m-instruct 10 more come – 8 2 – 4" in table
    assert "waits for results of reply" in table
    assert "of $5.00" in flow


async def test_another_account_has_no_such_pipeline_and_an_unknown_line_is_none(made: str, sign_in: SignIn) -> None:
    other = await sign_in(Role.ADMIN, "globex")
    unknown = f"{URL}/{ids.format_id(uuid4())}"
    for path in (made, unknown):
        for answer in (
            await other.get(path),
            await other.get(f"{path}/item?custom_id=ticket-1"),
            await other.post(f"{path}/pause"),
            await other.get(f"/console/stream?page=pipeline&pipeline_id={path.rpartition('/')[2]}"),
        ):
            assert answer.status_code == 404
    assert "tickets" not in (await other.get(f"{URL}?view=all")).text
    client = await sign_in(Role.ADMIN)
    assert (await client.get(f"{made}/item?custom_id=nobody")).status_code == 404
    assert (await client.get(f"{made}/item")).status_code == 400


async def test_verbs_change_the_whole_pipeline_and_leave_rows(made: str, sign_in: SignIn, database: Database) -> None:
    admin, viewer = await sign_in(Role.ADMIN), await sign_in(Role.VIEWER, subject="eve")
    assert (await viewer.post(f"{made}/pause")).status_code == 403
    public_id = made.rpartition("/")[2]
    for verb, states in (("pause", {"paused"}), ("resume", {"open"}), ("cancel", {"cancelling", "cancelled"})):
        answer = await admin.post(f"{made}/{verb}")
        assert answer.status_code == 303, answer.text
        async with database.durable() as conn:
            found = await (await conn.execute("select distinct state from batch where not feeds or fed")).fetchall()
        assert {state for (state,) in found} <= states
    assert (await admin.post(f"{made}/pause")).status_code == 409
    acts = [(act, target) for act, target, _, _ in await entries(database)]
    assert acts == [(f"pipeline.{verb}", public_id) for verb in ("pause", "resume", "cancel", "pause")]


async def test_a_pipeline_without_money_asks_for_a_new_budget(made: str, sign_in: SignIn, database: Database) -> None:
    async with database.transaction() as conn:
        await conn.execute("update pipeline set state = 'paused', paused_for = 'budget'")
    admin = await sign_in(Role.ADMIN)
    page = await admin.get(made)
    assert "has used its budget of $5.00" in page.text
    assert "New budget, USD" in page.text
    assert (await admin.post(f"{made}/resume", data={"number": "-1"})).status_code == 400
    assert (await admin.post(f"{made}/resume", data={"number": "7.5"})).status_code == 303
    assert "of $7.50" in await shown(admin, made)


async def test_a_pipeline_whose_contents_were_deleted_is_still_shown_with_its_counts(
    made: str, sign_in: SignIn, database: Database
) -> None:
    async with database.transaction() as conn:
        await conn.execute("update pipeline set definition = '', state = 'completed', finalized_at = now()")
    page = await shown(await sign_in(Role.VIEWER), made)
    assert "25 of 40" in page
    assert "judge" in page


async def test_the_list_is_filtered_and_paged_by_its_address(
    site: Starlette, sign_in: SignIn, database: Database
) -> None:
    names = [f"run-{n:02}" for n in range(27)]
    for name in names:
        await pipelines.create(site, database, pipelines.tickets(name))
    await pipelines.create(site, database, pipelines.tickets("foreign"), "globex")
    async with database.transaction() as conn:
        await conn.execute("update pipeline set state = 'paused', paused_for = 'budget' where name = 'run-03'")
    admin, operator = await sign_in(Role.ADMIN), await sign_in(Role.OPERATOR)

    async def listed(client: httpx.AsyncClient, query: str) -> list[str]:
        page = (await client.get(f"{URL}?{query}")).text
        return re.findall(r'<a class="ttl" href="/console/pipelines/pipe_[^"]+">([^<]+)<', page)

    for client, newest in ((admin, "run-26"), (operator, "foreign")):
        page = (await client.get(URL)).text
        first = await listed(client, "")
        older = re.search(r'href="/console/pipelines\?(after=[^"]+)"', page)
        assert first[0] == newest
        assert older
        rest = await listed(client, older[1])
        assert first + rest == (["foreign"] if client is operator else []) + names[::-1]
        newer = re.search(r'href="/console/pipelines\?(before=[^"]+)"', (await client.get(f"{URL}?{older[1]}")).text)
        assert newer
        assert await listed(client, newer[1]) == first
    assert await listed(admin, "q=waits:budget") == ["run-03"]
    assert await listed(admin, "q=state:paused") == ["run-03"]
    assert await listed(admin, "q=run-1") == [f"run-{n}" for n in range(19, 9, -1)]
    assert await listed(operator, "q=account:globex") == ["foreign"]
    assert await listed(admin, "view=ended") == []
    assert (await admin.get(f"{URL}?q=nothing:x")).status_code == 400


async def test_lineage_has_no_text_of_a_line_and_a_message_only_for_who_may_reveal(
    made: str, sign_in: SignIn, database: Database
) -> None:
    async with database.transaction() as conn:
        await conn.execute(
            "insert into item_payload (batch_id, seq, reference, est_tokens, wants_json, body)"
            " select b.batch_id, 7, 'ticket-7', 9, false, '{}' from batch b where b.name = 'classify'"
        )
        await conn.execute(
            "insert into item_result (batch_id, seq, run, ok, attempt, error, body) select b.batch_id, 7, 1, 0, 1, 'invalid',"
            """ '{"code": 5006, "message": "secret about 7"}' from batch b where b.name = 'classify'"""
        )
    admin, operator = await sign_in(Role.ADMIN), await sign_in(Role.OPERATOR)
    of_admin, of_operator = [await shown(each, f"{made}/item?custom_id=ticket-7") for each in (admin, operator)]
    assert "It has failed in classify." in of_admin
    assert "secret about 7" in of_admin
    assert "secret about 7" not in of_operator
    assert "about 7" not in of_operator
    assert "waits for results of classify" in of_admin.lower()


async def test_a_stream_sends_the_live_parts_of_a_pipeline(made: str, site: Starlette, sign_in: SignIn) -> None:
    client = await sign_in(Role.ADMIN)
    answer = await client.get(f"/console/look?page=pipeline&pipeline_id={made.rpartition('/')[2]}")
    assert answer.status_code == 200
    for region in ("top", "acts", "figures", "flow", "stages"):
        assert f'hx-target="#pipeline-{region}"' in answer.text
    assert stream.EVERY_SECONDS == 1.0
    assert UUID(made.rpartition("_")[2])
