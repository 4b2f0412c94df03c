"""The documentation against the code: tests that it names, links, settings."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from app.settings import PACKAGE, Settings
from tests.walking import blocks
from workers.engine.door.settings import VARIABLES as DOOR_VARIABLES

ROOT = Path(__file__).parents[1]
SETTINGS = ROOT / "docs" / "settings.md"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
EACH_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))

TEST = re.compile(r"(tests/[\w/]+\.py)(?:::(\w+))?|`(test_\w+)`")
LINK = re.compile(r"]\((?!\w+:|#)([^)#\s]+)")
VARIABLE = re.compile(r"SLACKWATER_([A-Z][A-Z_]*[A-Z])")
# The database's password, which docker-compose.yml reads from .env, and the variables of an engine's door.
NOT_SETTINGS = {"password", *(name.removeprefix("SLACKWATER_").lower() for name in DOOR_VARIABLES)}
MARKER = "<!-- settings -->\n"
SLOW = "pytest.mark.slow"


def named_tests(text: str) -> Iterator[tuple[str, str]]:
    """Each file and test that the text names. A test without a file belongs to the last file; the name of a file alone is ""."""
    last = ""
    for path, name, alone in TEST.findall(text):
        last = path or last
        yield last, name or alone


def table() -> str:
    """Every setting with its default and meaning, as it stands in docs/settings.md."""
    rows = ["| variable | default | meaning |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        rows.append(f"| `SLACKWATER_{name.upper()}` | {default(field.default)} | {field.description} |")
    return "\n".join(rows) + "\n"


def default(value: Any) -> str:
    """A default as a reader on another machine would see it."""
    text = value.get_secret_value() if isinstance(value, SecretStr) else str(value)
    text = text.replace(str(PACKAGE), PACKAGE.name).replace(str(Path.home()), "~")
    return f"`{text}`" if text else "empty"


def renewed(page: str) -> str:
    """docs/settings.md with the table as the code has it."""
    return page.partition(MARKER)[0] + MARKER + table()


def test_the_settings_page_is_that_of_the_code() -> None:
    page = SETTINGS.read_text()
    assert page == renewed(page), "docs/settings.md is behind app/settings.py; renew it: python -m tests.test_docs"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "docker-compose.yml"], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_variable_that_is_named_is_a_setting(page: Path) -> None:
    named = {name.lower() for name in VARIABLE.findall(page.read_text())}
    assert named - NOT_SETTINGS <= Settings.model_fields.keys()


@EACH_PAGE
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    missing = [target for target in LINK.findall(page.read_text()) if not (page.parent / target).exists()]
    assert not missing


@EACH_PAGE
def test_every_test_that_is_named_exists(page: Path) -> None:
    for path, name in named_tests(page.read_text()):
        assert (ROOT / path).is_file(), path
        assert not name or f"def {name}(" in (ROOT / path).read_text(), f"{path}::{name}"


@EACH_PAGE
def test_every_code_block_can_be_parsed(page: Path) -> None:
    assert {block.line: block.problem() for block in blocks(page.read_text()) if block.problem()} == {}


def test_every_mark_of_the_readme_stands_above_a_block() -> None:
    page = (ROOT / "README.md").read_text()
    assert page.count("<!-- walk:") == sum(bool(block.mark) for block in blocks(page))


def test_every_promise_names_a_test() -> None:
    promises = (ROOT / "GUARANTEES.md").read_text().split("\n## ")[1:]
    numbered = [promise for promise in promises if promise[0].isdigit()]
    assert numbered
    for promise in numbered:
        assert any(name for _, name in named_tests(promise)), promise.partition("\n")[0]


def only_slow(path: str, name: str) -> bool:
    """Whether only `make slow` runs this test, by the marks of its file and its own."""
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark" and SLOW in ast.unparse(node):
            return True
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return any(ast.unparse(mark) == SLOW for mark in node.decorator_list)
    return False


def test_every_promise_says_which_of_its_tests_only_make_slow_runs() -> None:
    text = (ROOT / "GUARANTEES.md").read_text()
    named = set(named_tests(text))
    for path, name in named:
        if not name and any(path == other and test for other, test in named):
            continue  # a heading of the tests that follow
        marked = f"`{name or path}` (`make slow`)" in text
        assert marked == only_slow(path, name), f"{path} {name}"


if __name__ == "__main__":
    SETTINGS.write_text(renewed(SETTINGS.read_text()))
