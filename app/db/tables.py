"""The table about the schema itself. Alembic keeps the revision in one of its own."""

from sqlalchemy import Boolean, CheckConstraint, Column, Table, Text

from app.db.metadata import metadata

schema_floor = Table(
    "schema_floor",
    metadata,
    Column("one", Boolean, CheckConstraint("one", name="one"), primary_key=True, comment="always true: one row"),
    Column("revision", Text, nullable=False, comment="the oldest revision whose code may use this database"),
    Column("baseline", Text, nullable=False, comment="digest of the baseline that made this database"),
)
