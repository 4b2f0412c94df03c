"""Claims about access: axe-core finds nothing on any page, in both themes, on wide and narrow screens."""

from collections.abc import Iterator

import pytest

from tests.console import axe, browser
from tests.console.axe import THEMES, WIDTHS, World

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    browser.require()
    with axe.world() as made:
        yield made


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("theme", THEMES)
def test_axe_finds_nothing_on_any_page(world: World, theme: str, width: int) -> None:
    assert axe.walked(world, theme, width) == []
