"""Claims about access: axe-core finds nothing on any page, in both themes, on wide and narrow screens."""

from collections.abc import Iterator

import pytest

from app.console.render import FOLDER
from tests.console import axe, browser
from tests.console.axe import THEMES, WIDTHS, World
from tests.console.walk import PAGES

LAYOUTS = {"base", "layout", "alone"}
WHOLE = ("<!doctype html>", "{% extends ")  # what a template of a whole page contains


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    browser.require()
    with axe.world() as made:
        yield made


def test_every_template_of_a_whole_page_is_walked() -> None:
    templates = (FOLDER / "templates").glob("**/*.html")
    whole = {each.stem for each in templates if any(sign in each.read_text() for sign in WHOLE)}
    assert {page.template for page in PAGES} == whole - LAYOUTS
    assert len({page.name for page in PAGES}) == len(PAGES)


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("theme", THEMES)
def test_axe_finds_nothing_on_any_page(world: World, theme: str, width: int) -> None:
    assert axe.walked(world, theme, width) == []
