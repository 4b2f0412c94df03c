"""Claims about docs/console.md: for each page of the console it names routes that are in the API's document."""

import re
from pathlib import Path

from app.api import openapi_operations as operations
from app.console.nav import GROUPS
from tests.api import in_process

DOCS = Path(__file__).parents[2] / "docs" / "console.md"
TABLE = re.compile(r"\| Page \| An account \| The installation \|\n\|.*\|\n((?:\|.*\|\n)+)")
OWN = {"Signed in"}  # the console's own sessions


def rows() -> dict[str, list[str]]:
    """The routes of each page."""
    found: dict[str, list[str]] = {}
    [table] = TABLE.findall(DOCS.read_text())
    for line in table.splitlines():
        pages, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        for page in pages.split(", "):
            found[page] = [code for cell in cells for code in re.findall(r"`([^`]+)`", cell)]
    return found


def test_every_page_of_the_console_is_in_the_table_of_routes() -> None:
    known = {entry.name for group in GROUPS for entry in group} - OWN
    assert known <= set(rows())


def test_every_route_of_the_table_is_in_the_document() -> None:
    known = set()
    for path, methods in in_process.application().openapi()["paths"].items():
        known |= {operations.name(method, path) for method in methods}
    missing = []
    for page, codes in rows().items():
        base = ""
        for code in codes:
            if code.startswith("/"):
                base_or_part = f"{base}{code}"
                missing += [] if base_or_part in known else [(page, code)]
                base = base_or_part if code.endswith("deliveries") else base
                continue
            method, _, path = code.partition(" ")
            name = operations.name(
                method.lower(), re.sub(r"^…/", "/client/v4/accounts/{account_id}/", path.partition("?")[0])
            )
            missing += [] if name in known else [(page, code)]
            base = name
    assert missing == []
