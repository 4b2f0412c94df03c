"""Alembic's entry: runs on the connection that `app.db.migrate` hands over, or prints SQL."""

from alembic import context

if context.is_offline_mode():  # `upgrade --sql`, for the linter
    context.configure(dialect_name="postgresql", transaction_per_migration=True)
else:
    context.configure(connection=context.config.attributes["connection"], transaction_per_migration=True)
with context.begin_transaction():
    context.run_migrations()
