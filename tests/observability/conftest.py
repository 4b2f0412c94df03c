"""promtool, and what the parts of an installation serve."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.needs import installing, missing
from tests.observability.support import Installed, installed
from tests.system.stack import Account, Stack

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def promtool() -> str:
    """The program."""
    own = ROOT / ".tools" / "bin" / "promtool"
    with installing("promtool"):
        if not own.exists() and not shutil.which("promtool"):
            tried = subprocess.run(
                [ROOT / "deploy" / "install-tools.sh", "promtool"], check=False, capture_output=True, text=True
            )
            if tried.returncode:
                missing(f"{tried.stderr.strip() or 'no promtool'}: deploy/install-tools.sh promtool")
    return str(own) if own.exists() else str(shutil.which("promtool"))


@pytest.fixture(scope="session")
def served(installation: Stack, new_account: Callable[[], Account]) -> Installed:
    """All parts, after a batch, a synchronous stream and a webhook."""
    return installed(installation, new_account())
