"""The documentation against the code: tests that it names, links, settings."""

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from inspect import getdoc
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from starlette.routing import Route

from app import __version__, errors
from app.api.app import create_app
from app.batches.validation import text_kinds
from app.openai_codes import OpenAICode
from app.settings import PACKAGE, Settings
from tests import wrong_texts
from tests.harvest.test_in_vllm import FILES as IN_VLLM
from tests.walking import blocks
from workers.engine.door.settings import VARIABLES as DOOR_VARIABLES

ROOT = Path(__file__).parents[1]
SETTINGS = ROOT / "docs" / "settings.md"
ERRORS = ROOT / "docs" / "errors.md"
GUARANTEES = ROOT / "GUARANTEES.md"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
TEST = re.compile(r"(tests/[\w/]+\.py)(?:::(\w+))?|`(test_\w+)`")
LINK = re.compile(r"]\((?!\w+:|#)([^)#\s]+)")
VARIABLE = re.compile(r"SLACKWATER_([A-Z][A-Z_]*[A-Z])")
# What docker-compose.yml read from .env once, a variable of tests, and the variables of an engine's door.
NOT_SETTINGS = {"password", "examples", *(name.removeprefix("SLACKWATER_").lower() for name in DOOR_VARIABLES)}
SLOW = "pytest.mark.slow"
ONLY_ALL = " (`make test-all`)"
NAMED = re.compile(r"`(?P<path>tests/[\w/]+\.py)?(?P<colons>(?:::)?)(?P<name>(?:test_\w+)?)`(?: \(`make test-all`\))?")


def named_tests(text: str) -> Iterator[tuple[str, str]]:
    """Each file and test that the text names. A test without a file belongs to the last file; the name of a file alone is ""."""
    last = ""
    for path, name, alone in TEST.findall(text):
        last = path or last
        yield last, name or alone


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "".join(f"| {' | '.join(row)} |\n" for row in (heads, *rows)).replace("\n", f"\n{'|---' * len(heads)}|\n", 1)


def settings() -> str:
    """Every setting with its default and meaning, as it stands in docs/settings.md."""
    rows = (
        (f"`SLACKWATER_{name.upper()}`", default(field.default), str(field.description))
        for name, field in Settings.model_fields.items()
    )
    return table(("variable", "default", "meaning"), rows)


def answers() -> str:
    """Every error of the API, as it stands in docs/errors.md: the bases before those that are more exact."""
    kinds = [each for each in vars(errors).values() if isinstance(each, type) and each.__module__ == errors.__name__]
    rows = (
        (
            " or ".join(map(str, (kind.status, *vars(kind).get("other_statuses", ())))),
            str(kind.code),
            ", ".join(f"`{code}`" for code in (kind.reason, *vars(kind).get("other_reasons", ())) if code),
            " ".join((getdoc(kind) or "").partition("\n\n")[0].split()),
            kind.fix,
        )
        for kind in kinds
        if kind is not errors.SlackwaterError
    )
    return table(("status", "Cloudflare's code", "OpenAI's code", "cause", "what to do"), rows)


def codes() -> str:
    """Every code of OpenAI's errors, as it stands in docs/errors.md."""
    return table(("code", "cause", "what to do"), ((f"`{each}`", each.cause, each.fix) for each in OpenAICode))


def kinds() -> str:
    """What a text as a whole is called that is not the JSON that was asked for, as it stands in docs/errors.md."""
    named = [what for _, what in (*text_kinds.KINDS, *text_kinds.FORMS)]
    found = dict.fromkeys([*filter(None, wrong_texts.FILES), *named])
    return table(("it is", "what to do"), sorted(each.partition("; ")[::2] for each in found))


def texts() -> str:
    """Texts with one fault, and what is said of them, as it stands in docs/errors.md."""
    rows = ((", ".join(map(code, shown)), *said.partition("; ")[::2]) for said, shown in wrong_texts.TEXTS.items())
    return table(("sent", "said", "what to do"), rows)


def code(text: str) -> str:
    """A text as code in a table; what cannot be seen is written as an escape."""
    shown = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
    marks = "``" if "`" in shown else "`"
    return f"{marks}{shown}{marks}" if shown else "nothing"


def default(value: Any) -> str:
    """A default as a reader on another machine would see it."""
    text = value.get_secret_value() if isinstance(value, SecretStr) else str(value)
    text = text.replace(str(PACKAGE), PACKAGE.name).replace(str(Path.home()), "~")
    return f"`{text}`" if text else "empty"


TABLES = {SETTINGS: {"settings": settings}, ERRORS: {"errors": answers, "codes": codes, "kinds": kinds, "texts": texts}}


def renewed(path: Path) -> str:
    """A page with its tables as the code has them, each below a comment with its name."""
    page = path.read_text()
    for name, made in TABLES[path].items():
        page = re.sub(rf"(<!-- {name} -->\n)(\|.*\n)*", lambda mark, made=made: mark[1] + made(), page)  # type: ignore[misc]
    return page


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.name)
def test_the_tables_of_a_page_are_those_of_the_code(path: Path) -> None:
    assert path.read_text() == renewed(path), f"{path.name} is behind the code; renew it: python -m tests.test_docs"


def every_error() -> list[type[errors.SlackwaterError]]:
    create_app(Settings())  # which imports them all
    found = [errors.SlackwaterError]
    for kind in found:
        found += kind.__subclasses__()
    return found


def test_every_error_has_the_statuses_and_codes_that_its_class_lists() -> None:
    texts = [path.read_text() for path in (ROOT / "app").rglob("*.py")]
    nodes = [
        node
        for text in texts
        if "app.errors import" in text or "OpenAICode" in text
        for node in ast.walk(ast.parse(text))
    ]
    calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    for kind in every_error():
        words = [word for call in calls if call.func.id == kind.__name__ for word in call.keywords]  # type: ignore[attr-defined]
        given = [(word.arg, inner) for word in words for inner in ast.walk(word.value)]
        statuses = {inner.value for name, inner in given if name == "status" and isinstance(inner, ast.Constant)}
        codes = {inner.attr for name, inner in given if name == "reason" and isinstance(inner, ast.Attribute)}
        assert statuses <= {kind.status, *kind.other_statuses}, kind
        known = {OpenAICode[code] for code in codes if code in OpenAICode.__members__}
        assert known <= {kind.reason, *kind.other_reasons}, kind
        listed = kind.__module__ == errors.__name__ or not {"status", "code", "reason"} & vars(kind).keys()
        assert listed, kind
    used = {
        node.attr for node in nodes if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "OpenAICode"
    }
    assert used >= set(OpenAICode.__members__)


def on_pages(wrong: Callable[[Path, str], Iterable[object]], *more: Path) -> dict[str, list[object]]:
    """What is wrong on each page that has something wrong."""
    found = {str(page.relative_to(ROOT)): list(wrong(page, page.read_text())) for page in (*PAGES, *more)}
    return {page: problems for page, problems in found.items() if problems}


def test_every_variable_that_is_named_is_a_setting() -> None:
    known = {*NOT_SETTINGS, *Settings.model_fields}
    named = on_pages(lambda _, text: {*map(str.lower, VARIABLE.findall(text))} - known, ROOT / "docker-compose.yml")
    assert named == {}


def test_every_relative_link_leads_somewhere() -> None:
    assert on_pages(lambda page, text: (to for to in LINK.findall(text) if not (page.parent / to).exists())) == {}


def test_every_test_that_is_named_exists() -> None:
    text_of = cache(lambda path: (ROOT / path).read_text() if (ROOT / path).is_file() else "")

    def missing(_: Path, text: str) -> Iterator[str]:
        for path, name in named_tests(text):
            if not text_of(path) or (name and f"def {name}(" not in text_of(path)):
                yield f"{path}::{name}"

    assert on_pages(missing) == {}


def test_every_code_block_can_be_parsed() -> None:
    def wrong(_: Path, text: str) -> Iterator[str]:
        return (f"line {each.line}: {problem}" for each in blocks(text) if (problem := each.problem()))

    assert on_pages(wrong) == {}


def test_the_readme_says_which_version_it_is() -> None:
    assert f"*Version {__version__}" in (ROOT / "README.md").read_text()


def test_every_mark_of_the_readme_stands_above_a_block() -> None:
    page = (ROOT / "README.md").read_text()
    assert page.count("<!-- walk:") == sum(bool(block.mark) for block in blocks(page))


def test_the_proxy_of_the_production_page_publishes_what_is_for_callers_and_nothing_else() -> None:
    [hidden] = re.findall(r"location ~ (\S+) { return 404; }", (ROOT / "docs" / "production.md").read_text())
    paths = {route.path for route in create_app(Settings()).routes if isinstance(route, Route)}
    shown = {path.split("/")[1] for path in paths if not re.match(hidden, path)}
    assert shown == {"", "client", "docs", "health", "openapi.json", "ready", "v1", "version"}


def test_every_promise_names_a_test() -> None:
    promises = GUARANTEES.read_text().split("\n## ")[1:]
    numbered = [promise for promise in promises if promise[0].isdigit()]
    assert numbered
    for promise in numbered:
        assert any(name for _, name in named_tests(promise)), promise.partition("\n")[0]


@cache
def slow_tests(path: str) -> set[str] | None:
    """The tests of a file that only `make test-all` runs, by the marks of the tests; None means all, by the mark of the file."""
    found = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark" and SLOW in ast.unparse(node):
            return None
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and SLOW in map(ast.unparse, node.decorator_list):
            found.add(node.name)
    return found


def only_slow(path: str, name: str) -> bool:
    """Whether only `make test-all` runs this test."""
    slow = set() if path in IN_VLLM else slow_tests(path)
    return slow is None or name in slow


def test_every_promise_says_which_of_its_tests_only_make_test_all_runs() -> None:
    text = GUARANTEES.read_text()
    assert text == marked(text), "GUARANTEES.md is behind the tests; renew it: python -m tests.test_docs"


def test_make_test_runs_a_proof_of_every_promise() -> None:
    for promise in GUARANTEES.read_text().split("\n## ")[1:]:
        names = [(path, name) for path, name in named_tests(promise) if name]
        assert not names or not all(only_slow(path, name) for path, name in names), promise.partition("\n")[0]


def marked(text: str) -> str:
    """GUARANTEES.md with a mark behind each test that only `make test-all` runs."""
    head, proofs, rest = text.partition("\n## ")
    last = ""

    def renewed(found: re.Match[str]) -> str:
        nonlocal last
        path, colons, name = found["path"] or "", found["colons"], found["name"]
        if not path and not name:
            return found[0]
        last = path or last
        slow = bool(name) and only_slow(last, name)
        return f"`{path}{colons}{name}`{ONLY_ALL if slow else ''}"

    return head + proofs + NAMED.sub(renewed, rest)


if __name__ == "__main__":
    for page in TABLES:
        page.write_text(renewed(page))
    GUARANTEES.write_text(marked(GUARANTEES.read_text()))
