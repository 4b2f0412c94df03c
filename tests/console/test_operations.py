"""Claims about the pages for those who run an installation: who sees and does what, on an installation with a history."""

import html
import re
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from starlette.applications import Starlette

from app.access.roles import Role
from app.audit import log as audit
from app.batches import fair_shares_sql, lookups_sql
from app.batches.installation_status import Installation
from app.changes import service as changes
from app.changes.kinds import ChangeKind
from app.console import queries_engines, queries_webhooks_sql
from app.console import queries_engines_sql as engines_sql
from app.db.pool import Connection, Database
from app.duties import standing
from app.duties.schedule import BY_NAME
from app.engines import service as engines
from app.headroom import sql as decisions_sql
from app.headroom.samples_sql import SAMPLES
from app.settings import Settings
from app.tenants import key_list_sql
from testing import operations_data
from testing.operations_data import HOOK
from tests.console.conftest import SignIn

PAGES = (
    "/console/engines",
    "/console/engines?range=24h&after=east-1",
    "/console/engines/east-2",
    "/console/engines/east-2?range=7d&log=closed",
    "/console/engines/south-1?log=failures",
    "/console/fairness",
    "/console/incidents",
    "/console/incidents?range=7d&view=trouble&q=west-1",
    "/console/webhooks",
    "/console/webhooks?view=failing",
    "/console/webhooks?view=queues",
    f"/console/webhooks/{HOOK}",
    f"/console/webhooks/{HOOK}?state=dead",
    "/console/keys",
    "/console/keys?view=ended",
    "/console/find",
    "/console/find?q=nothing",
)


@pytest.fixture
async def history(database: Database) -> None:
    async with database.transaction() as conn:
        await operations_data.fill(conn, samples=400)


async def test_duties_are_shown_to_those_who_run_the_installation_and_to_nobody_else(
    database: Database, sign_in: SignIn
) -> None:
    async with database.relaxed() as conn:
        await standing.enter(conn)
        await standing.succeed(conn, BY_NAME["ledger"], 1.5)
        await standing.fail(conn, BY_NAME["days"], "StorageError: <b>away</b>")
    page = (await (await sign_in(Role.OPERATOR)).get("/console/duties")).text
    for words in ("1 duty fails", "compares ledger and queue", "1.5\xa0s", "StorageError: &lt;b&gt;away"):
        assert words in page
    assert (await (await sign_in(Role.ADMIN)).get("/console/duties")).status_code == 404


ASIDE = ("session.start", "access.refused")


async def entries(database: Database) -> list[tuple[str, str, str]]:
    """What was done in the console, without sign-ins and what a role may not do, oldest first."""
    async with database.durable() as conn:
        found = await audit.latest(conn)
    return [
        (each.act, each.target, each.outcome)
        for each in reversed(found)
        if each.role != "system" and each.act not in ASIDE
    ]


async def delivery_of(client: httpx.AsyncClient, state: str, hook: str = HOOK) -> str:
    """The path of the newest delivery of a webhook in a state."""
    found = re.search(
        rf"/console/webhooks/{hook}/deliveries/\d+", (await client.get(f"/console/webhooks/{hook}?state={state}")).text
    )
    assert found
    return found[0]


# ------------------------------------------------------------ seeing


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.usefixtures("history")
async def test_every_role_opens_every_page_and_every_link_of_a_list_leads_somewhere(
    sign_in: SignIn, role: Role
) -> None:
    client = await sign_in(role)
    links = set()
    for path in (*PAGES, await delivery_of(client, "pending")):
        answer = await client.get(path)
        assert answer.status_code == 200, f"{role} {path}: {answer.text[-500:]}"
        found = re.findall(r'href="(/console/(?:engines|incidents|webhooks|keys)[^"#]*)', answer.text)
        links |= {each.replace("&amp;", "&") for each in found}
    for link in sorted(links)[:60:3]:
        assert (await client.get(link)).status_code == 200, link


@pytest.mark.usefixtures("history")
async def test_a_role_of_one_account_sees_no_name_key_or_webhook_of_another(sign_in: SignIn) -> None:
    client = await sign_in(Role.ADMIN, "acme")
    for path in PAGES:
        shown = (await client.get(path)).text
        for secret in ("globex", "initech", "umbrella", "k0e77b12", "search-eval", "old importer&"):
            assert secret not in shown, f"{secret} in {path}"
    assert "three other accounts" in (await client.get("/console/fairness")).text
    eve = await sign_in(Role.ADMIN, "globex", "eve")
    mine = await delivery_of(client, "pending")
    for path in (f"/console/webhooks/{HOOK}", mine, "/console/webhooks/unknown", "/console/engines/unknown"):
        assert (await eve.get(path)).status_code == 404, path
    for path in (f"{mine}/redeliver", f"/console/webhooks/{HOOK}/replay", f"/console/webhooks/{HOOK}/rotate",
                 f"/console/webhooks/{HOOK}/pause", "/console/keys/k7f3a9c2/revoke"):  # fmt: skip
        assert (await eve.post(path, data={"since": "24h"})).status_code == 404, path
    assert (await eve.get("/console/find?q=k7f3a9c2")).text.count("support service") == 0


@pytest.mark.usefixtures("history")
async def test_machines_and_receivers_answers_are_shown_to_those_whom_they_concern(sign_in: SignIn) -> None:
    admin, operator = await sign_in(Role.ADMIN, "acme"), await sign_in(Role.OPERATOR, None, "chief")
    assert "gpu-07" not in (await admin.get("/console/engines/east-2")).text
    assert "gpu-07" in (await operator.get("/console/engines/east-2")).text
    path = await delivery_of(admin, "pending")
    answer = (await admin.get(path)).text
    assert "&lt;script&gt;alert(1)" in answer
    assert "<script>alert" not in answer
    assert "alert(1)" not in (await operator.get(path)).text
    assert "key=abc" not in answer + (await admin.get(f"/console/webhooks/{HOOK}")).text


@pytest.mark.usefixtures("history")
async def test_the_problems_of_the_status_stand_on_the_first_page_and_on_incidents(
    sign_in: SignIn, database: Database, settings: Settings
) -> None:
    client, status = await sign_in(Role.OPERATOR), await Installation(database, settings).status()
    assert status["problems"]
    for path in ("/console/now", "/console/incidents"):
        shown = html.unescape((await client.get(path)).text)
        assert [each["code"] for each in status["problems"] if each["remedy"] not in shown] == [], path


async def test_incidents_shows_every_kind_of_change(sign_in: SignIn, database: Database) -> None:
    async with database.transaction() as conn:
        for kind in ChangeKind:
            await changes.record(conn, kind, f"about-{kind}", {})
    shown = await (await sign_in(Role.OPERATOR)).get("/console/incidents")
    assert shown.status_code == 200, shown.text[-500:]
    told = {kind: f"about-{kind}" for kind in ChangeKind} | {ChangeKind.STEWARD_LEADS: "steward has taken the lead"}
    assert [kind for kind, said in told.items() if said.lower() not in shown.text.lower()] == []


@pytest.mark.usefixtures("history")
async def test_an_address_that_names_no_place_in_a_list_is_refused(sign_in: SignIn) -> None:
    client = await sign_in(Role.OPERATOR)
    for path in ("engines/east-2?before=x", "incidents?before=2026_1", "webhooks?after=x", "keys?after=y"):
        assert (await client.get(f"/console/{path}")).status_code == 400, path
    for path in (f"webhooks/{HOOK}/deliveries/{2**63}", f"webhooks/{HOOK}?before=x", f"webhooks/{HOOK}/deliveries/0"):
        assert (await client.get(f"/console/{path}")).status_code == 404, path


@pytest.mark.usefixtures("history")
async def test_decisions_are_paged_without_a_gap(sign_in: SignIn, database: Database) -> None:
    async with database.transaction() as conn:
        await conn.execute(
            "insert into decision (engine_id, at, layer, was_allowance, allowance, was_reason, reason, in_flight, credited)"
            " select engine_id, now() - n * interval '1 hour', 'l1', n, n + 1, 'hold', 'open', 0, 0"
            " from engine, generate_series(1, 70) n where name = 'east-2'"
        )
    client, seen, path = await sign_in(Role.OPERATOR), list[tuple[str, str]](), "/console/engines/east-2"
    while path:
        page = (await client.get(path)).text
        seen += re.findall(r"(\d+) → <b>(\d+)</b>", page)
        older = re.search(r'href="([^"]+)" rel="next"', page)
        path = older[1].replace("&amp;", "&") if older else ""
    assert len(seen) == 77
    assert {(str(n), str(n + 1)) for n in range(1, 71)} <= set(seen)


@pytest.mark.usefixtures("history")
async def test_one_hit_opens_its_page_and_several_are_listed(sign_in: SignIn) -> None:
    client = await sign_in(Role.OPERATOR)
    for asked, place in (
        ("east-2", "/console/engines/east-2"),
        (HOOK, f"/console/webhooks/{HOOK}"),
        ("k7f3a9c2", "/console/keys?view=all#key-k7f3a9c2"),
    ):
        answer = await client.get("/console/find", params={"q": asked})
        assert (answer.status_code, answer.headers["location"]) == (303, place), asked
    assert "Nothing is called &lt;b&gt;" in (await client.get("/console/find", params={"q": "<b>"})).text
    assert (await client.get("/console/find", params={"q": "%"})).status_code == 200


# ------------------------------------------------------------ acting


@pytest.mark.parametrize("role", [Role.VIEWER, Role.AUDITOR])
@pytest.mark.usefixtures("history")
async def test_a_role_that_does_not_act_is_offered_nothing_and_refused(
    sign_in: SignIn, database: Database, role: Role
) -> None:
    client = await sign_in(role)
    for path in (*PAGES, await delivery_of(client, "pending")):
        assert 'class="confirm"' not in (await client.get(path)).text, path
    delivery = await delivery_of(client, "pending")
    for path in (f"{delivery}/redeliver", f"/console/webhooks/{HOOK}/replay", f"/console/webhooks/{HOOK}/rotate",
                 f"/console/webhooks/{HOOK}/test", "/console/keys/k7f3a9c2/revoke", "/console/engines/east-1/drain"):  # fmt: skip
        assert (await client.post(path, data={"since": "24h"})).status_code == 403, path
    assert await entries(database) == []


@pytest.mark.usefixtures("history")
async def test_an_operator_drains_and_undrains_an_engine_and_an_admin_does_not(
    sign_in: SignIn, database: Database
) -> None:
    admin, operator = await sign_in(Role.ADMIN), await sign_in(Role.OPERATOR, None, "chief")
    assert (await admin.post("/console/engines/east-1/drain")).status_code == 403
    assert "slackwater engine drain east-1" in (await operator.get("/console/engines/east-1")).text
    assert (await operator.post("/console/engines/east-1/drain")).status_code == 303
    async with database.durable() as conn:
        assert {e.name: e.intake for e in await engines.list_engines(conn)}["east-1"] == "draining"
    assert "Undrain east-1?" in (await operator.get("/console/engines/east-1")).text
    assert (await operator.post("/console/engines/east-1/undrain")).status_code == 303
    assert (await operator.post("/console/engines/east-1/explode")).status_code == 404
    assert await entries(database) == [("engine.drain", "east-1", "done"), ("engine.undrain", "east-1", "done")]


@pytest.mark.usefixtures("history")
async def test_a_delivery_that_is_shown_as_accepted_is_the_last_accepted_one(
    sign_in: SignIn, site: Starlette, database: Database
) -> None:
    site.state.parts.looks._fresh = 0.0
    client, state = await sign_in(Role.ADMIN), "update delivery set state = %s where endpoint_id = %s"
    for given, never in (("dead", True), ("delivered", False)):
        async with database.durable() as conn:
            await conn.execute(state, [given, HOOK])
        figure = (await client.get(f"/console/webhooks/{HOOK}")).text.partition("Last accepted")[2][:300]
        assert (">never<" in figure) == never


@pytest.mark.usefixtures("history")
async def test_a_delivery_is_sent_again_and_a_refusal_is_recorded_with_its_reason(
    sign_in: SignIn, database: Database
) -> None:
    client = await sign_in(Role.ADMIN)
    path = await delivery_of(client, "delivered")
    assert (await client.post(f"{path}/redeliver")).headers["location"] == f"{path}?did=redelivered"
    assert "Waits to be sent." in (await client.get(path)).text
    assert (await client.post(f"/console/webhooks/{HOOK}/pause")).status_code == 303
    assert (await client.post(f"{path}/redeliver")).status_code == 409
    done = await entries(database)
    assert [(action, outcome == "done") for action, _, outcome in done] == [
        ("webhook.redeliver", True),
        ("webhook.pause", True),
        ("webhook.redeliver", False),
    ]


@pytest.mark.usefixtures("history")
async def test_a_replay_sends_what_was_given_up(sign_in: SignIn, database: Database) -> None:
    client = await sign_in(Role.ADMIN)
    async with database.durable() as conn:
        await conn.execute("update delivery set state = 'dead' where endpoint_id = %s and state = 'pending'", [HOOK])
    assert (await client.post(f"/console/webhooks/{HOOK}/replay", data={"since": "fortnight"})).status_code == 400
    assert (await client.post(f"/console/webhooks/{HOOK}/replay", data={"since": "7d"})).status_code == 303
    async with database.durable() as conn:
        [(dead,)] = await (
            await conn.execute("select count(*) from delivery where endpoint_id = %s and state = 'dead'", [HOOK])
        ).fetchall()
    assert dead == 0


@pytest.mark.usefixtures("history")
async def test_a_new_secret_is_shown_once_and_only_to_an_admin_of_its_account(sign_in: SignIn) -> None:
    admin, operator = await sign_in(Role.ADMIN), await sign_in(Role.OPERATOR, None, "chief")
    assert (await operator.post(f"/console/webhooks/{HOOK}/rotate")).status_code == 403
    answer = await admin.post(f"/console/webhooks/{HOOK}/rotate", data={"overlap": "24"})
    [secret] = set(re.findall(r"whsec_[A-Za-z0-9+/=]+", answer.text))
    assert answer.headers["cache-control"] == "no-store"
    assert secret not in (await admin.get(f"/console/webhooks/{HOOK}")).text
    assert "Old secret signs until" in (await admin.get(f"/console/webhooks/{HOOK}")).text


@pytest.mark.usefixtures("history")
async def test_a_revoked_key_is_refused_and_revoking_it_twice_says_so(sign_in: SignIn, database: Database) -> None:
    client = await sign_in(Role.ADMIN)
    assert "slackwater key revoke k93c11fa" in (await client.get("/console/keys")).text
    assert (await client.post("/console/keys/k93c11fa/revoke")).status_code == 303
    assert "k93c11fa" not in (await client.get("/console/keys")).text
    assert "k93c11fa" in (await client.get("/console/keys?view=ended")).text
    assert (await client.post("/console/keys/k93c11fa/revoke")).status_code == 409
    assert [(each[0], each[1]) for each in await entries(database)] == [("key.revoke", "k93c11fa")] * 2


async def test_nothing_of_an_engine_is_drawn_before_its_first_start(database: Database, sign_in: SignIn) -> None:
    start = """
    update engine_sample set reason = 'engine_down', closed_seconds = seconds, allowance = 0
    where engine_id = (select engine_id from engine where name = %s) and at < now() - %s::interval"""
    async with database.transaction() as conn:
        await operations_data.fill(conn, samples=360)
        await conn.execute(start, ("east-1", "5 min"))
        await conn.execute(start, ("south-1", "0 min"))
        ids = dict(await (await conn.execute("select name, engine_id from engine")).fetchall())
        began = await queries_engines.begun(conn, [ids["east-1"], ids["south-1"], ids["west-1"]])
        assert set(began) == {ids["east-1"], ids["west-1"]}
        found = await queries_engines.tides(conn, list(ids.values()), datetime.now(UTC) - timedelta(hours=1), 10.0)
        day = await queries_engines.day(conn, ids["east-1"], began[ids["east-1"]])
    assert ids["south-1"] not in found
    assert {each.reason for each in found[ids["east-1"]]} == {"harvest"}
    assert len(found[ids["east-1"]]) < 40 < len(found[ids["west-1"]])
    assert (day.closed_seconds, round(day.seconds / 60)) == (0, 5)
    client = await sign_in(Role.OPERATOR)
    for address in ("/console/now", "/console/engines", "/console/engines/east-1?range=15m"):
        assert "r-bad" not in (await client.get(address)).text, address
    assert "In the 5\xa0min that are known" in (await client.get("/console/engines/east-1")).text
    assert "south-1 has not served yet" in (await client.get("/console/engines/south-1")).text


async def test_what_another_engine_did_under_the_same_name_is_not_drawn(database: Database, sign_in: SignIn) -> None:
    async with database.transaction() as conn:
        await operations_data.fill(conn, samples=360)
        at = datetime.now(UTC) - timedelta(minutes=5)
        facts = {"engine": "east-1", "from": "a", "to": "b", "mode": "attached"}
        await changes.record(conn, ChangeKind.ENGINE_REPLACED, "east-1", facts, at=at)
    client = await sign_in(Role.OPERATOR)
    shown = (await client.get("/console/engines/east-1?range=15m")).text
    assert "what another engine did before is not drawn" in shown
    assert "In the 5\xa0min that are known" in shown
    rows = re.findall(r"<td>(\d\d:\d\d:\d\d)</td>", shown.partition("Callers tok/s")[2])
    assert rows
    assert min(rows) >= f"{at:%H:%M:%S}" or at.hour == 23


# ------------------------------------------------------------ cost


async def plan(conn: Connection, statement: str, **values: object) -> str:
    """The plan of a statement with these values."""
    rows = await (await conn.execute(f"explain (costs off) {statement}".encode(), values)).fetchall()
    return "\n".join(row[0] for row in rows)


async def test_an_index_serves_every_statement_on_a_table_that_grows(database: Database) -> None:
    async with database.transaction() as conn:
        await operations_data.fill(conn)
        await conn.execute(
            "set local enable_seqscan = off"
        )  # few rows are here; without an index there is no other way
        for table in ("engine_sample", "decision", "delivery", "attempt", "event", "change", "endpoint", "engine"):
            await conn.execute(f"analyze {table}".encode())
        [(engine_id,)] = await (await conn.execute("select engine_id from engine where name = 'east-2'")).fetchall()
        [(since,)] = await (await conn.execute("select now() - interval '15 min'")).fetchall()
        place = {"before_at": None, "before": None, "limit": 31, "failures": []}
        hooks = {"tenant_id": None, "account": None, "after_at": None, "after": None, "limit": 51}
        plans = {
            "tide": await plan(conn, engines_sql.TIDE, engine_id=engine_id, since=since, until=None, stretch=10.0),
            "samples": await plan(conn, SAMPLES, engine_id=engine_id, since=since, until=None, stretch=10.0),
            "day": await plan(conn, engines_sql.DAY, engine_id=engine_id, begun=since),
            "begun": await plan(conn, engines_sql.BEGUN, engine_ids=[engine_id]),
            **{
                kind: await plan(conn, decisions_sql.recent(kind), engine_id=engine_id, **place)
                for kind in decisions_sql.KINDS
            },
            "hooks": await plan(conn, queries_webhooks_sql.page("all"), **hooks),
            "hook": await plan(conn, queries_webhooks_sql.ONE, tenant_id=None, endpoint_id=HOOK),
            "served": await plan(conn, fair_shares_sql.SERVED, since=since),
            "by id": await plan(conn, lookups_sql.BATCHES_BY_ID, tenant_id=None, id_from=HOOK, id_to=HOOK),
            "keys": await plan(conn, key_list_sql.page("live"), **hooks),
        }
    for name, found in plans.items():
        scanned = set(re.findall(r"Seq Scan on (\w+)", found))
        assert not scanned & {"engine_sample", "decision", "delivery", "attempt", "event", "batch", "item_result"}, (
            f"{name}\n{found}"
        )
