"""Folders with other versions of clients than the installed ones, and runs of pytest that import those.

A folder holds the client and all that it needs, in the versions of `constraints.txt`, so that what the tests import from it
is what the rest of the installation has too. One by hand:

    PYTHONPATH=.venv/clients/openai-2.30.0 .venv/bin/python -m pytest tests/clients/test_openai_batches.py
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]
HOME = Path(sys.prefix) / "clients"
_CONSTRAINTS = ROOT / "constraints.txt"
_STAMP = ".constraints"
_SECONDS = 600
_TAIL = 6000
# What pip says when it came to no index at all, beside what it says of a version that the index does not have.
_UNREACHABLE = re.compile(
    r"from versions: none|NewConnectionError|NameResolutionError|ProxyError|timed out", re.IGNORECASE
)


class Unreachable(Exception):
    """No package registry answers."""


@dataclass(frozen=True)
class Ran:
    """What a run of pytest came to; `clients`: the version and the place of each client that its tests could import."""

    code: int
    clients: Mapping[str, tuple[str, Path]]
    passed: int
    failed: int
    skipped: int
    tail: str


def made(package: str, version: str) -> Path:
    """The folder of this version of a client; made on the first call, in one step.

    Raises Unreachable, AssertionError with pip's words.
    """
    folder = HOME / f"{package}-{version}"
    # The line that pins the installed client is the one that must not count here.
    pins = "".join(line for line in _CONSTRAINTS.open() if not line.startswith(f"{package}=="))
    stamp = folder / _STAMP
    if stamp.exists() and stamp.read_text() == pins:
        return folder
    HOME.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=HOME) as temporary:
        new, constraints = Path(temporary) / "new", Path(temporary) / "constraints.txt"
        constraints.write_text(pins)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "2"]
        command += ["--timeout", "15"]
        command += ["--target", str(new), "--constraint", str(constraints), f"{package}=={version}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        if done.returncode and _UNREACHABLE.search(done.stderr):
            raise Unreachable(f"{package} {version} is not installed in {folder}, and pip reaches no package registry")
        assert done.returncode == 0, f"pip could not install {package} {version}\n{done.stdout}{done.stderr}"
        (new / _STAMP).write_text(pins)
        if folder.exists():
            folder.rename(Path(temporary) / "old")
        try:
            new.rename(folder)
        except OSError:
            assert stamp.exists()  # another run was faster
    return folder


def run(folder: Path, files: Sequence[Path], variables: Mapping[str, str], *, only: str = "") -> Ran:
    """Run those tests of the files that the expression `only` names, with this folder's client and these variables."""
    report = Path(tempfile.mkdtemp(prefix="slackwater-clients-")) / "report.xml"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--tb=short",
        f"--junitxml={report}",
        "-k",
        only,
    ]
    environment = {**os.environ, **variables, "PYTHONPATH": str(folder)}
    environment.pop("PYTEST_ADDOPTS", None)  # options of the run around this one
    try:
        done = subprocess.run(
            [*command, *map(str, files)],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        assert report.exists(), done.stdout[-_TAIL:]
        return _read(report, done)
    finally:
        shutil.rmtree(report.parent)


def _read(report: Path, done: subprocess.CompletedProcess[str]) -> Ran:
    suites = list(ElementTree.parse(report).iter("testsuite"))
    told = {each.get("name"): each.get("value") or "" for suite in suites for each in suite.iter("property")}
    tests, failures, errors, skipped = (
        sum(int(suite.get(name) or 0) for suite in suites) for name in ("tests", "failures", "errors", "skipped")
    )
    return Ran(
        done.returncode,
        {
            name: (version, Path(told[f"{name} location"]))
            for name, version in told.items()
            if f"{name} location" in told
        },
        tests - failures - errors - skipped,
        failures + errors,
        skipped,
        done.stdout[-_TAIL:],
    )
