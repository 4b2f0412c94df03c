"""Runs a program that applies load and checks the history, and takes what it counted."""

import json
import subprocess
import sys
from typing import Any

from app.processes import dies_with_parent

LIMIT_SECONDS = 3600


def checked(module: str, *arguments: str) -> dict[str, Any]:
    """What `python -m MODULE --json …` has counted, violations or not. Raises RuntimeError if it ends without a result."""
    command = [sys.executable, "-m", module, "--json", *arguments]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=False, timeout=LIMIT_SECONDS, preexec_fn=dies_with_parent()
    )
    if not done.stdout.strip():
        raise RuntimeError(
            f"`{' '.join(command)}` ended with {done.returncode} and without a result; its errors are above"
        )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
