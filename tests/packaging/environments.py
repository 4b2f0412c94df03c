"""Fresh virtual environments outside the repository."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from app.environment import foreign_environment

ROOT = Path(__file__).parents[2]
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
