"""A browser for the console: Debian's Chromium, driven by Playwright. Nothing is downloaded.

Without one the tests are skipped (tests/needs.py).
"""

import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from app.access import sessions
from app.access.roles import Grant, Role
from app.cli.database import on_database
from app.db.pool import Connection
from app.tenants import service as tenants
from tests import needs
from tests.system.stack import ACCOUNT, MODEL, Stack

HOW = "`deploy/install-tools.sh`, or name one with SLACKWATER_TEST_BROWSER"
_NAMES = ("chromium", "chromium-browser", "google-chrome")
# What is wrong with the layout of the open page. The box of a text has some room above and below its letters.
_FAULTS = """() => {
  const found = [], width = document.documentElement.clientWidth;
  const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 4 && b.top < a.bottom - 4;
  const lines = cell => {
    const boxes = [], walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), range = document.createRange();
    while (walker.nextNode()) {
      if (!walker.currentNode.data.trim() || walker.currentNode.parentElement.closest('.sr')) continue;
      range.selectNodeContents(walker.currentNode);
      boxes.push(...range.getClientRects());
    }
    return boxes;
  };
  for (const row of document.querySelectorAll('main tbody tr')) {
    const cells = [...row.cells].map(cell => [cell.textContent.trim(), lines(cell)]);
    cells.forEach(([words, own], n) => {
      for (const [other, others] of cells.slice(n + 1)) {
        if (own.some(a => others.some(b => meet(a, b)))) found.push(`"${words}" lies on "${other}"`);
      }
    });
  }
  if (document.documentElement.scrollWidth > width) found.push('is wider than the screen');
  const texts = [...document.querySelectorAll('main svg text')].map(each => [each.textContent, each.getBoundingClientRect()])
    .filter(([words, box]) => words && box.width);
  texts.forEach(([words, a], n) => {
    if (a.left < -1 || a.right > width + 1) found.push(`"${words}" is cut`);
    for (const [other, b] of texts.slice(n + 1)) {
      if (meet(a, b)) found.push(`"${words}" lies on "${other}"`);
    }
  });
  const ruler = document.createElement('canvas').getContext('2d');
  for (const field of document.querySelectorAll('input[placeholder], textarea[placeholder]')) {
    const style = getComputedStyle(field);
    const room = field.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    ruler.font = style.font;
    const shown = field.clientWidth && getComputedStyle(field, '::placeholder').color !== 'rgba(0, 0, 0, 0)';
    if (shown && ruler.measureText(field.placeholder).width > room) found.push(`"${field.placeholder}" is cut`);
  }
  return found;
}"""


def missing() -> str:
    """Why no browser can be driven here; empty: one can."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "playwright is not installed: `make install`"
    return "" if path() else f"no Chromium is installed: {HOW}"


def path() -> str | None:
    """The installed browser."""
    return os.environ.get("SLACKWATER_TEST_BROWSER") or next(filter(None, map(shutil.which, _NAMES)), None)


def require() -> None:
    """Skip the test where there is no browser."""
    if reason := missing():
        needs.missing(reason)


@contextmanager
def launched() -> Iterator[Any]:
    """A running browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=path(), args=sandbox)
        try:
            yield browser
        finally:
            browser.close()


class Reader:
    """A page in the browser of somebody who has signed in, and what it has complained about."""

    def __init__(self, browser: Any, stack: Stack, account: str = ACCOUNT, **context: Any) -> None:
        usual = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce", "timezone_id": "UTC"}
        self.context = browser.new_context(**usual | context)
        self.base = f"http://127.0.0.1:{stack.settings.console_port}"
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.complaints: list[str] = []
        self.page.on("console", lambda message: self._hear(message.type, message.text))
        self.page.on("pageerror", lambda error: self._hear("error", str(error)))
        self._settings, self._account = stack.settings, account

    def _hear(self, kind: str, text: str) -> None:
        expected = "Failed to load resource" in text  # a refused page, which a test asked for
        if kind in ("error", "warning") and not expected:
            self.complaints.append(text)

    def sign_in(self, role: Role = Role.ADMIN, account: str = "", name: str = "ada") -> None:
        """Open a one-time link and press its button."""
        self.open(self.invite(role, account, name))
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url("**/console/now")

    def invite(self, role: Role = Role.ADMIN, account: str = "", name: str = "ada") -> str:
        """The address of a new one-time link."""
        account = account or self._account

        async def made(conn: Connection) -> str:
            tenant_id = await tenants.ensure_tenant(conn, account) if role.of_account else None
            return await sessions.invite(conn, Grant(name, role, tenant_id))

        with ThreadPoolExecutor(1) as apart:  # Playwright keeps an event loop in this thread
            token = apart.submit(on_database, self._settings, made).result()
        return f"/console/login?token={token}"

    def open(self, address: str) -> int:
        """Go to an address of the console. Returns the HTTP status."""
        answer = self.page.goto(self.base + address)
        assert answer is not None
        return int(answer.status)

    def faults(self) -> list[str]:
        """What is wrong with the layout of the open page: its width, texts that lie on each other or are cut."""
        return [str(each) for each in self.page.evaluate(_FAULTS)]

    def confirm(self, name: str, again: str | None = None) -> str:
        """Press a button that opens a confirmation, read it, and confirm. Returns what it said."""
        self.page.get_by_role("button", name=name, exact=True).first.click()
        dialog = self.page.locator("[popover]:popover-open")
        said = str(dialog.inner_text())
        dialog.get_by_role("button", name=again or name, exact=True).click()
        return said


def file_of(folder: Path, prompts: list[str], name: str = "prompts.jsonl") -> Path:
    """A batch file with a chat for each prompt."""
    lines = []
    for n, prompt in enumerate(prompts):
        body = {"model": MODEL, "messages": [{"role": "user", "content": prompt}], "max_tokens": 8}
        lines.append({"custom_id": f"item-{n}", "method": "POST", "url": "/v1/chat/completions", "body": body})
    file = folder / name
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def drop(reader: Reader, file: Path, name: str) -> str:
    """Drop a file on the page, and queue it. Returns the batch's id."""
    page = reader.page
    reader.open("/console/batches/new")
    page.locator("input[type=file]").set_input_files(file)
    page.wait_for_url("**/console/batches/new?file=*")
    page.get_by_label("Name").fill(name)
    page.get_by_role("button", name="Queue").click()
    page.wait_for_url("**?did=queued")
    return str(page.url.split("/batches/")[1].split("?")[0])
