"""`slackwater up` as a new user sees it: on a terminal of 80 columns, and in a pipe. The printed commands are run."""

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.cli.log_lines import parse
from app.environment import child_environment
from testing.waiting import wait_for
from tests.system.stack import USUAL_UMASK, Stack

pytestmark = pytest.mark.slow

COLUMNS = 80
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Start:
    """An installation started by `slackwater up`, in a terminal or in a pipe, and what was shown of it."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        script = folder / "slackwater"
        script.write_text(f"#!{sys.executable}\nfrom app.cli.main import main\nmain()\n")
        script.chmod(0o755)
        path = f"{folder}:{os.environ['PATH']}"
        self.environment = child_environment(stack.settings, {"PATH": path, "PYTHONPATH": os.getcwd(), "TERM": "xterm"})
        self.command = [str(script), "up", "--attach", f"http://127.0.0.1:{stack.engine_port}"]
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    def until_ready(self, *, terminal: bool) -> tuple[str, str]:
        """Start, read until the box is closed, try what is to be pasted, stop. Returns what was shown, and the answer."""
        ours, theirs = pty.openpty() if terminal else os.pipe()
        if terminal:
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
        process = self.process = subprocess.Popen(
            self.command, env=self.environment, stdout=theirs, stderr=theirs, umask=USUAL_UMASK
        )
        os.close(theirs)
        shown = b""
        while b"--watch" not in shown:
            shown += (got := os.read(ours, 65536))
            assert got, shown.decode()
        text = _CONTROL.sub("", shown.decode().replace("\r\n", "\n"))
        synchronous, _, batch = text.partition("One answer now:\n")[2].partition("A batch:\n")
        answer = self.paste(synchronous)
        assert "2 of 2 succeeded" in (watched := self.paste(batch[: batch.index("--watch") + 7])), watched
        if terminal:
            self.second()
        process.send_signal(signal.SIGINT)
        os.set_blocking(ours, False)
        wait_for(lambda: self._drained(ours, process))
        assert process.returncode == 0
        return text, answer

    def _drained(self, ours: int, process: subprocess.Popen[bytes]) -> bool:
        with contextlib.suppress(OSError):
            os.read(ours, 65536)
        return process.poll() is not None

    def paste(self, commands: str) -> str:
        """What a shell with nothing but `slackwater` in its path prints."""
        known = {name: self.environment[name] for name in ("PATH", "PYTHONPATH")}
        shell = ["bash", "-c", commands]
        done = subprocess.run(
            shell, env=known, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
        )
        return done.stdout

    def second(self) -> None:
        """Another `up` on the same data directory says where this one runs."""
        done = subprocess.run(self.command, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "already runs on" in done.stderr
        assert self.environment["SLACKWATER_PORT"] in done.stderr
        assert "Traceback" not in done.stderr


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    stack = Stack(tmp_path)
    stack.start_engine()
    started = Start(stack, tmp_path)
    yield started
    if started.process:
        started.process.kill()
    stack.close()


def test_what_up_shows_can_be_pasted_as_it_stands_in_a_terminal_and_in_a_pipe(start: Start) -> None:
    shown, answer = start.until_ready(terminal=True)
    assert json.loads(answer)["choices"]
    assert re.search(r"^  Key      sk_sw_\S{50,}$", shown, re.MULTILINE)
    stages = re.findall(r"✓ (\w+)", shown)
    assert list(dict.fromkeys(stages)) == ["database", "schema", "API", "engine"]
    assert max(len(line) for line in shown.splitlines() if str(start.folder) not in line) <= COLUMNS
    assert "Traceback" not in shown
    assert not re.search("nvml|numa", shown, re.IGNORECASE)

    piped, again = start.until_ready(terminal=False)
    assert json.loads(again)["choices"]
    assert "sk_sw_" not in piped
    lines = piped.splitlines()
    assert [line.split()[0] for line in lines[:5]] == ["database", "schema", "API", "engine", "Ready"]
    assert not any(parse(line) for line in lines)
    assert lines[-1].endswith("--watch")
