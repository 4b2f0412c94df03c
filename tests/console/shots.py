"""`python -m tests.console.shots FOLDER`: pictures of every page, light, dark and 390 pixels wide, to be looked at.

The installation is a real one with an engine that is a fake; everything on the pictures was measured while they were made.
"""

import argparse
import math
import time
from pathlib import Path
from typing import Any

import httpx

from app import processes
from tests.console import browser
from tests.console.scenes import LOOKS
from tests.console.walk import call, opened, work
from tests.system import stack as installations
from tests.system.stack import Stack

_HISTORY_SECONDS = 90  # so that plots have points
_WAVE_SECONDS = 30
_SETTLE_MS = 1500


def main() -> None:
    """Start an installation, wait until there is something to see, and take the pictures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", default="shots", type=Path)
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    if reason := browser.missing():
        raise SystemExit(reason)
    with installations.running(console_port=processes.free_port()) as stack:
        address = f"http://127.0.0.1:{stack.settings.console_port}/console/health"
        installations.wait_for(lambda: httpx.get(address, trust_env=False).status_code == 200, what="console up")
        with browser.launched() as chromium:
            ids = work(stack, stack)
            _callers(stack)
            for name, look in LOOKS.items():
                _take(chromium, stack, ids, folder, name, look)


def _callers(stack: Stack) -> None:
    """Synchronous callers in waves, so that plots have points of both kinds of work."""
    began = time.monotonic()
    while (seconds := time.monotonic() - began) < _HISTORY_SECONDS:
        call(stack, int(seconds))
        time.sleep(1.0 - 0.96 * math.sin(math.pi * seconds / _WAVE_SECONDS) ** 4)


def _take(chromium: Any, stack: Stack, ids: dict[str, str], folder: Path, name: str, look: dict[str, Any]) -> None:
    for page, reader in opened(chromium, stack, ids, **look):
        reader.page.wait_for_timeout(_SETTLE_MS)
        reader.page.screenshot(path=folder / f"{page.name}-{name}.png", full_page=True)
        print(folder / f"{page.name}-{name}.png")


if __name__ == "__main__":
    main()
