"""Alembic's entry: runs on the connection that `app.db.migrate` hands over, or prints SQL."""

from typing import Any

from alembic import context

import app.access.tables
import app.admission.tables
import app.audit.tables
import app.changes.tables
import app.db.tables
import app.engines.tables
import app.files.tables
import app.headroom.tables
import app.metering.budget_tables
import app.metering.tables
import app.pipelines.tables
import app.policy.tables
import app.queue.delta_tables
import app.queue.dependency_table
import app.queue.handoff_tables
import app.queue.history_tables
import app.queue.tables
import app.sealing.tables
import app.sessions.tables
import app.storage.tables
import app.tenants.tables
import app.webhooks.tables  # noqa: F401  (the imports fill the metadata)
from app.db.metadata import metadata
from migrations.names import is_schema

_OPTIONS: dict[str, Any] = {
    "target_metadata": metadata,
    "include_name": is_schema,
    "transaction_per_migration": True,
}

if context.is_offline_mode():  # `upgrade --sql`, for the linter
    context.configure(dialect_name="postgresql", **_OPTIONS)
else:
    context.configure(connection=context.config.attributes["connection"], **_OPTIONS)
with context.begin_transaction():
    context.run_migrations()
