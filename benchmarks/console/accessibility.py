"""Arm `axe`: what axe-core finds on every page, in both themes and at every width, with rules of WCAG 2.2 AA.

The pages, the installation and the browser are those of tests/console.
"""

from typing import Any

from benchmarks.harness import say
from tests.console import axe, browser
from tests.console.walk import PAGES


def accessibility(themes: int, widths: int) -> dict[str, Any]:
    """Walk in the first of the themes and widths. Null, with the reason, where no browser can be driven."""
    if reason := browser.missing():
        return {"axe_violations": None, "axe_not_run": reason}
    found: list[str] = []
    with axe.world() as world:
        for theme in axe.THEMES[:themes]:
            for width in axe.WIDTHS[:widths]:
                here = axe.walked(world, theme, width)
                say(f"axe, {theme}, {width} px: {len(here)} violations")
                found += [f"{theme}, {width} px, {each}" for each in here]
    return {
        "axe_violations": len(found),
        "axe_found": found[:20],
        "axe_pages": len(PAGES),
        "axe_looks": min(themes, len(axe.THEMES)) * min(widths, len(axe.WIDTHS)),
    }
