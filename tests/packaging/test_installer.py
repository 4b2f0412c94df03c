"""Claims about what the scripts of deploy say while they work."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from testing.waiting import LIMIT_SECONDS

ROOT = Path(__file__).parents[2]
SLOW_PYTHON = """#!/bin/sh
case "$*" in *" install "*) sleep 0.3 ;; esac
"""
# As when files vanish while it counts them.
COMPLAINING_DU = """#!/bin/sh
sleep 0.15
echo "du: cannot access '.venv/.downloads'" >&2
echo "5	.venv"
exit 1
"""


def test_an_installation_says_again_and_again_how_far_it_is_and_leaves_nothing_behind(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "deploy/install.sh"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "deploy" / "locked", tmp_path / "deploy" / "locked")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(SLOW_PYTHON)
    python.chmod(0o755)
    (tools := tmp_path / "tools").mkdir()
    (tools / "du").write_text(COMPLAINING_DU)
    (tools / "du").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "ENGINE": "none",
        "PYTHON": sys.executable,
        "TELL": "0.05",
    }
    done = subprocess.run(
        [str(tmp_path / "deploy" / "install.sh")],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT_SECONDS,
    )
    told = done.stderr.splitlines()
    assert all(line.startswith("install: ") for line in told)
    assert sum("MB so far" in line for line in told) > 1
    assert told[-1].startswith("install: done after")
    assert sorted(each.name for each in (tmp_path / ".venv").iterdir() if "installed" not in each.name) == ["bin"]


def test_the_wheel_of_the_plug_in_is_named_where_it_lies(tmp_path: Path) -> None:
    script = [str(ROOT / "deploy" / "build-plugin.sh"), str(tmp_path)]
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run(script, env=environment, capture_output=True, text=True, check=True, timeout=LIMIT_SECONDS)
    assert [done.stdout.strip()] == [str(each) for each in tmp_path.iterdir()]
