"""The SQL of the pgmq message queue: the default broker, living in the same database.

Revision ID: 0002
Revises: 0001
"""

from alembic import op
from pgmq.install import get_embedded_install_sql

from app.db.migrate import run_script

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Install pgmq (SQL only, no extension) unless the server already has it."""
    connection = op.get_bind()
    if connection.exec_driver_sql("select to_regproc('pgmq.create')").scalar() is None:
        run_script(connection, get_embedded_install_sql())


def downgrade() -> None:
    """Drop the queues and their schema."""
    op.execute("drop schema if exists pgmq cascade")
