"""What axe-core finds on every page, with rules of WCAG 2.2 AA. The test and benchmarks.console walk the same way."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from app import processes
from testing.waiting import wait_for
from tests.console import browser
from tests.console.browser import Reader
from tests.console.walk import opened, work
from tests.system import stack as installations
from tests.system.stack import Stack

AXE = Path(__file__).parent / "vendor" / "axe.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
WIDTHS = (1440, 1280, 390)
THEMES = ("light", "dark")
_SETTLE_MS = 1200
World = tuple[Any, Stack, dict[str, str]]


@contextmanager
def world() -> Iterator[World]:
    """A browser, and an installation with work in every state."""
    with installations.running(console_port=processes.free_port()) as stack:
        address = f"http://127.0.0.1:{stack.settings.console_port}/console/health"
        wait_for(lambda: httpx.get(address, trust_env=False).status_code == 200, what="console up")
        ids = work(stack, stack)
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


def walked(world: World, theme: str, width: int) -> list[str]:
    """What is found on all pages in this theme and at this width; also faults of their layout."""
    chromium, stack, ids = world
    look: dict[str, Any] = {"viewport": {"width": width, "height": 900}, "color_scheme": theme, "bypass_csp": True}
    found = []
    for page, reader in opened(chromium, stack, ids, script=AXE, **look):
        reader.page.wait_for_timeout(_SETTLE_MS)
        found += [f"{page.name}: {each}" for each in violations(reader)]
        found += [f"{page.name}: {each}" for each in reader.faults()]
    return found
