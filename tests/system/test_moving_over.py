"""docs/moving-over.md: every block is pasted, with a second installation as the other batch API."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.environment import child_environment, foreign_environment
from tests.system.stack import Account, Stack, running
from tests.walking import Shell, blocks

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "moving-over.md").read_text()
THEIRS = """
[models."gpt-4.1-mini"]
serves = "smollm2-135m-instruct"
"""


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Stack]:
    """An installation in which the page's requests find their model."""
    models = tmp_path / "theirs.toml"
    models.write_text(f'extends = "slackwater"\n{THEIRS}')
    with running(models_file=models) as other:
        yield other


@pytest.fixture
def shell(installation: Stack, account: Account, other: Stack, tmp_path: Path) -> Iterator[Shell]:
    """The shell of somebody who has both keys."""
    own = {
        "HOME": str(tmp_path),
        "NO_PROXY": "127.0.0.1,localhost",
        "PATH": f"{sys.prefix}/bin{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "SLACKWATER_URL": account.url,
        "SLACKWATER_API_KEY": account.key,
        "OPENAI_BASE_URL": f"{other.url}/v1",
        "OPENAI_API_KEY": other.key,
    }
    with Shell(tmp_path, foreign_environment() | child_environment(installation.settings, {}) | own) as shell:
        yield shell


def test_a_workflow_moves_over_as_the_page_says(shell: Shell, account: Account, other: Stack, tmp_path: Path) -> None:
    said = "".join(shell.paste(block) for block in blocks(PAGE) if not block.skipped)
    assert "answered\t20 of 20\t20 of 20" in said
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 20
    here = account.client.get("/v1/batches").json()["data"]
    there = other.client.get("/v1/batches").json()["data"]
    assert (len(here), len(there)) == (2, 1)  # the shadow, and the workflow that has moved
    answers = [json.loads(line) for line in (tmp_path / "nightly-answers.jsonl").read_text().splitlines()]
    assert {each["response"]["body"]["model"] for each in answers} == {"smollm2-135m-instruct"}
