"""Claims about pages that live, in a real browser: rows change in place, keys are explained, files are checked early."""

import json
from pathlib import Path

import pytest

from tests.console.browser import Reader, drop, file_of
from tests.system.stack import MODEL, Account, Stack

pytestmark = pytest.mark.slow
HIDE = """hidden => {
    Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
    document.dispatchEvent(new Event("visibilitychange"));
}"""
KILOBYTES = 1000


def state_of(account: Account, request_id: str) -> str:
    """What the API says of a batch."""
    return str(account.client.get(f"/v1/batches/batch_{request_id.replace('-', '')}").json()["status"])


def verb(account: Account, request_id: str, name: str) -> None:
    """Do it by the API, as somebody else."""
    account.client.post(f"/v1/batches/batch_{request_id.replace('-', '')}/{name}").raise_for_status()


def test_a_ticked_row_changes_in_place_and_rests_while_its_page_is_hidden(
    reader: Reader, installation: Stack, account: Account, tmp_path: Path
) -> None:
    page = reader.page
    installation.script({"match": "slow", "mode": "slow", "seconds": 3})
    request_id = drop(reader, file_of(tmp_path, [f"slow {n}" for n in range(3000)]), "ticks")
    reader.open("/console/batches")
    row = page.locator("tbody tr", has=page.get_by_role("link", name="ticks", exact=True))
    row.wait_for()
    row.evaluate("row => { row.mark = 'the same element'; }")
    row.get_by_role("link", name="ticks").focus()
    page.keyboard.press("x")
    assert row.locator(".pick input").is_checked()

    verb(account, request_id, "pause")
    row.filter(has_text="Paused").wait_for()
    assert row.evaluate("row => row.mark") == "the same element"
    assert row.locator(".pick input").is_checked()
    assert page.evaluate("document.activeElement.textContent").strip() == "ticks"

    page.evaluate(HIDE, True)
    with reader.context.new_page() as other:  # somebody resumes it in another window, where it is seen
        other.goto(f"{reader.base}/console/batches/{request_id}")
        verb(account, request_id, "resume")
        verb(account, request_id, "cancel")
        other.locator("#batch-top", has_text="Cancelled after").wait_for()
    assert "Paused" in row.inner_text()
    page.evaluate(HIDE, False)
    row.wait_for(state="detached")  # it is not open any more


def test_a_question_mark_shows_the_keys_and_they_can_be_switched_off(reader: Reader) -> None:
    page = reader.page
    reader.open("/console/batches")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Shortcuts")
    assert "Pause or resume" in dialog.inner_text()
    page.keyboard.press("Escape")
    dialog.wait_for(state="hidden")
    page.keyboard.press("g")
    page.keyboard.press("e")
    page.wait_for_url("**/console/engines")

    page.keyboard.press("?")
    dialog.get_by_role("checkbox").uncheck()
    dialog.get_by_role("button", name="Close").click()
    reader.open("/console/batches")
    page.keyboard.press("?")
    page.keyboard.press("/")
    assert dialog.is_hidden()
    assert page.evaluate("document.activeElement.tagName") == "BODY"
    page.get_by_role("button", name="Shortcuts").click()
    dialog.get_by_role("checkbox").check()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "q"


def test_the_first_errors_of_a_file_are_shown_while_it_arrives(reader: Reader, tmp_path: Path) -> None:
    page = reader.page
    body = {"model": MODEL, "messages": [{"role": "user", "content": "x" * 2 * KILOBYTES}]}
    good = {"method": "POST", "url": "/v1/chat/completions", "body": body}
    lines = [
        '{"custom_id": "broken"',
        json.dumps({"custom_id": "unknown", **good, "body": body | {"model": "<b>moon"}}),
    ]
    lines += [json.dumps({"custom_id": f"item-{n}", **good}) for n in range(2000)]
    file = tmp_path / "four-megabytes.jsonl"
    file.write_text("\n".join(lines))

    network = reader.context.new_cdp_session(page)
    slowly = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 200 * KILOBYTES}
    reader.open("/console/batches/new")
    network.send("Network.enable")
    network.send("Network.emulateNetworkConditions", slowly)
    page.locator("input[type=file]").set_input_files(file)
    found = page.locator("#found-lines tr")
    found.nth(1).wait_for()
    assert page.locator("#drop.busy").count() == 1
    assert "% sent" in page.locator("#drop-state").inner_text()
    assert [found.nth(n).locator("td").first.inner_text() for n in range(2)] == ["1", "2"]
    assert "<b>moon" in found.nth(1).inner_text()
    assert page.locator("#found b").count() == 0

    network.send("Network.emulateNetworkConditions", slowly | {"uploadThroughput": -1})
    page.wait_for_url("**/console/batches/new?file=*")
    assert "2,000" in page.locator("main").inner_text()
