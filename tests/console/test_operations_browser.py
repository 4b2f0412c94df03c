"""Claims about the pages for those who run an installation, in a real browser: sent again, revoked, drained, found."""

import threading
from typing import Any

import pytest

from app.access.roles import Role
from app.cli.database import on_database
from app.db.pool import Connection
from testing.operations_data import HOOK
from tests.console import browser
from tests.console.browser import Reader

pytestmark = pytest.mark.slow


def test_deliveries_are_sent_again_and_keys_revoked_where_one_sees_it(console: Any) -> None:
    with browser.launched() as chromium:
        reader = Reader(chromium, console)
        page = reader.page
        reader.sign_in(Role.ADMIN, "acme")

        reader.open(f"/console/webhooks/{HOOK}?state=delivered")
        page.locator("#webhook-log tbody a").first.click()
        page.get_by_role("heading", name="Delivery").wait_for()
        said = reader.confirm("Redeliver", "Send again")
        assert "it gets it a second time, with the same id" in said
        assert "slackwater subscription redeliver" in said
        page.locator("#delivery-top", has_text="Waits to be sent").wait_for()

        reader.open("/console/keys")
        page.evaluate("window.same = true")
        row = page.locator("#key-k7f3a9c2")
        row.get_by_role("button", name="Revoke").click()
        dialog = page.locator("[popover]:popover-open")
        assert "Whoever uses it is refused" in dialog.inner_text()
        dialog.get_by_role("button", name="Revoke it").click()
        page.get_by_text("The key is revoked.").wait_for()
        row.wait_for(state="detached")

        reader.open("/console/now")
        page.keyboard.press("/")
        page.keyboard.type("k7f3a9c2")
        page.keyboard.press("Enter")
        page.wait_for_url("**/console/keys?view=all#key-k7f3a9c2")
        assert "Revoked" in row.inner_text()
        assert reader.complaints == []


def test_a_budget_is_made_corrected_changed_and_deleted_with_the_keyboard_alone(console: Any) -> None:
    with browser.launched() as chromium:
        reader = Reader(chromium, console)
        page, keys = reader.page, reader.page.keyboard
        reader.sign_in(Role.ADMIN, "acme")
        reader.open("/console/spend")
        page.get_by_role("link", name="New budget").focus()
        keys.press("Enter")
        page.get_by_label("Name").focus()
        keys.type("month")
        for _ in range(3):  # over what it counts
            keys.press("Tab")
        keys.type("1,000")
        keys.press("Enter")
        page.get_by_role("alert").wait_for()
        wrong = page.locator("[aria-invalid]:focus")
        assert wrong.get_attribute("name") == "most"
        assert "Must be an amount like" in page.locator("#most-problem").inner_text()
        wrong.fill("1000")
        keys.press("Enter")
        page.wait_for_url("**/console/spend?did=budget-made")
        page.get_by_role("link", name="Change month").focus()
        keys.press("Enter")
        page.get_by_label("Maximum").fill("2000")
        keys.press("Enter")
        page.wait_for_url("**/console/spend?did=budget-changed")
        page.get_by_role("link", name="Change month").click()
        page.get_by_role("button", name="Delete", exact=True).focus()
        keys.press("Enter")
        page.locator("[popover]:popover-open").get_by_role("button", name="Delete it").focus()
        keys.press("Enter")
        page.wait_for_url("**/console/spend?did=budget-deleted")
        page.get_by_text("No budget is set").wait_for()
        assert reader.complaints == []


def test_what_was_given_up_is_replayed_where_one_sees_it(console: Any) -> None:
    change(console, f"update delivery set state = 'dead' where endpoint_id = '{HOOK}' and state = 'pending'")
    with browser.launched() as chromium:
        reader = Reader(chromium, console)
        page = reader.page
        reader.sign_in(Role.ADMIN, "acme")
        reader.open(f"/console/webhooks/{HOOK}?state=dead")
        given_up = page.locator("#webhook-log tbody tr").count()
        assert given_up > 0
        page.get_by_role("button", name="Replay", exact=True).click()
        dialog = page.locator("[popover]:popover-open")
        assert "Events that the receiver has not accepted are sent again" in dialog.inner_text()
        assert f"slackwater subscription replay {HOOK}" in dialog.inner_text()
        dialog.get_by_label("Events of").select_option("7d")
        dialog.get_by_role("button", name="Replay", exact=True).click()
        page.get_by_text("What the receiver did not accept in this time is sent again").wait_for()
        reader.open(f"/console/webhooks/{HOOK}?state=dead")
        page.get_by_text("Nothing was given up.").wait_for()
        reader.open(f"/console/webhooks/{HOOK}?state=pending")
        assert page.locator("#webhook-log tbody tr").count() == given_up
        assert reader.complaints == []


def test_an_engine_is_drained_after_a_confirmation_and_its_page_lives(console: Any) -> None:
    with browser.launched() as chromium:
        reader = Reader(chromium, console)
        page = reader.page
        reader.sign_in(Role.OPERATOR, None)
        reader.open("/console/engines/east-1")
        assert page.locator(".panels .plot").count() == 5
        said = reader.confirm("Drain")
        assert "neither batch work nor synchronous requests" in said
        assert "slackwater engine drain east-1" in said
        page.locator("#engine-top", has_text="Is drained by an operator").wait_for()
        page.evaluate("window.same = true")  # no reload: what follows comes by the stream

        change(console, "update engine set intake = 'open' where name = 'east-1'")
        page.locator("#engine-top", has_text="Gives batch work what synchronous requests leave").wait_for()
        assert page.evaluate("window.same")
        assert reader.complaints == []


def change(console: Any, statement: str) -> None:
    """Run a statement apart, as Playwright keeps an event loop in this thread."""

    async def run(conn: Connection) -> None:
        await conn.execute(statement.encode())

    apart = threading.Thread(target=on_database, args=(console.settings, run))
    apart.start()
    apart.join()
