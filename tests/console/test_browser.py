"""Claims about the console in a real browser: the main path of somebody who submits a batch, on a whole installation."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from app.access.roles import Role
from tests.console.browser import Reader, drop, file_of
from tests.system.stack import MODEL, Account, Stack

pytestmark = pytest.mark.slow

EVIL = (
    '<script>window.hacked = 1</script><img src="/x" onerror="window.hacked = 2">'
    '<button hx-get="/console/now" hx-trigger="load" hx-target="body">x</button>'
    '<div hx-sse:connect="/console/stream?page=now" hx-on:load="window.hacked = 3">\u202e</div></pre></hx-partial>'
)


def test_a_file_is_dropped_watched_to_its_end_read_and_retried(
    reader: Reader, installation: Stack, tmp_path: Path
) -> None:
    page = reader.page
    installation.script(
        {"match": "wrong", "mode": "status", "status": 400, "message": "too long"},
        {"match": "q", "mode": "slow", "seconds": 2},
    )
    drop(reader, file_of(tmp_path, [f"question {n}" for n in range(30)] + ["wrong"]), "first try")
    page.get_by_role("heading", name="first try").wait_for()
    page.evaluate("window.same = true")  # no reload: what follows comes by the stream
    page.locator("#batch-figures", has_text="in the engine").wait_for()
    page.locator("#batch-top", has_text="Completed after").wait_for()
    assert page.evaluate("window.same")
    assert "30 answered" in page.locator("#batch-figures").inner_text()

    page.get_by_role("link", name="Failed").click()
    page.locator("#batch-items", has_text="too long").wait_for()
    page.locator("#batch-items tbody tr a").last.click()
    page.get_by_role("heading", name="Item 30").wait_for()
    assert "Hidden." in page.locator("main").inner_text()
    page.get_by_role("button", name="Reveal", exact=True).click()
    page.get_by_label("Reason").fill("to see why it failed")
    page.locator("[popover]:popover-open").get_by_role("button", name="Reveal").click()
    page.get_by_role("group", name="Prompt").wait_for()
    assert "wrong" in page.get_by_role("group", name="Prompt").inner_text()

    installation.script()
    page.get_by_role("link", name="first try").click()
    said = reader.confirm("Retry 1 unanswered", "Retry")
    assert "Run 2 begins with 1 item without an answer" in said
    assert "slackwater batch retry" in said
    page.locator("#batch-figures", has_text="31 answered").wait_for()


def test_a_batch_is_paused_resumed_and_cancelled_where_one_sees_it(
    reader: Reader, installation: Stack, tmp_path: Path
) -> None:
    page = reader.page
    installation.script({"match": "long", "mode": "slow", "seconds": 3})
    drop(reader, file_of(tmp_path, [f"long {n}" for n in range(2000)]), "long one")
    assert "No further item" in reader.confirm("Pause")
    page.locator("#batch-top", has_text="Paused").wait_for()
    page.keyboard.press("p")
    page.locator("[popover]:popover-open").get_by_role("button", name="Resume").click()
    page.get_by_text("Resumed: ").wait_for()
    page.get_by_role("button", name="Cancel", exact=True).click()
    dialog = page.locator("[popover]:popover-open")
    assert "will not run" in dialog.inner_text()
    dialog.locator("button.stop").click()
    page.locator("#batch-top", has_text="Cancelled after").wait_for()


def test_what_prompts_answers_and_names_contain_stays_text(reader: Reader, installation: Stack, tmp_path: Path) -> None:
    page = reader.page
    installation.script({"match": "odd", "mode": "status", "status": 400, "message": EVIL})
    request_id = drop(
        reader, file_of(tmp_path, [f"odd {EVIL}", EVIL], f"{EVIL[:40]}.jsonl".replace("/", "")), EVIL[:80]
    )
    page.locator("#batch-top", has_text="Completed after").wait_for()
    for address in (
        f"/console/batches/{request_id}?items=failed",
        "/console/batches?view=ended",
        f"/console/batches/{request_id}/items/1",
    ):
        reader.open(address)
        page.wait_for_timeout(1500)  # a stream's first message replaces every part
        nothing_acts(page)
    for seq in (0, 1):  # of the first, the engine's message is the answer; the second has its prompt as answer
        reader.open(f"/console/batches/{request_id}/items/{seq}")
        page.get_by_role("button", name="Reveal", exact=True).click()
        page.get_by_label("Reason").fill("to look")
        page.locator("[popover]:popover-open").get_by_role("button", name="Reveal").click()
        for name in ("Prompt", "Answer"):
            shown = page.get_by_role("group", name=name).inner_text()
            assert EVIL.replace("\u202e", "⟨U+202E⟩") in shown.replace('\\"', '"')  # an error is shown as JSON
        page.wait_for_load_state("load")  # by then an image would have failed
        nothing_acts(page)


def nothing_acts(page: Any) -> None:
    assert page.evaluate("window.hacked === undefined")
    assert page.locator("main img, main main [hx-get], main [hx-on\\:load]").count() == 0


@pytest.mark.parametrize(
    "end",
    [
        "expires_at = now() + interval '2 seconds'",
        "seen_at = now() - interval '30 minutes'",
        "revoked_at = now()",
    ],
    ids=["too-old", "idle", "revoked"],
)
def test_a_session_that_ends_leaves_the_page(chromium: Any, installation: Stack, account: Account, end: str) -> None:
    reader = Reader(chromium, installation, account.name)
    reader.sign_in(Role.VIEWER)
    installation.query(f"update console_session set {end} where subject = 'ada' and revoked_at is null returning 1")
    reader.page.wait_for_url("**/console/login**")  # nobody has clicked
    assert "slackwater console login" in reader.page.locator("main").inner_text()
    reader.open("/console/batches")
    assert "/console/login" in reader.page.url
    reader.context.close()


def test_a_viewer_is_offered_nothing_and_sees_no_other_account(
    chromium: Any, installation: Stack, account: Account, tmp_path: Path
) -> None:
    admin, viewer = Reader(chromium, installation, account.name), Reader(chromium, installation, account.name)
    admin.sign_in()
    installation.script()
    request_id = drop(admin, file_of(tmp_path, ["hello"]), "mine")
    viewer.sign_in(Role.VIEWER, account.name, "vera")
    assert viewer.open(f"/console/batches/{request_id}") == 200
    assert viewer.page.locator("#batch-acts button").count() == 0
    assert viewer.open("/console/batches/new") == 403
    stranger = Reader(chromium, installation, account.name)
    stranger.sign_in(Role.ADMIN, "globex", "eve")
    assert stranger.open(f"/console/batches/{request_id}") == 404
    assert stranger.open(f"/console/batches/{uuid4()}") == 404
    for each in (admin, viewer, stranger):
        assert each.complaints == []
        each.context.close()


def test_a_hidden_page_reads_nothing_and_catches_up(reader: Reader, installation: Stack) -> None:
    page, asked = reader.page, list[str]()
    page.on("request", lambda request: asked.append(request.url))
    hide = """hidden => {
        Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page.wait_for_timeout(1500)
    page.evaluate(hide, True)
    page.wait_for_timeout(1000)
    asked.clear()
    page.wait_for_timeout(4000)
    assert [url for url in asked if "/console/" in url] == []
    page.evaluate(hide, False)
    with page.expect_request("**/console/stream**"):
        pass


def test_the_playground_shows_both_answers_with_their_times(reader: Reader, installation: Stack) -> None:
    page = reader.page
    installation.script()
    reader.open("/console/playground")
    page.get_by_label("Model").select_option(MODEL)
    page.get_by_label("Prompt").fill("Why tides?")
    page.get_by_role("button", name="Ask both ways").click()
    page.get_by_role("heading", name="through the queue").wait_for()
    for name in ("At once", "Queued"):
        assert page.get_by_role("group", name=f"Answer, {name}").inner_text()
    assert "first token" in page.locator("main").inner_text().lower()
