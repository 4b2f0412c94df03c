"""Claims about the walk through a page: what fails is noticed, what is exported stays, what was started ends."""

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from app import processes
from testing.waiting import wait_for
from tests.walking import Block, Shell, blocks

PAGE = """
# A page

```bash
export WORD=tide
```

<!-- walk: skip it needs the sea -->
```bash
sail
```

```python
print(1)
```

<!-- walk: background -->
```bash
sleep 60
```
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """What a shell needs."""
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}


@pytest.fixture
def shell(tmp_path: Path, environment: dict[str, str]) -> Iterator[Shell]:
    """A shell in an empty folder."""
    with Shell(tmp_path, environment) as shell:
        yield shell


def bash(code: str, line: int = 1) -> Block:
    """A block without a mark."""
    return Block(line, "bash", "", code)


def test_blocks_come_in_order_with_their_lines_and_marks() -> None:
    found = [(block.line, block.language, block.mark, block.skipped, block.background) for block in blocks(PAGE)]
    assert found == [
        (5, "bash", "", False, False),
        (10, "bash", "skip it needs the sea", True, False),
        (14, "python", "", False, False),
        (19, "bash", "background", False, True),
    ]
    assert not any(block.problem() for block in blocks(PAGE))


@pytest.mark.parametrize(
    "wrong",
    [
        bash("if true"),
        Block(1, "python", "", "def"),
        Block(1, "json", "", "{"),
        Block(1, "bash", "skip", "true"),
        Block(1, "fish", "", "true"),
    ],
    ids=["bash", "python", "json", "a skip without a reason", "a language that nobody walks"],
)
def test_a_block_that_cannot_be_walked_says_why(wrong: Block) -> None:
    assert wrong.problem()


def test_what_one_block_exports_the_next_ones_see(shell: Shell) -> None:
    shell.paste(bash("export WORD=tide\ncd /"))
    assert shell.paste(bash('echo "$WORD $PWD"', 2)) == "tide /\n"
    assert shell.paste(Block(3, "python", "", "import os\nprint(os.environ['WORD'])")) == "tide\n"


@pytest.mark.parametrize(
    "code",
    [
        "false\necho on",
        "false | cat",
        "export WORD=$(cat /nowhere)",
        "nowhere",
        "exit 0",
    ],
)
def test_a_command_that_fails_anywhere_in_a_block_is_noticed(shell: Shell, code: str) -> None:
    with pytest.raises(AssertionError, match="line 1: "):
        shell.paste(bash(code))


def test_a_python_block_that_fails_is_noticed(shell: Shell) -> None:
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        shell.paste(Block(7, "python", "", "1 / 0"))


def test_an_http_error_is_noticed_and_its_answer_shown(shell: Shell) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)  # it answers 501 to whatever it is asked
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with pytest.raises(AssertionError, match=r"line 1: failed: curl(.|\n)*Unsupported method"):
        shell.paste(bash(f"curl -s http://127.0.0.1:{server.server_port}/"))
    server.shutdown()
    server.server_close()


def test_what_was_started_ends_with_the_walk(tmp_path: Path, environment: dict[str, str]) -> None:
    with Shell(tmp_path, environment) as shell:
        output = shell.start(Block(1, "bash", "background", "sleep 600 &\nsetsid sleep 600 &\necho started\nwait"))
        assert output.read_text() == "started\n"
        assert shell.ended() == []
        assert len(processes.marked("DOCUMENTATION_WALK", str(tmp_path))) >= 3
    assert processes.marked("DOCUMENTATION_WALK", str(tmp_path)) == []


def test_what_was_to_keep_running_and_did_not_is_told(shell: Shell) -> None:
    block = Block(1, "bash", "background", "echo no; exit 1")
    shell.start(block)
    assert wait_for(shell.ended) == [block]
