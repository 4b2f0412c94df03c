"""Claims about the wheels of a commit, as a release is cut."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app import __version__
from tests.packaging.environments import BUILD_SECONDS, ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (ROOT / ".git").exists(), reason="these sources are no git checkout"),
]


def build(folder: Path, commit: str) -> subprocess.CompletedProcess[str]:
    script = [str(ROOT / "deploy" / "build-wheels.sh"), str(folder), commit]
    environment = {**os.environ, "PYTHON": sys.executable}
    return subprocess.run(script, env=environment, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS)


def test_both_wheels_of_a_commit_have_its_version(tmp_path: Path) -> None:
    done = build(tmp_path, "HEAD")
    assert done.returncode == 0, done.stderr
    found = {path.name for path in tmp_path.iterdir()}
    assert found == {f"{name}-{__version__}-py3-none-any.whl" for name in ("slackwater", "slackwater_vllm")}


def test_a_tag_on_a_commit_of_another_version_is_refused(tmp_path: Path) -> None:
    git = ["git", "-C", str(ROOT), "tag"]
    subprocess.run([*git, "v99.0.0"], check=True)
    try:
        done = build(tmp_path, "v99.0.0")
    finally:
        subprocess.run([*git, "--delete", "v99.0.0"], check=True)
    assert done.returncode == 1
    assert f"has the version {__version__}" in done.stderr
    assert not list(tmp_path.iterdir())
