"""The next revision, which nobody has: what a migration of the next version may add, to every table at once.

No version was released yet, so this one stands for all that will come: with it the migrations are killed, the indexes built
beside work, and two versions run side by side.
"""

import os
from pathlib import Path

import pytest

import migrations
from app.db import migrate, schema

VERSIONS = Path(migrations.__file__).parent / "versions"
REVISION = "0002"
INDEX = "item_result_of_the_next_version"
TABLES = """select relname from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p')
and not relispartition and relname <> 'alembic_version' order by relname"""
_FILE = f'''"""A column for each table, and an index of a table that is in use.

Revision ID: {REVISION}
Revises: {schema.own_revision()}
"""

from alembic import op

from migrations.indexes import Index, build

revision = "{REVISION}"
down_revision = "{schema.own_revision()}"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A statement a transaction, so that no lock is held while the next one is waited for."""
    tables = op.get_bind().exec_driver_sql("""{TABLES}""").scalars().all()
    with op.get_context().autocommit_block():
        for table in tables:
            op.execute(f"ALTER TABLE {{table}} ADD COLUMN IF NOT EXISTS only_the_next_version TEXT DEFAULT 'added'")
    build(Index("{INDEX}", "item_result", "(batch_id, only_the_next_version)"))
'''


def write(folder: Path) -> None:
    """Add the revision to a folder of revisions."""
    (folder / f"{REVISION}_next.py").write_text(_FILE)


def become(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Make this process migrate as the next version does. `folder`: an empty one."""
    write(folder)
    config = migrate._config()
    config.set_main_option("path_separator", "os")
    config.set_main_option("version_locations", os.pathsep.join(map(str, (VERSIONS, folder))))
    monkeypatch.setattr(migrate, "_config", lambda: config)
    monkeypatch.setattr(schema, "own_revision", lambda: REVISION)
