"""Other projects' programs that benchmarks run beside ours. Each is installed once, in an environment of its own in the user's
cache folder. Quick forms run without them.
"""

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.harness import say

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slackwater-benchmarks"


class PeerMissingError(RuntimeError):
    """It cannot be installed here; the message says why."""


def environment(name: str, version: str, extra: str = "") -> Path:
    """The folder of the virtual environment of this package, made the first time. Raises PeerMissingError."""
    folder = CACHE / f"{name}-{version}"
    if (folder / "complete").exists():
        return folder
    say(f"installing {name} {version} in {folder} …")
    pip = [str(folder / "bin" / "pip"), "install", "-qq", "--disable-pip-version-check"]
    try:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([*pip, f"{name}{extra}=={version}"], check=True, stdout=sys.stderr)
    except subprocess.CalledProcessError as error:
        raise PeerMissingError(f"{name} {version} cannot be installed: {error}") from error
    (folder / "complete").touch()
    return folder
