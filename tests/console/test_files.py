"""Claims about the files that a page is made of: vendored ones are what their lock says, and templates can do no harm."""

import hashlib
import re
from pathlib import Path

import pytest

from app.console import static_files
from app.console.static_files import StaticFiles

CONSOLE = static_files.FOLDER.parent
TEMPLATES = sorted((CONSOLE / "templates").rglob("*.html"))
LOCKS = (static_files.FOLDER / "vendor" / "vendor.lock", Path(__file__).parent / "vendor" / "vendor.lock")
LICENCES = {"0BSD", "MIT", "MPL-2.0"}


@pytest.mark.parametrize("lock", LOCKS, ids=["served", "of the tests"])
def test_every_vendored_file_is_the_one_that_its_lock_names(lock: Path) -> None:
    rows = [line.split("  ") for line in lock.read_text().splitlines() if not line.startswith("#")]
    for name, package, version, licence, _, digest in rows:
        assert hashlib.sha256((lock.parent / name).read_bytes()).hexdigest() == digest, name
        assert package
        assert re.fullmatch(r"\d+\.\d+\.\d+", version)
        assert licence in LICENCES
    here = {file.name for file in lock.parent.iterdir() if not file.name.startswith("LICENSE")}
    assert here == {row[0] for row in rows} | {lock.name}


def test_no_template_switches_the_escaping_off_or_has_a_style_or_an_inline_script() -> None:
    for template in TEMPLATES:
        text = template.read_text()
        assert not re.search(r"\|\s*safe\b|autoescape|Markup", text), template
        assert not re.search(r"\sstyle=|<style|\son\w+=|javascript:|hx-on|js:", text), template
        assert not re.search(r"<script(?![^>]*nonce=)", text), template


def test_every_page_has_the_head_of_one_template() -> None:
    assert [template.name for template in TEMPLATES if "<!doctype" in template.read_text().lower()] == ["base.html"]


def test_what_is_streamed_has_no_attribute_of_htmx() -> None:
    for template in TEMPLATES:
        if template.parent.name != "templates" or template.stem in {"macros", "sprite"}:
            assert not re.search(r"\bhx-", template.read_text()), template


def test_no_module_marks_a_text_as_safe() -> None:
    for module in CONSOLE.rglob("*.py"):
        assert "Markup" not in module.read_text(), module


def test_the_first_page_loads_little() -> None:
    """Sixty kilobytes, gzipped, beside the HTML."""
    files = StaticFiles()
    first = (
        "vendor/htmx.js",
        "vendor/hx-csp.js",
        "vendor/hx-sse.js",
        "console.js",
        "plots.js",
        "console.css",
        "icon.svg",
    )
    assert sum(len(files._files[files.url(name)].packed) for name in first) < 45_000


def test_a_file_is_served_under_the_hash_of_its_content() -> None:
    files = StaticFiles()
    body = (static_files.FOLDER / "console.css").read_bytes()
    assert hashlib.sha256(body).hexdigest()[:12] in files.url("console.css")
