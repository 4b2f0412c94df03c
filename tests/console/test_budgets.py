"""Claims about budgets in the console: made, changed and deleted by who may by the API, by the same rules, and recorded."""

import html
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from app.access.roles import Role
from app.audit import log
from app.audit.acts import Act
from app.audit.log import Entry
from app.budgets import service
from app.budgets.rules import Budget, Owner, Queued, Reserve, Scope, Synchronous, Unit
from app.console.pages import budgets as page
from app.console.views import budget as form
from app.console.views import spend_budgets
from app.db.pool import Database
from app.errors import AuthenticationError
from app.tenants import service as tenants
from tests.console.conftest import SignIn

NEW, SPEND = form.NEW, "/console/spend"
MONTH = {
    "name": "month",
    "most": "500",
    "unit": "EUR",
    "period": "month",
    "tz": "Europe/Berlin",
    "alerts_at": "90, 75 %",
    "queued": "refuse",
    "synchronous": "alert",
    "reserve": "maximum",
}
NOW = datetime(2026, 11, 23, 14, tzinfo=UTC)
SMALL = Budget("b", Scope.ACCOUNT, "", Unit.TOKENS, None, "day", "UTC", 100, window_from=NOW, window_to=NOW)
CHOICES = {"period", "queued", "synchronous", "reserve"}


async def of(database: Database, account: str = "acme") -> list[Budget]:
    async with database.relaxed() as conn:
        return await service.listing(conn, await tenants.find_tenant(conn, account))


async def rows(database: Database, *acts: Act) -> list[Entry]:
    async with database.relaxed() as conn:
        return [each for each in await log.latest(conn) if each.act in acts]


async def made(client: httpx.AsyncClient, database: Database, **change: str) -> str:
    """Make a budget. Returns its address."""
    answer = await client.post(NEW, data=MONTH | change)
    assert (answer.status_code, answer.headers["location"]) == (303, f"{SPEND}?did=budget-made"), answer.text[-500:]
    [found] = await of(database)
    return f"{spend_budgets.PATH}/{found.budget_id}"


async def test_a_budget_is_made_with_all_its_terms_and_recorded_as_the_api_does(
    sign_in: SignIn, database: Database
) -> None:
    admin = await sign_in(Role.ADMIN, "acme")
    await made(admin, database)
    [found] = await of(database)
    [row] = await rows(database, Act.BUDGET_SET)
    assert (found.unit, found.currency, found.max) == (Unit.COST, "EUR", 500 * 10**9)
    assert (found.scope, found.period, found.tz) == (Scope.ACCOUNT, "month", "Europe/Berlin")
    assert (found.alerts_at, found.reserve) == ((75, 90), Reserve.MAXIMUM)
    assert (found.queued, found.synchronous) == (Queued.REFUSE, Synchronous.ALERT)
    assert (row.who, row.role, row.account, row.target, row.outcome) == ("ada", "admin", "acme", "month", "done")
    assert (row.before, (row.after or {})["max"]) == (None, 500)
    shown = (await admin.get(f"{SPEND}?did=budget-made")).text
    assert "The budget is made" in shown
    assert "€0.00 spent, €0.00 reserved, €500.00 available" in shown


async def test_the_form_is_filled_so_that_name_and_maximum_are_enough(sign_in: SignIn, database: Database) -> None:
    admin = await sign_in(Role.ADMIN, "acme")
    given = fields((await admin.get(NEW)).text)
    assert (given.pop("name"), given.pop("most")) == ("", "")
    assert (await admin.post(NEW, data=given | {"name": "b", "most": "7"})).status_code == 303
    [found] = await of(database)
    assert (found.scope, found.period, found.tz, found.alerts_at) == (Scope.ACCOUNT, "month", "UTC", (75, 90))
    assert (found.queued, found.synchronous, found.reserve) == (Queued.WAIT, Synchronous.REFUSE, Reserve.EXPECTED)


@pytest.mark.parametrize(
    ("change", "terms"),
    [
        ({"workflow": "digest"}, (Scope.WORKFLOW, "digest", Unit.COST)),
        ({"unit": "tokens", "most": "20000000"}, (Scope.ACCOUNT, "", Unit.TOKENS)),
        ({"most": "500 EUR"}, (Scope.ACCOUNT, "", Unit.COST)),
    ],
)
async def test_a_budget_is_of_a_workflow_and_of_money_or_tokens(
    sign_in: SignIn, database: Database, change: dict[str, str], terms: tuple[object, ...]
) -> None:
    await made(await sign_in(Role.ADMIN, "acme"), database, **change)
    [found] = await of(database)
    assert (found.scope, found.scope_value, found.unit) == terms


async def test_a_budget_of_a_key_takes_the_id_that_the_form_offers(sign_in: SignIn, database: Database) -> None:
    admin = await sign_in(Role.ADMIN, "acme")
    await admin.post("/console/keys/new", data={"name": "ward <3>", "role": "submitter", "expires": "90d"})
    [(key, name)] = re.findall(r'<option value="([^"]+)">(ward[^/]+)</option>', (await admin.get(NEW)).text)
    assert name == "ward &lt;3&gt;"
    await made(admin, database, key=key)
    assert [(each.scope, each.scope_value) for each in await of(database)] == [(Scope.KEY, key)]


async def test_a_change_begins_with_the_stored_terms_and_keeps_what_is_spent(
    sign_in: SignIn, database: Database
) -> None:
    admin = await sign_in(Role.ADMIN, "acme")
    path = await made(admin, database)
    async with database.transaction() as conn:
        await conn.execute("update budget set spent = 120 * 10^9, reserved = 3 * 10^9")
    before = (await of(database))[0]
    shown = (await admin.get(path)).text
    assert all(amount in shown for amount in ("€120.00", "€3.00", "€377.00"))
    assert "cannot be changed" in shown
    given = fields(shown)
    assert "name" not in given
    assert (await admin.post(path, data=given)).status_code == 303
    assert await of(database) == [before]  # the form changes nothing by itself
    answer = await admin.post(path, data=given | {"most": "650.50", "name": "other"})
    assert answer.headers["location"] == f"{SPEND}?did=budget-changed"
    assert await of(database) == [replace(before, max=650_500_000_000)]
    last, _ = await rows(database, Act.BUDGET_SET)
    assert (last.target, last.before, last.after) == ("month", {"max": 500}, {"max": 650.5})


async def test_a_budget_is_deleted_after_a_confirmation(sign_in: SignIn, database: Database) -> None:
    admin = await sign_in(Role.ADMIN, "acme")
    path = await made(admin, database)
    shown = (await admin.get(path)).text
    [dialog] = re.findall(rf'popover role="dialog"[^>]*>\s*<form [^>]*action="{path}/delete">(.*?)</form>', shown, re.S)
    assert "Delete the budget month?" in dialog
    assert "slackwater budget rm month --account acme" in dialog
    answer = await admin.post(f"{path}/delete")
    assert answer.headers["location"] == f"{SPEND}?did=budget-deleted"
    assert await of(database) == []
    [row] = await rows(database, Act.BUDGET_REMOVE)
    assert (row.who, row.account, row.target, (row.before or {})["max"]) == ("ada", "acme", "month", 500)
    assert (await admin.get(path)).status_code == (await admin.post(path, data=MONTH)).status_code == 404
    assert await of(database) == []


@pytest.mark.parametrize(
    ("field", "change", "words"),
    [
        ("name", {"name": "A month"}, "Must be 1 to 64 of a-z"),
        ("name", {"name": "taken"}, "The account has a budget 'taken'; change that one, or take another name"),
        ("key", {"key": "k-of-nobody"}, "The account has no key 'k-of-nobody'; give the id"),
        ("workflow", {"workflow": "a b<c"}, "Must be 1 to 64 of a-z"),
        ("workflow", {"workflow": "w", "key": "k"}, "A budget has a key or a workflow, not both"),
        ("most", {"most": ""}, "Must be an amount like"),
        ("most", {"most": "1,000"}, "Must be an amount like '100 USD' or '0.50', not '1,000 EUR'"),
        ("most", {"most": "0"}, "Must be more than 0"),
        ("most", {"most": "1e9", "unit": "tokens"}, "Must be a whole number from 1 to"),
        ("most", {"unit": "euros"}, "Must be an amount like"),
        ("period", {"period": "year"}, "Must be one of hour, day, week, month, total"),
        ("tz", {"tz": "Mars"}, "unknown; write a name of the IANA database"),
        ("alerts_at", {"alerts_at": "75, all"}, "Must be whole numbers from 1 to 99, not 'all'"),
        ("alerts_at", {"alerts_at": "100"}, "Must be whole numbers from 1 to 99, not 100"),
        ("queued", {"queued": "fail"}, "Must be one of alert, wait, refuse"),
        ("synchronous", {"synchronous": "wait"}, "Must be one of alert, refuse"),
        ("reserve", {"reserve": "none"}, "Must be one of expected, maximum"),
    ],
)
async def test_bad_input_is_told_beside_its_field_keeps_the_values_and_stores_nothing(
    sign_in: SignIn, database: Database, field: str, change: dict[str, str], words: str
) -> None:
    admin = await sign_in(Role.ADMIN, "acme")
    path = await made(admin, database, name="taken", most="3")
    stored = await of(database)
    for address in (NEW, path):
        if field == "name" and address == path:
            continue  # it has no such field
        answer = await admin.post(address, data=MONTH | change)
        assert answer.status_code in (400, 409), answer.text[-500:]
        [told] = re.findall(rf'id="{field}-problem" role="alert">([^<]*)<', answer.text)
        assert words in html.unescape(told)
        assert answer.text.count('role="alert"') == answer.text.count('aria-invalid="true"') == 1
        without = {field} & CHOICES | ({"name"} if address == path else set())  # a select shows only what there is
        wanted = {"key": "", "workflow": ""} | MONTH | change
        assert fields(answer.text) == {name: value for name, value in wanted.items() if name not in without}
        assert await of(database) == stored
    assert (await rows(database, Act.BUDGET_SET))[0].outcome != "done"


async def test_a_refusal_that_is_of_no_field_is_told_above_the_form_in_its_own_words(
    sign_in: SignIn, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = await sign_in(Role.ADMIN, "acme")
    path = await made(admin, database)
    stored = await of(database)

    async def refuse(*args: object, **more: object) -> None:
        raise AuthenticationError("The budget month is of bob; ask bob", status=403)

    for name in ("put", "remove"):
        monkeypatch.setattr(page.budgets, name, refuse)
    for address in (NEW, path, f"{path}/delete"):
        answer = await admin.post(address, data=MONTH | {"most": "9"})
        assert answer.status_code == 403
        assert '<p class="banner" role="alert">The budget month is of bob; ask bob.</p>' in answer.text
        assert fields(answer.text)["most"] == ("500" if address.endswith("delete") else "9")
    assert await of(database) == stored


async def test_who_may_not_change_budgets_sees_no_button_and_gets_403(sign_in: SignIn, database: Database) -> None:
    path = await made(await sign_in(Role.ADMIN, "acme"), database)
    stored = await of(database)
    for role in (Role.VIEWER, Role.AUDITOR):
        client = await sign_in(role, "acme", str(role))
        shown = (await client.get(SPEND)).text
        assert "month" in shown
        assert spend_budgets.PATH not in shown
        for address in (NEW, path):
            assert (await client.get(address)).status_code == 403
        for address in (NEW, path, f"{path}/delete"):
            answer = await client.post(address, data=MONTH | {"most": "1"})
            assert (answer.status_code, "You may not do this" in answer.text) == (403, True)
    assert await of(database) == stored


async def test_a_budget_of_another_account_is_not_found(sign_in: SignIn, database: Database) -> None:
    path = await made(await sign_in(Role.ADMIN, "acme"), database)
    stored = await of(database)
    for role in (Role.ADMIN, Role.VIEWER):
        other = await sign_in(role, "globex", "eve")
        assert path not in (await other.get(SPEND)).text
        answers = [await other.get(path), await other.post(path, data=MONTH), await other.post(f"{path}/delete")]
        unknown = [await other.get(f"{spend_budgets.PATH}/{each}") for each in ("999", "9" * 20, "month")]
        assert {answer.status_code for answer in answers + unknown} == {404}
    theirs = MONTH | {"account": "acme", "most": "1"}
    assert (await (await sign_in(Role.ADMIN, "globex", "eve")).post(NEW, data=theirs)).status_code == 303
    assert await of(database) == stored
    assert len(await of(database, "globex")) == 1


async def test_an_operator_names_the_account_of_a_new_budget_and_changes_that_of_any(
    sign_in: SignIn, database: Database
) -> None:
    await sign_in(Role.ADMIN, "acme")
    operator = await sign_in(Role.OPERATOR, None, "chief")
    answer = await operator.post(NEW, data=MONTH | {"account": "nobody"})
    assert (answer.status_code, "There is no account nobody." in answer.text) == (400, True)
    path = await made(operator, database, account="acme")
    assert "acme, a month" in (await operator.get(SPEND)).text
    assert (await operator.post(path, data=MONTH | {"most": "9"})).status_code == 303
    assert [each.max for each in await of(database)] == [9 * 10**9]
    assert {(row.who, row.account) for row in await rows(database, Act.BUDGET_SET)} == {("chief", "acme")}


async def test_an_operators_budget_is_shown_to_the_account_with_its_terms_and_without_a_form(
    sign_in: SignIn, database: Database
) -> None:
    admin = await sign_in(Role.ADMIN, "acme")
    path = await made(await sign_in(Role.OPERATOR, None, "chief"), database, account="acme", workflow="digest")
    stored = await of(database)
    listed = (await admin.get(SPEND)).text
    assert "workflow digest, a month, set by the operator" in listed
    assert re.search(rf'href="{path}" aria-label="Show month">Show</a>', listed)
    shown = html.unescape((await admin.get(path)).text)
    assert "The operator of this installation has set it, so only operators can change or delete it." in shown
    assert 'class="form" method="post"' not in shown
    assert f"{path}/delete" not in shown
    assert dict(re.findall(r'<dt class="q">([^<]*)</dt><dd>([^<]*)</dd>', shown)) == {
        "Set by": "the operator",
        "Counts": "workflow digest",
        "Maximum": "€500.00, a month",
        "Time zone": "Europe/Berlin",
        "Alerts at": "75 %, 90 %",
        "Queued work at the limit": "new batches are refused (429)",
        "Calls at the limit": "go on",
        "Reserved before work runs": "the most that it can use",
    }
    for address, given in ((path, MONTH), (path, MONTH | {"most": "much"}), (f"{path}/delete", {})):
        answer = await admin.post(address, data=given)
        assert answer.status_code in (400, 403)
        assert answer.text.count('<p class="banner" role="alert">') == 1
    assert await of(database) == stored


async def test_an_operator_is_told_before_they_take_over_the_budget_of_an_account(
    sign_in: SignIn, database: Database
) -> None:
    said = "once you change it, it is the operator's: the account can no longer change or delete it"
    admin = await sign_in(Role.ADMIN, "acme")
    path = await made(admin, database)
    operator = await sign_in(Role.OPERATOR, None, "chief")
    assert "acme, a month, set by the account" in (await operator.get(SPEND)).text
    shown = (await operator.get(path)).text
    assert said in shown
    assert '<span class="q">Set by</span><b>the account</b>' in shown
    assert said not in (await admin.get(path)).text
    assert (await operator.post(path, data=MONTH)).status_code == 303
    shown = (await operator.get(path)).text
    assert said not in shown
    assert '<span class="q">Set by</span><b>the operator</b>' in shown


@pytest.mark.parametrize("headers", [{"sec-fetch-site": "cross-site"}, {"origin": "http://evil.example"}])
async def test_a_form_of_another_site_changes_no_budget(
    site: Starlette, sign_in: SignIn, database: Database, headers: dict[str, str]
) -> None:
    admin = await sign_in(Role.ADMIN, "acme")
    path = await made(admin, database)
    stored = await of(database)
    if "origin" in headers:
        del admin.headers["sec-fetch-site"]
    for address in (NEW, path, f"{path}/delete"):
        answer = await admin.post(address, data=MONTH | {"name": "theirs", "most": "1"}, headers=headers)
        assert answer.status_code == 403
        assert "does not come from a page of the console" in answer.text
    assert await of(database) == stored


def fields(shown: str) -> dict[str, str]:
    """What a browser would send of the form of a budget, unless somebody writes into it."""
    [body] = re.findall(r'<form class="form"[^>]*>(.*?)</form>', shown, re.S)
    texts = re.findall(r'<input class="field" id="\w+" name="(\w+)"[^>]*? value="([^"]*)"', body)
    chosen = re.findall(r'<select class="field" id="\w+" name="(\w+)"(?:(?!</select>).)*"([^"]*)" selected', body)
    return {name: html.unescape(value) for name, value in (*texts, *chosen)}


def test_a_budget_that_is_spent_is_named_with_the_workflow_and_the_account_that_it_is_of() -> None:
    budget = replace(SMALL, spent=100, scope="workflow", scope_value="triage")
    assert spend_budgets.sentence([budget], {}).startswith("Budget b (of workflow triage) is spent")
    assert "(of workflow triage, account acme)" in spend_budgets.sentence([budget], {budget.tenant_id: "acme"})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"reserved": 100}, ""),
        ({"spent": 64, "spent_in": NOW}, "Budget b has too little left for what waits: batches wait."),
        ({"spent": 100}, "Budget b is spent: batches wait, calls are refused."),
        ({"spent": 100, "queued": Queued.ALERT, "synchronous": Synchronous.ALERT}, "batches go on, calls too."),
    ],
)
def test_only_a_budget_at_its_limit_is_remarkable_and_what_follows_is_what_its_owner_chose(
    change: dict[str, Any], said: str
) -> None:
    budget = replace(SMALL, **change)
    assert said in (found := spend_budgets.sentence([budget], {}))
    assert bool(found) == bool(said)
    assert ("spent" in found) == (spend_budgets.row(budget, NOW, Owner.ACCOUNT).pace == "spent")
