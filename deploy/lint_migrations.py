"""Give the SQL of each migration since the last release to squawk, which finds what locks a table that is in use.

    .venv/bin/python deploy/lint_migrations.py [REVISION]    those after REVISION; by default after the last release

squawk-cli is on PyPI, its rules are on https://squawkhq.com/docs/rules, and those that do not hold here are in .squawk.toml.
"""

import contextlib
import io
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from app.db.migrate import LOCK_TIMEOUT

ROOT = Path(__file__).parents[1]
RELEASED = "0001"  # the newest revision of the last release, or the baseline, which meets no data


def main(released: str = RELEASED) -> int:
    """The exit code of squawk."""
    squawk = Path(sysconfig.get_path("scripts")) / "squawk"
    if not squawk.exists():
        sys.exit(f"{squawk} is missing: run `make install`")
    config = Config()
    config.set_main_option("script_location", str(ROOT / "migrations"))
    steps = [each for each in ScriptDirectory.from_config(config).walk_revisions() if each.revision > released]
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for step in reversed(steps):
            file = Path(folder) / f"{Path(step.path).stem}.sql"
            file.write_text(
                f"set lock_timeout = '{LOCK_TIMEOUT}';\n{sql(config, f'{step.down_revision}:{step.revision}')}"
            )
            files.append(file.name)
        if not files:
            return 0
        checked = subprocess.run([squawk, "--config", ROOT / ".squawk.toml", *files], cwd=folder, check=False)
    return checked.returncode


def sql(config: Config, steps: str) -> str:
    """What `alembic upgrade --sql` prints for these steps."""
    config.output_buffer = printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        command.upgrade(config, steps, sql=True)
    return printed.getvalue()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
