"""The wheel, built once, and fresh environments outside the repository."""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.settings import foreign_environment

ROOT = Path(__file__).parents[2]
SOURCES = ("app", "workers", "migrations", "pyproject.toml", "README.md", "LICENSE")
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
BUILD_SECONDS = 120


@dataclass(frozen=True)
class Environment:
    """A virtual environment and a folder of a user's, in which commands of it run."""

    folder: Path
    home: Path

    @property
    def site_packages(self) -> Path:
        """Where it is installed."""
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.folder / "lib" / version / "site-packages"

    def install(self, *what: str, seconds: float = BUILD_SECONDS) -> None:
        """`pip install` into it."""
        pip = [*PIP, "--python", str(self.folder / "bin" / "python"), "install", *what]
        subprocess.run(pip, check=True, cwd=self.home, timeout=seconds)

    def run(self, *command: str, seconds: float = BUILD_SECONDS, **variables: str) -> subprocess.CompletedProcess[str]:
        """A command of it, with nothing of the repository in the environment."""
        inherited = {name: value for name, value in foreign_environment().items() if name != "PYTHONPATH"}
        own = {"HOME": str(self.home), "COLUMNS": "80", "PATH": f"{self.folder / 'bin'}:{inherited['PATH']}"}
        return subprocess.run(
            command,
            cwd=self.home,
            env={**inherited, **own, **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )


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


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """A fresh, empty environment. The user's folder holds packages that are named like ours."""
    home = tmp_path / "home"
    for name in ("app", "workers", "migrations"):
        (home / name).mkdir(parents=True)
        (home / name / "__init__.py").write_text(f"raise ImportError('the wrong {name}')\n")
    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=BUILD_SECONDS)
    tmp_path.chmod(0o755)  # the embedded server runs as a user of its own
    return Environment(folder, home)
