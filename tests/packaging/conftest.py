"""The wheel, built once, and fresh environments outside the repository."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.packaging.environments import BUILD_SECONDS, PIP, ROOT, Environment

SOURCES = ("app", "workers", "migrations", "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of these sources, built from a copy: setuptools leaves its scraps beside them."""
    folder = tmp_path_factory.mktemp("wheel")
    ignored: Any = shutil.ignore_patterns("__pycache__")
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name, **({"ignore": ignored} if copy is shutil.copytree else {}))  # type: ignore[operator]
    build = [*PIP, "wheel", ".", "--no-deps", "--no-build-isolation", "--wheel-dir", "out"]
    subprocess.run(build, cwd=folder, check=True, timeout=BUILD_SECONDS)
    (built,) = (folder / "out").iterdir()
    return built


@pytest.fixture(scope="session")
def plugin_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel for engines that Slackwater does not start, as `make plugin` builds it."""
    folder = tmp_path_factory.mktemp("plugin")
    script = [str(ROOT / "deploy" / "build-plugin.sh"), str(folder)]
    subprocess.run(script, env={**os.environ, "PYTHON": sys.executable}, check=True, timeout=BUILD_SECONDS)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def new_environment(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Environment]:
    """Makes fresh, empty environments."""
    return lambda: _environment(tmp_path_factory.mktemp("environment"))


@pytest.fixture
def environment(new_environment: Callable[[], Environment]) -> Environment:
    """A fresh, empty environment."""
    return new_environment()


def _environment(place: Path) -> Environment:
    """The user's folder holds packages that are named like ours."""
    home = place / "home"
    for name in ("app", "workers", "migrations"):
        (home / name).mkdir(parents=True)
        (home / name / "__init__.py").write_text(f"raise ImportError('the wrong {name}')\n")
    folder = place / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=BUILD_SECONDS)
    place.chmod(0o755)  # the embedded server runs as a user of its own
    return Environment(folder, home)
