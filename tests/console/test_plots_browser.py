"""Claims about plots in a real browser: keys and a pointer read their values, and a drag chooses the time of the page."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from app.access.roles import Role
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
