"""No change without its audit row, and no row without its change: every form of the console, on a database that refuses one."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Match

from app.access import sessions
from app.access.roles import Grant, Role
from app.audit import log
from app.audit.acts import Act
from app.console.pages import ROUTES
from app.db.pool import Database
from testing import operations_data
from testing.operations_data import HOOK
from tests.api.support import MODEL, line
from tests.audit import surfaces
from tests.audit.refusals import Refusing
from tests.console import pipelines, talks
from tests.console.conftest import SignIn

RULES = '[[rule]]\nid = "{}"\nwhen = {{ workflow = "draft" }}\ndeny = "no"\n'
HOOKS, BATCH = f"/console/webhooks/{HOOK}", "/console/batches/{batch}"
PIPELINE = "/console/pipelines/{pipeline}"


@dataclass(frozen=True)
class Step:
    """One form. `{…}` are ids. `looks`: it shows something and changes nothing."""

    url: str
    acts: tuple[Act, ...]
    form: dict[str, str] = field(default_factory=dict)
    status: int = 303
    looks: bool = False


ADMIN = (
    Step("/console/batches/new", (Act.BATCH_CREATE,), {"file": "{file}"}),
    Step(f"{BATCH}/pause", (Act.BATCH_PAUSE,)),
    Step(f"{BATCH}/resume", (Act.BATCH_RESUME,)),
    Step("/console/batches/selected", (Act.BATCH_PAUSE,), {"verb": "pause", "id": "{batch}.1"}),
    Step(f"{BATCH}/cancel", (Act.BATCH_CANCEL,)),
    Step(f"{BATCH}/retry", (Act.BATCH_RETRY,)),
    Step(f"{BATCH}/items/0/reveal", (Act.ITEM_REVEAL,), {"reason": "because"}, 200, looks=True),
    Step(f"{BATCH}/download", (Act.BATCH_DOWNLOAD,), {}, 200, looks=True),
    Step(f"{HOOKS}/deliveries/{{delivery}}/redeliver", (Act.WEBHOOK_REDELIVER,)),
    Step(f"{HOOKS}/replay", (Act.WEBHOOK_REPLAY,), {"since": "7d", "all": "on"}),
    Step(f"{HOOKS}/rotate", (Act.WEBHOOK_ROTATE,), {"overlap": "24"}, 200),
    Step(f"{HOOKS}/test", (Act.WEBHOOK_TEST,)),
    Step(f"{HOOKS}/pause", (Act.WEBHOOK_PAUSE,)),
    Step(f"{HOOKS}/disable", (Act.WEBHOOK_DISABLE,)),
    Step(f"{HOOKS}/enable", (Act.WEBHOOK_ENABLE,)),
    Step(f"{HOOKS}/delete", (Act.WEBHOOK_DELETE,)),
    Step(
        "/console/webhooks/new", (Act.WEBHOOK_CREATE,), {"url": "https://93.184.215.14/x", "format": "workers_ai"}, 200
    ),
    Step("/console/keys/new", (Act.KEY_CREATE,), {"name": "ward 3", "role": "submitter", "expires": "90d"}, 200),
    Step("/console/keys/k93c11fa/revoke", (Act.KEY_REVOKE,)),
    Step("/console/spend/budgets/new", (Act.BUDGET_SET,), {"name": "month", "most": "500", "unit": "USD"}),
    Step("/console/spend/budgets/{budget}", (Act.BUDGET_SET,), {"most": "400", "unit": "USD"}),
    Step("/console/spend/budgets/{budget}/delete", (Act.BUDGET_REMOVE,)),
    Step(f"{PIPELINE}/pause", (Act.PIPELINE_PAUSE,)),
    Step(f"{PIPELINE}/resume", (Act.PIPELINE_RESUME,)),
    Step(f"{PIPELINE}/cancel", (Act.PIPELINE_CANCEL,)),
    Step(f"{PIPELINE}/retry", (Act.PIPELINE_RETRY,)),
    Step(
        "/console/conversations/{talk}/turns/1/reveal",
        (Act.CONVERSATION_REVEAL,),
        {"reason": "because"},
        200,
        looks=True,
    ),
)
OPERATOR = (
    Step("/console/engines/east-1/drain", (Act.ENGINE_DRAIN,)),
    Step("/console/engines/east-1/undrain", (Act.ENGINE_UNDRAIN,)),
    Step("/console/engines/east-1/drain-now", (Act.ENGINE_DRAIN_NOW,)),
    Step("/console/policy/apply", (Act.POLICY_APPLY,), {"text": RULES.format("one")}),
    Step("/console/policy/apply", (Act.POLICY_APPLY,), {"text": RULES.format("two")}),
    Step("/console/policy/versions/{version}/rollback", (Act.POLICY_ROLLBACK,)),
    Step("/console/access/{session}/revoke", (Act.SESSION_REVOKE,)),
    Step("/console/logout", (Act.SESSION_END,)),
)
STRANGER = (Step("/console/login", (Act.SESSION_START,), {"token": "{token}"}),)
# It makes a key, calls the API, and takes the key away, in three steps; a database that refuses all of them is no case.
PLAYGROUND = Step(
    "/console/playground",
    (Act.KEY_CREATE, Act.PLAYGROUND_RUN, Act.KEY_REVOKE),
    {"model": MODEL, "prompt": "hi", "max_tokens": "4"},
    200,
)


@pytest.fixture
async def history(database: Database) -> None:
    async with database.transaction() as conn:
        await operations_data.fill(conn)


@pytest.fixture
def refusing(database_url: str, history: None) -> Iterator[Refusing]:
    made = Refusing(database_url)
    yield made
    made.close()


async def take(client: httpx.AsyncClient, step: Step, refusing: Refusing, ids: dict[str, str]) -> httpx.Response:
    """Take a step three times: while rows are refused, while changes are refused, and then."""
    refusing.changed()
    newest = refusing.newest()
    for what in ("rows",) if step.looks else ("rows", "changes"):
        with refusing.of(what):
            answer = await sent(client, step, ids)
        assert answer.status_code >= 500, (what, step, answer.text[-300:])
        assert refusing.acts(newest) == [], f"{step}: a row without its change"
        assert refusing.changed() == set(), f"{step}: a change without its row"
    answer = await sent(client, step, ids)
    assert answer.status_code == step.status, (step, answer.text[-300:])
    assert refusing.acts(newest) == [*step.acts], step
    assert bool(refusing.changed()) != step.looks, step
    return answer


async def sent(client: httpx.AsyncClient, step: Step, ids: dict[str, str]) -> httpx.Response:
    form = {name: value.format(**ids) if value.startswith("{") else value for name, value in step.form.items()}
    return await client.post(step.url.format(**ids), data=form)


async def test_what_somebody_changes_in_the_console_and_its_row_are_one(
    site: Starlette, sign_in: SignIn, stranger: httpx.AsyncClient, refusing: Refusing, database: Database
) -> None:
    admin, operator = await sign_in(Role.ADMIN, "acme"), await sign_in(Role.OPERATOR, None, "chief")
    stored = await admin.post("/console/batches/new/file?name=in.jsonl", content=line(1))
    page = (await admin.get(f"{HOOKS}?state=delivered")).text
    [delivery, *_] = re.findall(rf"/console/webhooks/{HOOK}/deliveries/(\d+)", page)
    talk = await talks.begin(database, turns=1)
    ids = {"pipeline": await pipelines.create(site, database, pipelines.tickets()), "talk": talk}
    ids |= {"file": stored.headers["x-next"].partition("file=")[2], "delivery": delivery}
    for step in ADMIN:
        if step.url.endswith("/retry") and "pipeline" in step.url:
            await pipelines.end(database, ids["pipeline"])
        refusing.execute("update endpoint set state = 'active' where state = 'pending'")
        answer = await take(admin, step, refusing, ids)
        if step.url == "/console/batches/new":
            ids["batch"] = answer.headers["location"].removeprefix("/console/batches/").partition("?")[0]
        if step.url == "/console/spend/budgets/new":
            [ids["budget"]] = re.findall(r"/console/spend/budgets/(\d+)", (await admin.get("/console/spend")).text)
    async with database.transaction() as conn:
        ids["token"] = await sessions.invite(conn, Grant("eve", Role.AUDITOR))
    for step in STRANGER:
        await take(stranger, step, refusing, ids)
    async with database.relaxed() as conn:
        ids["session"] = str(next(each.session_id for each in await sessions.listing(conn) if each.subject == "eve"))
    for step in OPERATOR:
        await take(operator, step, refusing, ids)
        if "policy" in step.url and "version" not in ids:
            async with database.relaxed() as conn:
                [(version,)] = await (await conn.execute("select max(policy_id) from policy")).fetchall()
            ids["version"] = str(version)


async def test_a_prompt_of_the_playground_is_recorded_with_the_key_that_it_takes(
    sign_in: SignIn, refusing: Refusing
) -> None:
    admin = await sign_in(Role.ADMIN, "acme")
    newest = refusing.newest()
    with refusing.of("rows"):
        assert (await sent(admin, PLAYGROUND, {})).status_code == 503
    assert refusing.acts(newest) == []
    assert (await sent(admin, PLAYGROUND, {})).status_code == PLAYGROUND.status
    assert refusing.acts(newest) == [*PLAYGROUND.acts]


def test_the_steps_are_those_of_the_table() -> None:
    taken: dict[str, set[Act]] = {}
    for step in (*ADMIN, *OPERATOR, *STRANGER, PLAYGROUND):
        path = step.url.replace("{session}", "1").replace("{version}", "1").replace("{budget}", "1")
        scope = {"type": "http", "method": "POST", "path": path, "headers": []}
        [route] = [each for each in ROUTES if each.matches(scope)[0] is Match.FULL][:1]
        taken.setdefault(route.path, set()).update(step.acts)  # type: ignore[attr-defined]
    assert taken == {path: set(acts) for path, acts in surfaces.CONSOLE.items()}


# ------------------------------------------------------------ refusals


async def refused(site: Starlette, database: Database) -> list[log.Entry]:
    await site.state.parts.admission.audit.store()
    async with database.relaxed() as conn:
        return [each for each in await log.latest(conn) if each.act in (Act.SESSION_REFUSED, Act.ACCESS_REFUSED)]


async def test_a_link_that_does_not_work_is_recorded_as_a_refused_sign_in(
    site: Starlette, stranger: httpx.AsyncClient, database: Database
) -> None:
    assert (await stranger.post("/console/login", data={"token": "guessed"})).status_code == 403
    [row] = await refused(site, database)
    assert (row.act, row.target, row.who, len(row.correlation)) == (
        Act.SESSION_REFUSED,
        "one-time link",
        "unknown caller",
        1,
    )
    assert "guessed" not in str(row)
    assert (await stranger.get("/console/login?token=guessed")).status_code == 403
    assert sum((each.after or {})["requests"] for each in await refused(site, database)) == 2


async def test_a_form_of_another_site_is_recorded_as_refused(
    site: Starlette, stranger: httpx.AsyncClient, database: Database
) -> None:
    answer = await stranger.post("/console/logout", headers={"sec-fetch-site": "cross-site"})
    assert answer.status_code == 403
    [row] = await refused(site, database)
    assert (row.act, row.target, row.account) == (Act.ACCESS_REFUSED, "page of another site", None)


async def test_a_sign_in_has_the_id_of_its_request_its_account_and_who_was_invited(
    sign_in: SignIn, database: Database
) -> None:
    await sign_in(Role.ADMIN, "acme")
    async with database.relaxed() as conn:
        start, invite = (await log.latest(conn, account="acme"))[:2]
    assert (start.act, start.who, start.role, len(start.correlation)) == (Act.SESSION_START, "ada", "admin", 1)
    assert (invite.act, invite.target, (invite.after or {})["role"]) == (Act.SESSION_INVITE, "ada", "admin")


async def test_a_session_that_is_ended_twice_leaves_one_row_with_whose_it_was(
    sign_in: SignIn, database: Database
) -> None:
    operator = await sign_in(Role.OPERATOR, None, "chief")
    await sign_in(Role.ADMIN, "acme")
    async with database.relaxed() as conn:
        session = next(each.session_id for each in await sessions.listing(conn) if each.subject == "ada")
    assert (await operator.post(f"/console/access/{session}/revoke")).status_code == 303
    assert (await operator.post(f"/console/access/{session}/revoke")).status_code == 404
    async with database.relaxed() as conn:
        [row] = [each for each in await log.latest(conn) if each.act == Act.SESSION_REVOKE]
    assert (row.who, row.account, row.after) == ("chief", "acme", {"state": "ended"})
    assert row.before == {"subject": "ada", "role": "admin", "state": "live"}
