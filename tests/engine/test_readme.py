"""The README, then the quickstart and the Workers AI page: every block pasted in order, against one installation."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app import processes
from app.environment import foreign_environment
from testing.waiting import wait_for
from tests.timing import note
from tests.walking import Block, Shell, blocks

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/quickstart.md", "docs/workers-ai.md")
FOREIGN = ("OPENAI_", "CLOUDFLARE_", "CURL_")  # what clients would read besides
START_SECONDS = 120


@pytest.fixture
def shell(clone: Path, engine_url: str, engine_token: str) -> Iterator[Shell]:
    """The reader's shell. Its installation uses the engine of this folder's tests, as if it were the reader's own."""
    inherited = {name: value for name, value in foreign_environment().items() if not name.startswith(FOREIGN)}
    own = {
        "HOME": str(clone),
        "NO_PROXY": "127.0.0.1,localhost",
        "PATH": f"{sys.prefix}/bin{os.pathsep}{inherited['PATH']}",
        "PYTHONPATH": str(ROOT),
        "SLACKWATER_DATA_DIR": str(clone / "data"),
        "SLACKWATER_ENGINE_API_KEY": engine_token,
        "SLACKWATER_ENGINE_SLOTS": "32",
        "SLACKWATER_ENGINE_URL": engine_url,
        "SLACKWATER_PORT": str(processes.free_port()),
    }
    with Shell(clone, {**inherited, **own}) as shell:
        yield shell


def test_every_block_of_the_first_pages_works_as_it_is_pasted(shell: Shell, clone: Path) -> None:
    walked = {page: [block for block in blocks((ROOT / page).read_text()) if not block.skipped] for page in PAGES}
    for block in (block for page in PAGES for block in walked[page]):
        if block.background:
            _started(shell, block, clone)
        else:
            shell.paste(block)
    note(", ".join(f"{page}: {len(pasted)} blocks pasted" for page, pasted in walked.items()))
    assert shell.ended() == []
    assert all(len(pasted) >= 2 for pasted in walked.values())


def _started(shell: Shell, block: Block, clone: Path) -> None:
    """Start what keeps running; go on when it is of use, as a reader would."""
    output = shell.start(block)
    if "slackwater up" in block.code:
        try:
            wait_for(lambda: "One answer now:" in output.read_text(), "the installation says Ready")
        except AssertionError:
            print(output.read_text()[-8000:])
            raise
