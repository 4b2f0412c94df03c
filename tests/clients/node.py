"""Installs the JavaScript clients of `package-lock.json`, and runs single tests of the `.mjs` files beside it.

The tests use Node's own runner. To run one file alone, against any installation:

    BASE_URL=http://127.0.0.1:8700 API_KEY=… ACCOUNT=local MODEL=… node tests/clients/cloudflare.mjs
"""

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from testing.waiting import LIMIT_SECONDS

FOLDER = Path(__file__).parent
LOCK = FOLDER / "package-lock.json"
_STAMP = FOLDER / "node_modules" / ".installed"
_OLDEST = 20
_TEST = re.compile(r'^test\("([^"]+)"', re.MULTILINE)


def missing() -> str | None:
    """Why the clients cannot run on this machine, and what would help; None if they can."""
    if not shutil.which("node") or not shutil.which("npm"):
        return f"no node and npm on PATH; install Node.js {_OLDEST} or newer to run the JavaScript clients"
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.lstrip("v").partition(".")[0]) < _OLDEST:
        return f"node is {version}; the JavaScript clients need {_OLDEST} or newer"
    return None


def install() -> None:
    """`npm ci`, unless exactly this lock is installed. Raises AssertionError with npm's own words."""
    wanted = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if _STAMP.exists() and _STAMP.read_text() == wanted:
        return
    command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"npm ci in {FOLDER} failed; is a package registry reachable?\n{done.stderr}"
    _STAMP.write_text(wanted)


def tests_of(file: str) -> list[str]:
    """The names of a file's tests."""
    return _TEST.findall((FOLDER / file).read_text())


def run(file: str, test: str, variables: dict[str, str]) -> None:
    """Run one test of a file with these environment variables. Raises AssertionError with its output."""
    only = f"--test-name-pattern=^{re.escape(test)}$"
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **variables}
    command = ["node", "--test-reporter=tap", only, str(FOLDER / file)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search("^# pass 1$", done.stdout, re.MULTILINE), f"no test of that name ran\n{done.stdout}"
