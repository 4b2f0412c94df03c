"""Table: what changed in the installation."""

from sqlalchemy import BigInteger, Column, DateTime, ForeignKey, Identity, Index, Integer, Table, Text, func, text
from sqlalchemy.dialects.postgresql import JSONB

from app.db.metadata import metadata

change = Table(
    "change",
    metadata,
    Column("change_id", BigInteger, Identity(always=True), primary_key=True),
    Column("at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("kind", Text, nullable=False, comment="what happened (app/changes/kinds.py)"),
    Column("subject", Text, nullable=False, comment="to whom: the name of an engine, a part, an endpoint or a budget"),
    Column(
        "tenant_id",
        Integer,
        ForeignKey("tenant.tenant_id", ondelete="CASCADE"),
        comment="the account that it concerns; null: the installation",
    ),
    Column("data", JSONB, nullable=False, comment="what is known about it, ids of batch, delivery and trace included"),
)
Index("change_at", change.c.at, change.c.change_id)
Index("change_subject", change.c.subject, change.c.at)
Index("change_tenant", change.c.tenant_id, change.c.at, postgresql_where=text("tenant_id is not null"))
