"""Tables of the accounts' quotas. What is used of them is counted where it lies, so no counter can drift."""

from sqlalchemy import BigInteger, Column, DateTime, ForeignKey, Integer, PrimaryKeyConstraint, Table, Text

from app.db.metadata import metadata

quota = Table(
    "quota",
    metadata,
    Column(
        "tenant_id", Integer, ForeignKey("tenant.tenant_id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    ),
    Column("open_batches", BigInteger, comment="batches that are not final; null: no limit"),
    Column("open_items", BigInteger, comment="items without a result of these batches; null: no limit"),
    Column("queued_tokens", BigInteger, comment="estimated tokens of these items; null: no limit"),
    Column("stored_bytes", BigInteger, comment="uploaded files, and the requests of all its batches; null: no limit"),
)

quota_reached = Table(
    "quota_reached",
    metadata,
    Column(
        "tenant_id", Integer, ForeignKey("tenant.tenant_id", ondelete="CASCADE"), nullable=False, autoincrement=False
    ),
    Column("quota", Text, nullable=False, comment="name of the column in quota"),
    Column("hour", DateTime(timezone=True), nullable=False, comment="in which the event was written last"),
    PrimaryKeyConstraint("tenant_id", "quota"),
)
