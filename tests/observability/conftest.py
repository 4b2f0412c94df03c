"""promtool, and one installation whose parts all serve their metrics."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.observability.support import Installed, installed

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def promtool() -> str:
    """The program. Without it its tests are skipped with the reason; under CI=true that is an error."""
    own = ROOT / ".tools" / "bin" / "promtool"
    if not own.exists() and not shutil.which("promtool"):
        tried = subprocess.run(
            [ROOT / "deploy" / "install-tools.sh", "promtool"], check=False, capture_output=True, text=True
        )
        if tried.returncode:
            message = f"{tried.stderr.strip() or 'no promtool'} (deploy/install-tools.sh promtool)"
            assert os.environ.get("CI") != "true", message
            pytest.skip(message)
    return str(own) if own.exists() else str(shutil.which("promtool"))


@pytest.fixture(scope="session")
def installation() -> Iterator[Installed]:
    """All parts, after a batch, a synchronous stream and a webhook."""
    with installed() as found:
        yield found
