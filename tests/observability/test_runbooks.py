"""Claims about docs/runbooks: every page has the same parts, and its commands run on a real served."""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from app.environment import child_environment, foreign_environment
from tests.observability.support import PORTS, ROOT, RUNBOOKS, Installed
from tests.walking import Shell, blocks

PAGES = sorted(RUNBOOKS.glob("*.md"))
ALONE = "NoSteward"  # of `make test`
PARTS = ["What it means", "Check", "Mend", "Escalate"]
ACTS = re.compile(r"\b(drain|migrate|vacuum)\b")
READS = re.compile(r"slackwater (status|doctor|logs|\w+ list)\b[^\\]*")


@pytest.fixture(scope="module")
def shell(served: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """One shell, in which the first page has set its variables."""
    settings = served.stack.settings
    folder = tmp_path_factory.mktemp("runbooks")
    environment = (
        foreign_environment()
        | child_environment(settings, {})
        | {
            "HOME": str(folder),
            "PATH": os.pathsep.join([f"{sys.prefix}/bin", os.environ["PATH"]]),
            "PYTHONPATH": str(ROOT),
            "SLACKWATER_URL": served.account.url,
            "SLACKWATER_API_KEY": served.account.key,
            "WORKER_URL": f"http://127.0.0.1:{getattr(settings, PORTS['worker'])}",
            "NOTIFIER_URL": f"http://127.0.0.1:{getattr(settings, PORTS['notifier'])}",
        }
    )
    with Shell(folder, environment) as shell:
        for block in blocks((RUNBOOKS / "README.md").read_text()):
            shell.paste(block)
        yield shell


def unread(code: str, read: set[str]) -> str:
    """A block without the commands in `read`, which read and were run for an earlier page: twelve begin with the same one. Its
    own are added.
    """
    left = [line for line in code.splitlines() if line not in read]
    read.update(filter(READS.fullmatch, left))
    return "\n".join([*left, ""])


def test_the_commands_of_a_runbook_run(shell: Shell) -> None:
    paste([RUNBOOKS / f"{ALONE}.md"], shell)


@pytest.mark.slow
def test_the_commands_of_every_runbook_run(shell: Shell) -> None:
    paste(PAGES, shell)


def paste(pages: Sequence[Path], shell: Shell) -> None:
    """Run the blocks of these pages."""
    read = set[str]()
    for page in pages:
        runnable = [block for block in blocks(page.read_text()) if not block.skipped]
        assert runnable, page
        for block in runnable:
            try:
                shell.paste(replace(block, code=unread(block.code, read)))
            except AssertionError as error:
                error.add_note(f"{page.name}, line {block.line}")
                raise


def test_a_runbook_says_what_it_means_what_to_check_how_to_mend_and_whom_to_call() -> None:
    for page in PAGES:
        if page.stem == "README":
            continue
        text = page.read_text()
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == PARTS, page
        check = text.partition("## Check")[2].partition("## Mend")[0]
        assert "```bash" in check, page
        assert len(re.findall(r"^\| .+ \| .+ \|$", check, re.MULTILINE)) >= 3, page  # its head, and two findings
        acts = [block.code for block in blocks(check) if ACTS.search(block.code)]
        assert not acts, f"{page}: a check changes nothing"


def test_the_first_page_lists_every_runbook() -> None:
    listed = re.findall(r"^- \[(\w+)\]\(\1\.md\)", (RUNBOOKS / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(page.stem for page in PAGES if page.stem != "README")
