"""Claims about plots in a real browser: keys and a pointer read their values, and a drag chooses the time of the page."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from app.access.roles import Role
from app.cli.database import on_database
from app.console.views import time_range
from app.db.pool import Connection
from app.engines import catalogue
from app.metering import latency_sql, sketch
from testing.fakes import ledger_month
from tests.console import browser
from tests.console.browser import Reader

pytestmark = pytest.mark.slow
TIDES = "#now-tide .plot[data-read]"


@pytest.fixture
def operator(console: Any) -> Iterator[Reader]:
    """An operator of an installation with a history."""
    with browser.launched() as chromium:
        reader = Reader(chromium, console)
        reader.sign_in(Role.OPERATOR, None)
        yield reader
        assert reader.complaints == []


def zoomed(url: str) -> timedelta:
    """The length of the time in an address."""
    query = parse_qs(urlsplit(url).query)
    return datetime.fromisoformat(query["to"][0]) - datetime.fromisoformat(query["from"][0])


def test_values_are_read_by_keys_said_aloud_and_kept_while_the_page_lives(operator: Reader) -> None:
    page = operator.page
    operator.open("/console/now")
    tide = page.locator(TIDES).first
    tide.focus()
    page.keyboard.press("End")
    newest = page.locator("#reading").inner_text()
    assert re.fullmatch(r"\d\d:\d\d:\d\d, harvested [\d,.]+.tok/s, callers [\d,.]+.tok/s", newest)
    marks = page.locator(f"{TIDES} > .read .cross")
    place = "mark => parseFloat(mark.getAttribute('x1'))"
    at_newest = marks.first.evaluate(place)
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Shift+ArrowLeft")
    assert page.locator("#reading").inner_text() != newest
    assert marks.first.evaluate(place) < at_newest  # times of day begin anew at midnight
    assert marks.count() == page.locator(TIDES).count() > 1
    assert len(set(marks.evaluate_all("all => all.map(each => each.getAttribute('x1'))"))) == 1

    page.evaluate(
        "document.querySelector('#now-tide .plot').setAttribute('data-read', '[[0],[]]')"
    )  # as if it were old
    page.evaluate("document.querySelector('#now-tide .plot .read').remove()")
    page.locator("#now-tide .ch").first.locator('.plot:not([data-read="[[0],[]]"])').wait_for()
    assert tide.locator(".read .cross").count() == 1
    assert page.evaluate("document.activeElement.matches('#now-tide .plot')")
    page.keyboard.press("Escape")
    assert page.locator(".read").count() == 0


def test_a_drag_shows_its_part_of_the_time_and_keys_show_more_or_less(operator: Reader) -> None:
    page = operator.page
    operator.open("/console/now?range=1h")
    box = page.locator(TIDES).first.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.85, box["y"] + 20, steps=4)
    assert page.locator(f"{TIDES} > .read rect").count() == 1
    page.mouse.up()
    page.wait_for_url("**/console/now?from=*")
    assert zoomed(page.url) / timedelta(minutes=15) == pytest.approx(1, abs=0.1)
    assert re.search(r"\d\d:\d\d", page.locator(".seg [aria-current]").inner_text())
    assert page.locator(TIDES).first.get_attribute("data-read") != "[[],[]]"

    part = page.url
    page.locator(TIDES).first.focus()
    page.keyboard.press("+")
    page.wait_for_url(lambda url: url != part)
    assert zoomed(page.url) / zoomed(part) == pytest.approx(0.5, abs=0.02)
    page.locator(".seg a", has_text="6 h").click()
    page.wait_for_url("**/console/now?range=6h")
    page.locator(TIDES).first.focus()
    page.keyboard.press("+")
    page.wait_for_url("**/console/now")
    page.locator(TIDES).first.focus()
    page.keyboard.press("-")
    page.wait_for_url("**/console/now?range=6h")


def test_a_pointer_reads_all_panels_of_an_engine_at_once_and_leaves_nothing_behind(operator: Reader) -> None:
    page = operator.page
    operator.open("/console/engines/east-1?range=1h")
    panels = page.locator(".panels .plot[data-read]")
    box = panels.nth(1).bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 10)
    assert page.locator(".panels .read").count() == panels.count() == 5
    assert re.match(r"\d\d:\d\d", panels.nth(1).locator(".read text").text_content() or "")
    assert "forecast" in (panels.nth(3).locator(".read text").text_content() or "")
    page.mouse.move(5, 5)
    assert page.locator(".read").count() == 0


def test_without_scripts_a_plot_is_an_image_with_a_name(console: Any) -> None:
    with browser.launched() as chromium:
        reader = Reader(chromium, console, java_script_enabled=False)
        reader.sign_in(Role.OPERATOR, None)
        reader.open("/console/now")
        plot = reader.page.locator(TIDES).first
        assert plot.get_attribute("role") == "img"
        assert "Tokens a second" in (plot.get_attribute("aria-label") or "")


@pytest.fixture
def drawn(console: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The same installation with a month of spend, and callers who wait three times as long beside batch work as alone."""
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    monkeypatch.setattr(ledger_month, "BEGIN", midnight - timedelta(days=30))
    monkeypatch.setattr(ledger_month, "CHANGE", midnight - timedelta(days=4))

    async def fill(conn: Connection) -> None:
        async with conn.transaction():
            await ledger_month.write(conn, catalogue.load(console.settings.models_file))
            for minutes in range(2, 50):
                minute = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=minutes)
                for beside, first, gap in ((True, 3000.0, 40.0), (False, 60.0, 38.0)):
                    values = {"minute": minute, "writer": "w", "model": "qwen3-32b", "beside": beside, "requests": 60,
                              "first_token": [sketch.bucket(first), 60], "gap": [sketch.bucket(gap), 60]}  # fmt: skip
                    await conn.execute(latency_sql.STORE, values)

    on_database(console.settings, fill)
    return console


@pytest.mark.parametrize("width", [1440, 390])
def test_no_label_of_a_plot_lies_on_another_or_is_cut(drawn: Any, width: int) -> None:
    today = datetime.now(UTC)
    part = f"?from={time_range.iso(today - timedelta(minutes=21))}&to={time_range.iso(today - timedelta(minutes=17))}"
    pages = [f"/console/{page}{time}" for page in ("now", "engines", "engines/east-1", "engines/west-1")
             for time in ("?range=15m", "?range=1h", "?range=6h", "?range=24h", "?range=7d", part)]  # fmt: skip
    pages += [f"/console/spend?day={(today - timedelta(days=back)).date()}" for back in (0, 1, 4, 13, 24, 26, 27)]
    found = []
    with browser.launched() as chromium:
        reader = Reader(chromium, drawn, viewport={"width": width, "height": 900})
        reader.sign_in(Role.OPERATOR)
        for address in pages:
            reader.open(address)
            found += [f"{address}: {each}" for each in reader.faults()]
    assert found == []
