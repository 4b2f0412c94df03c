"""Claims about the wheel: it contains every module that is needed, and it runs from any directory."""

import subprocess
import sys
import sysconfig
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from app import processes
from testing import clusters
from testing.waiting import wait_for
from tests.packaging.environments import ROOT, Environment

pytestmark = pytest.mark.slow

DATA = (".toml", ".mako", ".sql", ".jsonl", ".html", ".css", ".js", ".svg", ".lock", ".htmx")


@pytest.fixture(scope="module")
def installed(new_environment: Callable[[], Environment], wheel: Path) -> Environment:
    """The wheel in a fresh environment that borrows everything else from the one of the tests."""
    environment = new_environment()
    environment.install("--no-deps", str(wheel))
    borrowed = environment.site_packages / "borrowed.pth"
    borrowed.write_text(sysconfig.get_path("purelib") + "\n")
    return environment


@pytest.fixture
def engine() -> Iterator[str]:
    """The URL of a fake engine."""
    port = processes.free_port()
    command = [sys.executable, "-m", "testing.fakes.engine", "--port", str(port)]
    with subprocess.Popen(command, cwd=ROOT) as process:
        url = f"http://127.0.0.1:{port}"
        wait_for(lambda: urllib.request.urlopen(f"{url}/health").status == 200, "the fake engine")
        yield url
        process.kill()


def test_the_wheel_holds_every_module_and_every_file_that_they_read(wheel: Path) -> None:
    wanted = {
        str(file.relative_to(ROOT))
        for package in ("app", "workers", "migrations")
        for file in (ROOT / package).rglob("*")
        if (file.suffix in (".py", *DATA) or file.name == "py.typed") and file.name != "pyproject.toml"
    }
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert found == wanted
    assert {"app/py.typed", "app/models.toml", "app/demo_models.toml", "migrations/script.py.mako"} <= found


def test_the_metadata_say_what_it_is(installed: Environment) -> None:
    (info,) = installed.site_packages.glob("slackwater-*.dist-info")
    distribution = PathDistribution(info)
    assert distribution.metadata["License-Expression"] == "Apache-2.0"
    assert "Apache License" in (info / "licenses" / "LICENSE").read_text()
    assert distribution.metadata["Description-Content-Type"] == "text/markdown"
    assert {"embedded", "parquet", "s3", "cpu", "gpu", "redis", "dev"} <= set(
        distribution.metadata.get_all("Provides-Extra")
    )
    assert {entry.name for entry in distribution.entry_points} == {"slackwater", "slackwater_steps"}


def test_the_command_runs_from_an_environment_outside_of_the_repository(
    installed: Environment, wheel: Path, engine: str
) -> None:
    version = wheel.name.split("-")[1]
    data = str(installed.home / "data")
    done = installed.run("slackwater", "demo", "--attach", engine, SLACKWATER_DATA_DIR=data)
    clusters.remove(Path(data))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "Submitted 24 requests" in done.stdout
    assert "batch.succeeded" in done.stdout
    told = installed.run("slackwater", "--version").stdout
    assert told.startswith(f"slackwater {version} ")
    where = installed.run("python", "-P", "-c", "import app; print(app.__file__)").stdout.strip()
    assert where == str(installed.site_packages / "app" / "__init__.py")
