"""The README's blocks for clients, pasted against the installation with a fake engine; tests/engine has all on the real one."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.environment import child_environment, foreign_environment
from testing.waiting import wait_for
from tests.system.stack import Account, Stack
from tests.walking import Shell, blocks
from tests.webhooks.support import receiving

ROOT = Path(__file__).parents[2]
NAMED = "local"  # the account in the page's addresses


@pytest.fixture
def reader(installation: Stack) -> Account:
    """The reader's account."""
    return installation.account(NAMED)


@pytest.fixture
def shell(installation: Stack, reader: Account, tmp_path: Path) -> Iterator[Shell]:
    """The reader's shell, in a clone after `make install`."""
    (tmp_path / ".venv").symlink_to(sys.prefix)
    own = {
        "HOME": str(tmp_path),
        "NO_PROXY": "127.0.0.1,localhost",
        "PATH": f"{sys.prefix}/bin{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "SLACKWATER_API_KEY": reader.key,
        "SLACKWATER_URL": reader.url,
    }
    with Shell(tmp_path, foreign_environment() | child_environment(installation.settings, {}) | own) as shell:
        yield shell


def test_what_the_readme_says_to_clients_works_as_it_is_pasted_and_its_webhook_arrives(
    reader: Account, shell: Shell, tmp_path: Path
) -> None:
    page = [block for block in blocks((ROOT / "README.md").read_text()) if not block.skipped]
    [started] = [n for n, block in enumerate(page) if block.background]
    clients = page[started + 1 :]
    with receiving() as receiver:
        secret = reader.subscribe(receiver.url)
        said = "".join(shell.paste(block) for block in clients)
        assert "echo: Hello" in said

        request_id = json.loads((tmp_path / "queued.json").read_text())["result"]["request_id"]
        result = wait_for(lambda: reader.poll(request_id), what="the batch of `queueRequest`")
        assert [each["success"] for each in result["responses"]] == [True, True]

        def told() -> list[str]:
            events = [each.verified(secret) for each in list(receiver.requests)]
            return [event["type"] for event in events if event["payload"]["requestId"] == request_id]

        wait_for(lambda: len(told()) == 2, what="the webhooks")
    # In any order: an endpoint that is not `ordered` gets them as they come.
    assert set(told()) == {f"cf.workersAi.model.batch.{state}" for state in ("queued", "succeeded")}
