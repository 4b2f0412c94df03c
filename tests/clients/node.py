"""Installs the JavaScript clients of `package-lock.json`, and runs the `.mjs` files beside it.

Their tests use Node's own runner. To run one file alone, against any installation:

    BASE_URL=http://127.0.0.1:8700 API_KEY=… ACCOUNT=local MODEL=… node tests/clients/cloudflare.mjs
"""

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.needs import installing, missing

FOLDER = Path(__file__).parent
LOCK = FOLDER / "package-lock.json"
_STAMP = FOLDER / "node_modules" / ".installed"
_OLDEST = 20


def require() -> None:
    """Skip the test where there is no Node, or only an older one."""
    if not shutil.which("node") or not shutil.which("npm"):
        missing(f"no node and npm on PATH: install Node.js {_OLDEST} or newer")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.lstrip("v").partition(".")[0]) < _OLDEST:
        missing(f"node is {version}: install Node.js {_OLDEST} or newer")


def install(*, optional: bool = False) -> None:
    """`npm ci`, unless exactly this lock is installed. Raises AssertionError with npm's own words.

    `optional`: also the large clients and the older versions. Cloudflare's 17,000 files take three times as long as all others.
    """
    require()
    with installing("node"):
        lock = hashlib.sha256(LOCK.read_bytes()).hexdigest()
        wanted, whole = f"{lock} {optional}", f"{lock} True"
        if _STAMP.exists() and _STAMP.read_text() in (wanted, whole):
            return
        omitted = [] if optional else ["--omit=optional"]
        command = ["npm", "ci", *omitted, "--no-audit", "--no-fund", "--ignore-scripts"]
        done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"npm ci in {FOLDER} failed; is a package registry reachable?\n{done.stderr}"
        _STAMP.write_text(wanted)


def run(file: str, variables: dict[str, str]) -> None:
    """Run the tests of a file with these environment variables. Raises AssertionError with its output."""
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **variables}
    command = ["node", "--test-reporter=tap", str(FOLDER / file)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search("^# pass [1-9]", done.stdout, re.MULTILINE), f"no test ran\n{done.stdout}"
