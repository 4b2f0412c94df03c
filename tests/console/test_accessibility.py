"""Claims about access: axe-core finds nothing on any page, in both themes, on wide and narrow screens."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app import processes
from app.access.roles import Role
from tests.console import browser
from tests.console.browser import Reader
from tests.console.walk import PAGES, work
from tests.system import stack as installations
from tests.system.stack import Stack

AXE = Path(__file__).parent / "vendor" / "axe.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
WIDTHS = (1440, 1280, 390)
THEMES = ("light", "dark")
pytestmark = pytest.mark.slow

World = tuple[Any, Stack, dict[str, str]]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    browser.require()
    with installations.running(console_port=processes.free_port()) as stack:
        address = f"http://127.0.0.1:{stack.settings.console_port}/console/health"
        installations.wait_for(lambda: httpx.get(address, trust_env=False).status_code == 200, what="console up")
        ids = work(stack)
        with browser.launched() as chromium:
            yield chromium, stack, ids


def violations(reader: Reader) -> list[str]:
    """What axe-core finds on the open page, with where. Its script is added from outside, past the page's policy."""
    found = reader.page.evaluate(
        "rules => axe.run(document, {runOnly: {type: 'tag', values: rules}}).then(result => result.violations.map("
        "each => each.id + ': ' + each.nodes.map(node => node.target + ' ' + (node.failureSummary || '')).join(' | ')))",
        RULES,
    )
    return [str(each)[:600] for each in found]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("theme", THEMES)
def test_axe_finds_nothing_on_any_page(world: World, theme: str, width: int) -> None:
    chromium, stack, ids = world
    readers: dict[Role, Reader] = {}
    found = []
    for name, role, address in PAGES:
        if role not in readers:
            look = {"viewport": {"width": width, "height": 900}, "color_scheme": theme, "bypass_csp": True}
            readers[role] = Reader(chromium, stack, **look)
            readers[role].context.add_init_script(path=AXE)
            readers[role].sign_in(role)
        assert readers[role].open(address(ids)) == 200
        readers[role].page.wait_for_timeout(1200)
        found += [f"{name}: {each}" for each in violations(readers[role])]
        wide = readers[role].page.evaluate(
            "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        )
        if wide:
            found.append(f"{name}: is wider than the screen")
    for reader in readers.values():
        reader.context.close()
    assert found == []
