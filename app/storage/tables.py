"""The table of objects that are kept for a while after their rows have gone."""

from sqlalchemy import Column, DateTime, Table, Text

from app.db.metadata import metadata

object_removal = Table(
    "object_removal",
    metadata,
    Column(
        "path",
        Text,
        primary_key=True,
        comment="key of an object; with / at its end, what the keys of several begin with",
    ),
    Column(
        "due_at",
        DateTime(timezone=True),
        nullable=False,
        comment="when a maintenance worker removes them from the store",
    ),
)
