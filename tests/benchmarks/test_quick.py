"""The quick form of every benchmark runs to its end, so that the full form does when it is wanted."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import benchmarks
from benchmarks.colocation.__main__ import TRACKS

HERE = Path(benchmarks.__file__).parent
QUICK_SECONDS = 1800  # what would hang; each takes a minute or two on idle cores


def commands() -> list[str]:
    """Every module or package of `benchmarks` that `python -m` runs; co-location is one for each track."""
    packages = [path.parent.name for path in HERE.glob("*/__main__.py")]
    modules = [path.stem for path in HERE.glob("*.py") if 'if __name__ == "__main__":' in path.read_text()]
    found = sorted([*packages, *modules])
    return [
        each for name in found for each in ([f"{name} {track}" for track in TRACKS] if name == "colocation" else [name])
    ]


@pytest.mark.slow
@pytest.mark.parametrize("command", commands())
def test_the_quick_form_of_every_benchmark_runs_to_its_end(command: str) -> None:
    name, *track = command.split()
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *track, "--quick", "--json"],
        env=os.environ,
        cwd=HERE.parent,
        check=False,
        capture_output=True,
        text=True,
        timeout=QUICK_SECONDS,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["benchmark"], found["quick"]) == (command, True)
    assert found["machine"]
    assert "error" not in found
