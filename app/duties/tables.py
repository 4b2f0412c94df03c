"""Table: the duties of the installation."""

from sqlalchemy import Column, DateTime, Integer, Table, Text, func

from app.db.metadata import metadata

duty = Table(
    "duty",
    metadata,
    Column("name", Text, primary_key=True, comment="which one (app/duties/schedule.py)"),
    Column(
        "since",
        DateTime(timezone=True),
        nullable=False,
        server_default=func.now(),
        comment="since when the installation has this duty",
    ),
    Column(
        "due_at",
        DateTime(timezone=True),
        nullable=False,
        server_default=func.now(),
        comment="when the leading steward asks for it next",
    ),
    Column(
        "asked_at",
        DateTime(timezone=True),
        comment="when it was asked for; null: not since it was last done, so that a message that comes twice does nothing",
    ),
    Column("began_at", DateTime(timezone=True), comment="when it last began"),
    Column("succeeded_at", DateTime(timezone=True), comment="when it last succeeded"),
    Column("took_ms", Integer, comment="how long that took, in milliseconds"),
    Column("failed_at", DateTime(timezone=True), comment="when it last failed"),
    Column("error", Text, comment="why; null: it has succeeded since"),
)
