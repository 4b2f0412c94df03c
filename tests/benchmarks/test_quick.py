"""The quick form of every benchmark runs to its end, so that the full form does when it is wanted."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import benchmarks
from benchmarks.colocation.__main__ import TRACKS

HERE = Path(benchmarks.__file__).parent
MOST_MINUTES = 20  # as docs/benchmarks.md says
QUICK_SECONDS = 1800  # what would hang; each takes a few minutes on idle cores


ELSEWHERE = {"pipelines"}  # tests/pipelines/test_benchmark.py runs it, and looks at its figures


def commands() -> list[str]:
    """Every module or package of `benchmarks` that `python -m` runs; co-location is one for each track."""
    packages = [path.parent.name for path in HERE.glob("*/__main__.py")]
    modules = [path.stem for path in HERE.glob("*.py") if 'if __name__ == "__main__":' in path.read_text()]
    found = sorted({*packages, *modules} - ELSEWHERE)
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
    reasons = found.get("not_run", {})  # of the whole, or of each part
    parts = reasons.values() if isinstance(reasons, dict) else [reasons]
    assert [why for why in parts if "exit code" in why or "longer than" in why] == []


def test_no_benchmark_takes_longer_than_docs_say() -> None:
    minutes = {
        path.relative_to(HERE).parts[0]: [int(found) for found in re.findall(r"\bminutes=(\d+)", path.read_text())]
        for path in HERE.rglob("*.py")
    }
    long = {name for name, found in minutes.items() if max(found, default=0) > MOST_MINUTES}
    assert long <= {"colocation", "engines.py"}
