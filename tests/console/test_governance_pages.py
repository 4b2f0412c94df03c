"""Spend, sessions and families, policy, audit: what each role sees, and what may be done."""

import asyncio
import csv
import io
import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import httpx
import pytest

from app.access.roles import Role
from app.audit import log
from app.audit.acts import Act
from app.audit.record import Record
from app.console.views import policy, spend, spend_change, spend_days
from app.db.pool import Database
from app.engines import catalogue
from app.metering import explained
from app.metering.explained import Explanation
from app.metering.harvest import Harvest
from app.metering.reports import UsageRow
from app.settings import Settings
from app.usage_counts import UsageCounts
from testing.fakes import ledger_month
from tests.console.conftest import SignIn

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
DAYS = spend.days_until(NOW.date())
RULES = """[[rule]]
id = "no-drafts"
when = { workflow = "draft" }
deny = "Drafts are not answered here"
"""


def row(back: int, name: str, cost: int, currency: str | None = "USD") -> UsageRow:
    day = (NOW.date() - timedelta(days=back)).isoformat()
    return UsageRow((day, name), currency, Decimal(cost), UsageCounts(requests=10, ok=10, prompt=100, output=50))


@pytest.fixture
async def month(settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A month of the account `acme` that ends today."""
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    monkeypatch.setattr(ledger_month, "BEGIN", midnight - timedelta(days=30))
    monkeypatch.setattr(ledger_month, "CHANGE", midnight - timedelta(days=4))
    async with database.transaction() as conn:
        await ledger_month.write(conn, catalogue.load(settings.models_file))


def test_amounts_are_in_the_currency_that_most_was_spent_in() -> None:
    table = spend.Table.of([row(1, "a", 5), row(1, "a", 900, "EUR"), row(2, "b", 7, None)], DAYS)
    assert (table.currency, table.others) == ("EUR", ("USD",))
    assert [line.recent for line in table.lines] == [900.0, 0.0]


def test_without_prices_amounts_are_tokens() -> None:
    table = spend.Table.of([UsageRow((DAYS[-1].isoformat(), "a"), None, None, UsageCounts(prompt=7, output=3))], DAYS)
    assert table.currency is None
    assert table.shown(table.lines[0].recent) == "10 tokens"


def shown_figures(rows: list[UsageRow], *harvested: Harvest) -> dict[str, tuple[str, str]]:
    seen = spend.Seen("workflow", spend.Table.of(rows, DAYS), harvested, [], [], None, [])
    return {each.name: (each.value, "".join(part.text for part in each.words)) for each in spend.figures(seen)}


def test_spend_shows_no_figure_of_what_there_was_none_of() -> None:
    found = shown_figures([row(1, "a", 1)], Harvest("USD"))
    assert found.keys() == {"Last 7 days", "Requests", "Retried"}
    assert found["Retried"] == ("0 %", "none took another attempt")
    assert shown_figures([row(20, "a", 1)])["Requests"] == ("0", "in the last 7 days")


def test_the_cost_of_what_has_no_price_is_not_said_to_be_nothing() -> None:
    table = spend.Table.of([row(1, "a", 5), row(1, "b", 0, None)], DAYS)
    assert [(each["cost"], each["thousand"]) for each in (spend._row(line, table) for line in table.lines)] == [
        ("$5.00", "$500.00"), ("–", "–")
    ]  # fmt: skip


def test_a_short_time_of_engines_is_not_said_to_be_none() -> None:
    short = Harvest("USD", Decimal(1), Decimal(1), UsageCounts(prompt=7, output=3, engine_ms=90_000))
    found = shown_figures([row(1, "a", 1)], short, Harvest(None, counts=UsageCounts(output=90, engine_ms=90_000)))
    assert found["Harvested, 7 days"] == ("100", "less than 0.1 engine hours, $1.00")


def test_the_remarkable_day_is_the_whole_day_that_rose_most_from_the_week_before() -> None:
    rows = [row(0, "a", 500), row(7, "a", 1), row(3, "a", 40), row(10, "a", 10), row(4, "a", 30), row(11, "a", 29)]
    assert spend.Table.of(rows, DAYS).remarkable_day(NOW) == NOW.date() - timedelta(days=3)
    assert spend.Table.of(rows[:1], DAYS).remarkable_day(NOW) is None


@pytest.mark.parametrize(
    ("cost", "marks"),
    [
        ("0.0023", ["$0.0010", "$0.0020"]),
        ("0.0006", ["$0.0003", "$0.0006"]),
        ("0.00052", ["$0.000250", "$0.000500"]),
        ("0.011", ["$0.0050", "$0.0100"]),
        ("3.1", ["$1", "$2"]),
        ("24000", ["$10,000", "$20,000"]),
    ],
)
def test_the_scale_of_spend_says_small_sums_in_full(cost: str, marks: list[str]) -> None:
    spent = replace(row(1, "a", 0), cost=Decimal(cost))
    drawn = spend_days.plot(spend.Table.of([spent], DAYS), None, None, str)
    assert [words for _, words in drawn["grid"]] == marks


def test_the_steps_of_a_change_lead_from_one_amount_to_the_other() -> None:
    bridge = spend_change.of(Explanation("USD", 10 * 10**9, 20 * 10**9, []), "workflow", date(2026, 11, 17))
    assert bridge.title == "Why Tuesday the 17th cost more"
    assert [(step.name, step.amount) for step in bridge.steps] == [("Tue 10 Nov", "$10.00"), ("Tue 17 Nov", "$20.00")]


@pytest.mark.usefixtures("month")
async def test_spend_begins_with_the_day_that_cost_more_and_why(sign_in: SignIn) -> None:
    client = await sign_in(Role.VIEWER)
    page = (await client.get("/console/spend")).text
    assert " % more</h1>" in page or "% more</h1>" in page
    assert "Prompt tokens per request of" in page
    assert "slackwater spend explain" in page
    assert "Requests through engines' doors are not counted" in page
    for by in ("model", "key"):
        shown = await client.get("/console/spend", params={"by": by})
        assert shown.status_code == 200
        assert f"--by {by if by in explained.BY else 'workflow'}<" in shown.text  # a command that there is
    assert (await client.get("/console/spend", params={"by": "account"})).status_code == 400
    assert (await client.get("/console/spend", params={"day": "yesterday"})).status_code == 400


@pytest.mark.usefixtures("month")
async def test_an_account_sees_its_own_spend_only(sign_in: SignIn) -> None:
    page = (await (await sign_in(Role.VIEWER, "other")).get("/console/spend")).text
    assert "Nothing was used in four weeks" in page
    everything = (await (await sign_in(Role.AUDITOR)).get("/console/spend")).text
    assert "acme" in everything
    assert ("All accounts together." in page, "All accounts together." in everything) == (False, True)


@pytest.mark.usefixtures("month")
async def test_the_export_is_csv_whose_cells_no_spreadsheet_computes(sign_in: SignIn, database: Database) -> None:
    async with database.transaction() as conn:
        await conn.execute("update line set workflow = '=1+1' where workflow = 'support'")
    client = await sign_in(Role.VIEWER)
    answer = await client.get("/console/spend/export", params={"format": "csv"})
    assert answer.headers["content-disposition"].startswith("attachment")
    assert "'=1+1" in answer.text
    assert ",=1+1" not in answer.text
    assert (await client.get("/console/spend/export", params={"format": "pdf"})).status_code == 400


@pytest.mark.usefixtures("month")
async def test_days_are_those_of_the_zone_that_all_budgets_share(sign_in: SignIn) -> None:
    client = await sign_in(Role.ADMIN)
    for name, tz, shared in (("a", "Pacific/Kiritimati", "Pacific/Kiritimati"), ("b", "Asia/Tokyo", "UTC")):
        made = await client.post("/console/spend/budgets/new", data={"name": name, "most": "7", "tz": tz})
        assert made.status_code == 303, made.text
        assert f"days of {shared}<" in (await client.get("/console/spend")).text
        exported = (await client.get("/console/spend/export", params={"format": "focus"})).text
        begins = {row["ChargePeriodStart"][10:] for row in csv.DictReader(io.StringIO(exported))}
        assert begins == {"T10:00:00Z" if shared != "UTC" else "T00:00:00Z"}  # it is 14 hours ahead


async def test_a_session_that_fills_its_window_soon_is_named(sign_in: SignIn, database: Database) -> None:
    client = await sign_in(Role.VIEWER)
    assert "No session and no family" in (await client.get("/console/sessions")).text
    async with database.transaction() as conn:
        await conn.execute(
            """insert into session_growth (tenant_id, session, workflow, variant, model, endpoint, turns, prompts, fresh)
               select tenant_id, '\\x0102030405060708', 'search', '-', %s, '/v1/chat/completions', 3,
                      '{1000,4000,7000}', '{9,9,9}' from tenant where account_id = 'acme'""",
            [ledger_month.SMALL],
        )
    operator = await sign_in(Role.OPERATOR)
    page = (await operator.get("/console/sessions")).text
    assert "1 session will fill its window soon" in page
    assert "01020304" in page


async def test_the_policy_is_shown_to_the_installation_only(sign_in: SignIn) -> None:
    assert (await (await sign_in(Role.ADMIN)).get("/console/policy")).status_code == 404
    assert (await (await sign_in(Role.ADMIN)).post("/console/policy/apply", data={"text": RULES})).status_code == 404
    auditor = await sign_in(Role.AUDITOR)
    assert "No policy was ever applied" in (await auditor.get("/console/policy")).text
    assert (await auditor.post("/console/policy/apply", data={"text": RULES})).status_code == 403


async def test_what_a_role_may_not_do_is_recorded_within_a_second_or_two(sign_in: SignIn, database: Database) -> None:
    auditor = await sign_in(Role.AUDITOR)
    assert (await auditor.post("/console/policy/apply", data={"text": RULES})).status_code == 403
    for _ in range(50):
        async with database.relaxed() as conn:
            newest = (await log.latest(conn, limit=1))[0]
        if newest.act == "access.refused":
            break
        await asyncio.sleep(0.1)
    assert (newest.act, newest.target, newest.role) == ("access.refused", "/console/policy/apply", "auditor")
    assert "cannot apply a policy" in newest.outcome


async def test_a_policy_is_tried_applied_and_rolled_back(sign_in: SignIn, database: Database) -> None:
    operator = await sign_in(Role.OPERATOR)
    broken = await operator.post("/console/policy/test", data={"text": "[[rule]]\nid = 7\n"})
    assert broken.status_code == 400
    assert "line 2" in broken.text
    tried = (await operator.post("/console/policy/test", data={"text": RULES})).text
    assert "would be denied" in tried
    assert "No policy was ever applied" in tried
    assert (await operator.post("/console/policy/test", data={"text": policy.EXAMPLE})).status_code == 200
    for text in (RULES, RULES.replace("draft", "sketch")):
        assert (await operator.post("/console/policy/apply", data={"text": text})).status_code == 303
    assert "workflow sketch" in (await operator.get("/console/policy")).text
    async with database.relaxed() as conn:
        rows = await (await conn.execute("select policy_id from policy order by policy_id")).fetchall()
    assert (await operator.post(f"/console/policy/versions/{rows[0][0]}/rollback")).status_code == 303
    assert (await operator.post("/console/policy/versions/999/rollback")).status_code == 404
    audit = (await operator.get("/console/audit")).text
    assert audit.count("policy.apply") >= 2
    assert "policy.rollback" in audit


async def test_an_account_reads_its_own_part_of_the_audit_log_by_pages(sign_in: SignIn, database: Database) -> None:
    async with database.transaction() as conn:
        await conn.execute(
            """insert into audit (at, account, act, target, body)
               select now(), account, 'batch.pause', 'b' || n, jsonb_build_object('who', 'bob', 'role', 'admin',
                 'account', account, 'act', 'batch.pause', 'target', 'b' || n, 'outcome', 'done', 'at', to_json(now())#>>'{}')
               from generate_series(1, 130) n, lateral (select case when n % 2 = 0 then 'acme' else 'other' end account)"""
        )
    client = await sign_in(Role.ADMIN)
    first = (await client.get("/console/audit")).text
    assert "b130" in first
    assert "b129" not in first
    older = first.split("/console/audit?before=")[1].split('"')[0]
    assert "b30<" in (await client.get("/console/audit", params={"before": older})).text
    assert (await client.get("/console/audit", params={"before": "x"})).status_code == 400


async def test_the_audit_log_is_filtered_by_account_and_by_what_was_acted_on(
    sign_in: SignIn, database: Database
) -> None:
    async with database.transaction() as conn:
        for account in ("acme", "other"):
            for target in ("b1", "policy 3"):
                await log.record(conn, Record(Act.BATCH_PAUSE, target, account))
    auditor, admin = await sign_in(Role.AUDITOR), await sign_in(Role.ADMIN)

    async def shown(client: httpx.AsyncClient, asked: str) -> list[tuple[str, str]]:
        page = (await client.get("/console/audit", params={"q": asked})).text
        return re.findall(r'<td role="cell" class="lo q">(\w+)</td><td .*?batch.pause.*?>([^<]+)</a>', page)

    assert await shown(auditor, "account:other") == [("other", "policy 3"), ("other", "b1")]
    assert await shown(auditor, "policy 3") == [("other", "policy 3"), ("acme", "policy 3")]
    assert await shown(auditor, "account:acme b1") == [("acme", "b1")]
    page = (await auditor.get("/console/audit", params={"q": "account:acme b1"})).text
    assert 'href="/console/audit?q=b1"' in page
    assert 'href="/console/audit?q=account%3Aacme"' in page
    assert "No entry is like this" in (await auditor.get("/console/audit", params={"q": "moon"})).text
    assert (await admin.get("/console/audit", params={"q": "account:other"})).status_code == 400


async def test_pages_of_a_filtered_audit_log_keep_the_filter(sign_in: SignIn, database: Database) -> None:
    async with database.transaction() as conn:
        await log.record_all(conn, [Record(Act.BATCH_PAUSE, f"b{n % 2}", "acme") for n in range(130)])
    client = await sign_in(Role.ADMIN)
    assert await rows_of_pages(client, "/console/audit?q=b1", r'id="audit-(\d+)"') == 65


async def test_the_versions_of_the_policy_are_read_page_by_page(sign_in: SignIn, database: Database) -> None:
    async with database.transaction() as conn:
        await conn.execute(
            "insert into policy (hash, text, by) select md5(n::text), %s, 'ann' from generate_series(1, 120) n", [RULES]
        )
    client = await sign_in(Role.AUDITOR)
    assert await rows_of_pages(client, "/console/policy", r"<code>([0-9a-f]{12})</code>") == 120
    last = (await client.get("/console/policy", params={"before": 2})).text
    assert "1 rule in force" in last.replace("One", "1")
    assert (await client.get("/console/policy", params={"before": "x"})).status_code == 400


async def rows_of_pages(client: httpx.AsyncClient, path: str, row: str) -> int:
    """How many rows all pages of a list have; each has one of its own."""
    found: list[str] = []
    while path:
        page = (await client.get(path)).text
        found += re.findall(row, page)
        older = re.search(r'href="([^"]+)" rel="next"', page)
        path = older[1].replace("&amp;", "&") if older else ""
    assert len(found) == len(set(found))
    return len(found)


@pytest.mark.parametrize(("role", "account", "named"), [(Role.VIEWER, "acme", "acme"), (Role.OPERATOR, None, "NAME")])
async def test_a_hint_names_the_account_where_there_is_only_one(
    sign_in: SignIn, role: Role, account: str | None, named: str
) -> None:
    page = (await (await sign_in(role, account)).get("/console/spend")).text
    assert f"slackwater key create --account {named} --pin" in page
