"""Runs the code blocks of a documentation page in order, in one shell, as a reader would paste them.

A hidden comment in the line above a block changes how it runs:

    <!-- walk: skip REASON -->     it is only parsed, because it cannot run on a test machine or would disturb it
    <!-- walk: background -->      it keeps running until the end, as in another terminal
"""

import ast
import json
import os
import re
import shlex
import signal
import subprocess
import threading
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import yaml

from app import processes
from testing.waiting import LIMIT_SECONDS, wait_for

RUN = {"bash": "source {file} < /dev/null", "python": "python - < {file}"}  # how a block of a language is pasted
PARSED: dict[str, Callable[[str], object]] = {
    "python": ast.parse,
    "json": json.loads,
    "toml": tomllib.loads,
    "yaml": yaml.safe_load,
}
SHOWN = ("", "text", "mermaid", "js", "ts")  # not run; JavaScript has its own tests
_BLOCK = re.compile(
    r"(?:^<!-- walk: (?P<mark>[^\n]*?) *-->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
_MARK = re.compile(r"skip \S.*|background")
_WALK = "DOCUMENTATION_WALK"  # environment variable of every process that a walk starts


@dataclass(frozen=True)
class Block:
    """One code block. `line`: its first line in the page. `mark`: the text of the hidden comment above it."""

    line: int
    language: str
    mark: str
    code: str

    @property
    def skipped(self) -> bool:
        """Whether the block is only parsed."""
        return self.language not in RUN or self.mark.startswith("skip")

    @property
    def background(self) -> bool:
        """Whether the block keeps running."""
        return self.mark == "background"

    def problem(self) -> str:
        """The error in its mark, its language or its syntax; empty if there is none."""
        if self.mark and not _MARK.fullmatch(self.mark):
            return f"unknown mark {self.mark!r}: it is `skip REASON` or `background`"
        if self.language == "bash":
            return subprocess.run(["bash", "-n"], input=self.code, capture_output=True, text=True, check=False).stderr
        if self.language not in (*PARSED, *SHOWN):
            return f"nobody knows how to walk a block of {self.language}"
        try:
            PARSED.get(self.language, str)(self.code)
        except (SyntaxError, ValueError, yaml.YAMLError) as error:
            return f"{type(error).__name__}: {error}"
        return ""


def blocks(page: str) -> list[Block]:
    """The code blocks of a page, in order."""
    return [
        Block(
            page.count("\n", 0, found.start("code")) + 1,
            found["language"],
            (found["mark"] or "").strip(),
            found["code"],
        )
        for found in _BLOCK.finditer(page)
    ]


class Shell:
    """One bash that runs block after block and records every command that fails.

    Its `curl` also fails on an HTTP error, and prints the answer.
    """

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._notes = folder / ".walk"
        self._notes.mkdir()
        (self._notes / ".curlrc").write_text("fail-with-body\nshow-error\n")
        self._failed = self._notes / "failed"
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            env={**environment, "CURL_HOME": str(self._notes), _WALK: str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._mark = str(folder)
        self._background: dict[int, Block] = {}
        noted = f'echo "$BASH_COMMAND" >> {shlex.quote(str(self._failed))}'
        self._tell(f"set -mE -o pipefail; trap {shlex.quote(noted)} ERR")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the shell and all processes that it started, with SIGINT, then with SIGKILL."""
        for leader in self._background:
            processes.signal_group(leader, signal.SIGTERM)
        deadline = time.monotonic() + LIMIT_SECONDS
        while any(map(_group_lives, self._background)) and time.monotonic() < deadline:
            time.sleep(0.1)
        deadline = time.monotonic() + 10
        while (left := processes.marked(_WALK, self._mark)) and time.monotonic() < deadline:
            processes.kill(left)
            time.sleep(0.02)  # a killed process is seen until the kernel has cleared it away
        self._bash.communicate()

    def paste(self, block: Block) -> str:
        """Run the block and return its output. Asserts that none of its commands fails."""
        self._failed.unlink(missing_ok=True)
        output = self._run(block, "; echo done")
        guard = threading.Timer(LIMIT_SECONDS, processes.kill, ([self._bash.pid],))
        guard.start()
        finished = self._line() == "done"
        guard.cancel()
        said = output.read_text(errors="replace")
        errors = self._failed.read_text() if self._failed.exists() else ""
        assert finished, f"line {block.line}: the shell has ended, or was ended after {LIMIT_SECONDS} s\n{said}"
        assert not errors, f"line {block.line}: failed: {errors}\n{said[-4000:]}"
        return said

    def start(self, block: Block) -> Path:
        """Run the block in the background. Returns the file of its output, once it has printed something."""
        output = self._run(block, "& echo $!")
        self._background[int(self._line())] = block
        wait_for(lambda: output.exists() and output.stat().st_size, f"a word of line {block.line}")
        return output

    def ended(self) -> list[Block]:
        """The background blocks that have ended."""
        return [block for leader, block in self._background.items() if not _lives(leader)]

    def _run(self, block: Block, then: str) -> Path:
        file = self._notes / f"{block.line}.{block.language}"
        file.write_text(block.code)
        output = file.with_suffix(".out")
        self._tell(
            f"{RUN[block.language].format(file=shlex.quote(str(file)))} > {shlex.quote(str(output))} 2>&1 {then}"
        )
        return output

    def _tell(self, line: str) -> None:
        assert self._bash.stdin is not None
        self._bash.stdin.write(line + "\n")
        self._bash.stdin.flush()

    def _line(self) -> str:
        assert self._bash.stdout is not None
        return self._bash.stdout.readline().strip()


def _group_lives(leader: int) -> bool:
    """Whether any process of the group is left."""
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    return True


def _lives(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
