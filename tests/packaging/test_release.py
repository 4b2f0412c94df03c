"""Claims about the wheels of a commit, as a release is cut."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from app import __version__
from tests.needs import only
from tests.packaging.environments import BUILD_SECONDS, ROOT

pytestmark = [
    pytest.mark.slow,
    only((ROOT / ".git").exists(), "these sources are no git checkout"),
]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of what is committed."""
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(tmp_path / "clone")], check=True)
    return tmp_path / "clone"


def build(clone: Path, commit: str) -> subprocess.CompletedProcess[str]:
    script = [str(clone / "deploy" / "build-wheels.sh"), "out", commit]
    environment = {**os.environ, "PYTHON": sys.executable}
    return subprocess.run(script, env=environment, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS)


def test_both_wheels_of_a_commit_have_its_version(clone: Path) -> None:
    (clone / "app" / "not_committed.py").touch()
    done = build(clone, "HEAD")
    assert done.returncode == 0, done.stderr
    found = {path.name: path for path in (clone / "out").iterdir()}
    assert found.keys() == {f"{name}-{__version__}-py3-none-any.whl" for name in ("slackwater", "slackwater_vllm")}
    with zipfile.ZipFile(found[f"slackwater-{__version__}-py3-none-any.whl"]) as archive:
        assert "app/not_committed.py" not in archive.namelist()


def test_a_tag_on_a_commit_of_another_version_is_refused(clone: Path) -> None:
    subprocess.run(["git", "-C", str(clone), "tag", "v99.0.0"], check=True)
    done = build(clone, "v99.0.0")
    assert done.returncode == 1
    assert f"has the version {__version__}" in done.stderr
    assert not (clone / "out").exists()
