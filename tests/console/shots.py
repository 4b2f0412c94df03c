"""`python -m tests.console.shots FOLDER`: pictures of every page, light, dark and 390 pixels wide, to be looked at.
`python -m tests.console.shots docs --readme`: the two of README, after five minutes of traffic.

The installation is a real one with an engine that is a fake; everything on the pictures was measured while they were made.
"""

import argparse
import math
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from app import processes
from app.console.views import time_range
from tests.console import browser
from tests.console.browser import Reader
from tests.console.walk import PAGES, call, opened, submit, work
from tests.system import stack as installations
from tests.system.stack import Stack

LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1440, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1440, "height": 900}, "color_scheme": "dark"},
    "390": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
    "390-dark": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"},
}
_HISTORY_SECONDS = 90  # so that plots have points
_WAVE_SECONDS = 30
_SETTLE_MS = 1500

README = {"now": "console-now.png", "batch": "console-batch.png"}
_README_SECONDS = {"batch": 150, "now": 300}  # of traffic before each is taken
_README_ITEMS = 2_000
_ALONE = 60  # callers before all batch work, with whom those beside it are compared
_README_WAVE_SECONDS = 160
_README_LOOK: dict[str, Any] = {"viewport": {"width": 1440, "height": 860}, "color_scheme": "light"}


def main() -> None:
    """Start an installation, wait until there is something to see, and take the pictures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", default="shots", type=Path)
    parser.add_argument("--readme", action="store_true")
    given = parser.parse_args()
    folder: Path = given.folder
    folder.mkdir(parents=True, exist_ok=True)
    if reason := browser.missing():
        raise SystemExit(reason)
    with installations.running(console_port=processes.free_port()) as stack:
        address = f"http://127.0.0.1:{stack.settings.console_port}/console/health"
        installations.wait_for(lambda: httpx.get(address, trust_env=False).status_code == 200, what="console up")
        with browser.launched() as chromium:
            if given.readme:
                _of_readme(chromium, stack, folder)
                return
            ids = work(stack, stack)
            _callers(stack, 0, _HISTORY_SECONDS, _WAVE_SECONDS)
            for name, look in LOOKS.items():
                _take(chromium, stack, ids, folder, name, look)


def _callers(stack: Stack, begin: float, end: float, wave: float) -> None:
    """Synchronous callers in waves, from one second to another, so that plots have points of both kinds of work."""
    began = time.monotonic() - begin
    while (seconds := time.monotonic() - began) < end:
        call(stack, int(seconds))
        time.sleep(1.0 - 0.96 * math.sin(math.pi * seconds / wave) ** 4)


def _of_readme(chromium: Any, stack: Stack, folder: Path) -> None:
    """The pictures of README, each once there was enough traffic."""
    began = datetime.now(UTC).replace(second=0, microsecond=0)  # callers' times are kept by the minute
    for n in range(_ALONE):
        call(stack, n)
    ids = work(stack, stack, _README_ITEMS)
    stack.client.post(
        f"/v1/pipelines/{ids['tickets']}/pause"
    ).raise_for_status()  # the batch would wait behind its stages
    submit(stack, "nightly-eval", [f"question {n} slowly" for n in range(24_000)])
    pages = {page.name: page for page in PAGES}
    before = 0
    for name, seconds in sorted(_README_SECONDS.items(), key=lambda each: each[1]):
        _callers(stack, before, seconds, _README_WAVE_SECONDS)
        before = seconds
        page = pages[name]
        assert page.role
        reader = Reader(chromium, stack, **_README_LOOK)
        reader.sign_in(page.role, "acme", "m.ruiz")
        reader.open(page.address(ids) if name != "now" else _since(began))
        reader.page.wait_for_timeout(_SETTLE_MS)
        reader.page.screenshot(path=folder / README[name], full_page=name == "now")
        reader.context.close()
        print(folder / README[name])


def _take(chromium: Any, stack: Stack, ids: dict[str, str], folder: Path, name: str, look: dict[str, Any]) -> None:
    for page, reader in opened(chromium, stack, ids, **look):
        reader.page.wait_for_timeout(_SETTLE_MS)
        reader.page.screenshot(path=folder / f"{page.name}-{name}.png", full_page=True)
        print(folder / f"{page.name}-{name}.png")


def _since(began: datetime) -> str:
    """The page Now with all of the time since then, and no more."""
    return f"/console/now?from={time_range.iso(began)}&to={time_range.iso(datetime.now(UTC))}"


if __name__ == "__main__":
    main()
