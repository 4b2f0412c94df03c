"""`python -m tests.console.shots FOLDER`: pictures of every page, light, dark and 390 pixels wide, to be looked at.

The installation is a real one with an engine that is a fake; everything on the pictures was measured while they were made.
"""

import sys
import time
from pathlib import Path
from typing import Any

import httpx

from app import processes
from app.access.roles import Role
from tests.console import browser
from tests.console.browser import Reader
from tests.console.walk import PAGES, call, work
from tests.system import stack as installations
from tests.system.stack import Stack

LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1440, "height": 900}, "color_scheme": "dark"},
    "390": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
}
_HISTORY_SECONDS = 90  # so that plots have points
_SETTLE_MS = 1500


def main() -> None:
    """Start an installation, wait until there is something to see, and take the pictures."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "shots")
    folder.mkdir(parents=True, exist_ok=True)
    if reason := browser.missing():
        raise SystemExit(reason)
    with installations.running(console_port=processes.free_port()) as stack:
        address = f"http://127.0.0.1:{stack.settings.console_port}/console/health"
        installations.wait_for(lambda: httpx.get(address, trust_env=False).status_code == 200, what="console up")
        ids = work(stack)
        _callers(stack)
        with browser.launched() as chromium:
            for name, look in LOOKS.items():
                _take(chromium, stack, ids, folder, name, look)


def _callers(stack: Stack) -> None:
    """Synchronous callers in waves, so that plots have points of both kinds of work."""
    began = time.monotonic()
    while (seconds := time.monotonic() - began) < _HISTORY_SECONDS:
        call(stack, int(seconds))
        time.sleep(0.05 if seconds % 30 < 12 else 1.0)


def _take(chromium: Any, stack: Stack, ids: dict[str, str], folder: Path, name: str, look: dict[str, Any]) -> None:
    readers: dict[Role, Reader] = {}
    for page, role, address in PAGES:
        if role not in readers:
            readers[role] = Reader(chromium, stack, **look)
            readers[role].sign_in(role, "acme", "m.ruiz")
        readers[role].open(address(ids))
        readers[role].page.wait_for_timeout(_SETTLE_MS)
        readers[role].page.screenshot(path=folder / f"{page}-{name}.png", full_page=True)
        print(folder / f"{page}-{name}.png")


if __name__ == "__main__":
    main()
