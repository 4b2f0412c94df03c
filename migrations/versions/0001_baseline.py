"""The first schema (migrations/baseline), and the SQL of pgmq: the default broker, living in the same database.

Revision ID: 0001
Revises:
"""

from alembic import op
from pgmq.install import get_embedded_install_sql
from sqlalchemy import text

from app.db.migrate import run_script
from migrations import baseline

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

FLOOR = text("INSERT INTO schema_floor (one, revision, baseline) VALUES (true, :revision, :baseline)")


def upgrade() -> None:
    """Create everything. pgmq comes without an extension, unless the server already has it."""
    connection = op.get_bind()
    for script in baseline.scripts():
        run_script(connection, script)
    op.execute(FLOOR.bindparams(revision=revision, baseline=baseline.digest()))
    if connection.exec_driver_sql("select to_regproc('pgmq.create')").scalar() is None:
        run_script(connection, get_embedded_install_sql())


def downgrade() -> None:
    """The first schema has nothing to go back to."""
    raise RuntimeError("0001 is the first schema; drop the database instead")
