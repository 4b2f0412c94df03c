"""Two versions of Slackwater that can run side by side: the last release, and this code with one more migration."""

import ast
import asyncio
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from app.environment import foreign_environment
from tests.crash.system import ROOT, Code

RELEASES = ROOT / "testing" / "releases"
PACKAGES = ("app", "workers", "migrations")
EXPANDS = "9999"
NEXT_VERSION = "0.99.0.dev0"
BUILD_SECONDS = 120
_COMMAND = "import sys; from app.cli.main import main; sys.argv[0] = 'slackwater'; main()"
_LOOK = "from app import __version__; from app.db import schema; print(__version__, schema.own_revision())"

# What migrations add, all at once: a column for each table, and an index of a table that is in use.
_MIGRATION = '''"""Only for tests/upgrade: a schema newer than that of any code. It expands every table.

Revision ID: {revision}
Revises: {before}
"""

from alembic import op

from app.db.metadata import metadata
from migrations.indexes import Index, build

revision = "{revision}"
down_revision = "{before}"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A statement a transaction, so that no lock is held while the next one is waited for."""
    with op.get_context().autocommit_block():
        for table in metadata.sorted_tables:
            op.execute(f"ALTER TABLE {{table.name}} ADD COLUMN IF NOT EXISTS only_the_next_version TEXT DEFAULT 'added'")
    build(Index("item_result_of_the_next_version", "item_result", "(batch_id, only_the_next_version)"))
'''


@dataclass(frozen=True, slots=True)
class Version:
    """A version: its code, what it calls itself, and the newest revision that it knows."""

    code: Code
    version: str
    revision: str

    def run(self, *arguments: str, settings: Mapping[str, str]) -> str:
        """Run `slackwater …` of this version. Returns what it prints; raises CalledProcessError."""
        return _python(self.code, _COMMAND, *arguments, variables=settings)

    async def command(self, *arguments: str, settings: Mapping[str, str]) -> str:
        """The same beside other tasks."""
        return await asyncio.to_thread(self.run, *arguments, settings=settings)


def released(folder: Path) -> Version:
    """The last release, installed from its wheel into an environment in this folder. It borrows the libraries of ours."""
    (wheel,) = RELEASES.glob("slackwater-*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=BUILD_SECONDS)
    python = str(folder / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--python", python, "install"]
    # Metadata of these sources, which PYTHONPATH may name, would make pip believe that the wheel is installed.
    environment = {name: value for name, value in foreign_environment().items() if name != "PYTHONPATH"}
    subprocess.run([*pip, "--no-deps", str(wheel)], env=environment, cwd=folder, check=True, timeout=BUILD_SECONDS)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    (site_packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return _look(Code(python, ""))


def following(folder: Path) -> Version:
    """This code as the next version, with a schema of its own: a copy in this folder, with a migration that expands."""
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / name)
    versions = folder / "migrations" / "versions"
    before = max(path.name[:4] for path in versions.glob("[0-9]*_*.py"))
    text = _MIGRATION.format(revision=EXPANDS, before=before)
    (versions / f"{EXPANDS}_synthetic_expand.py").write_text(text)
    (folder / "workers" / "engine" / "__init__.py").write_text(_renamed(ROOT / "workers" / "engine" / "__init__.py"))
    return _look(Code(folder=str(folder)))


def _renamed(file: Path) -> str:
    """The source with the next version."""
    source = file.read_text()
    (own,) = (
        node.value.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and ast.unparse(node.targets[0]) == "__version__"
    )
    return source.replace(f'"{own}"', f'"{NEXT_VERSION}"')


def _look(code: Code) -> Version:
    version, revision = _python(code, _LOOK, variables={}).split()
    return Version(code, version, revision)


def _python(code: Code, program: str, *arguments: str, variables: Mapping[str, str]) -> str:
    """Run a program in this code, and nothing of the working directory."""
    done = subprocess.run(
        [code.python, "-P", "-c", program, *arguments],
        env=code.environment({**foreign_environment(), **variables}),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=BUILD_SECONDS,
    )
    return done.stdout
