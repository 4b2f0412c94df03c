"""Tables of the ledger: lines, and the usage of each line by hour."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    ForeignKey,
    Identity,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    func,
    text,
)

from app.db.metadata import metadata

ZERO = text("0")
PARTS = ("tenant_id", "key_id", "workflow", "task", "critical", "variant", "family", "model", "kind")
PRICE = ("price_in", "price_cached", "price_out", "currency")
COUNTS = ("requests", "ok", "prompt", "cached", "output", "repeats", "retried", "retried_ok", "yields")

line = Table(
    "line",
    metadata,
    Column("line_id", Integer, Identity(always=True), primary_key=True),
    Column("tenant_id", Integer, ForeignKey("tenant.tenant_id"), nullable=False),
    Column("key_id", Text, nullable=False, comment="empty: not known"),
    Column("workflow", Text, nullable=False),
    Column("task", Text, nullable=False),
    Column("critical", Boolean, nullable=False),
    Column("variant", Text, nullable=False),
    Column("family", Text, nullable=False),
    Column("model", Text, nullable=False, comment="catalogue name of the model that answers"),
    Column("kind", Text, nullable=False, comment="sync, or the kind of a batch"),
    Column("price_in", BigInteger, comment="10^-12 of the currency per prompt token; null: the model has no price"),
    Column("price_cached", BigInteger, comment="the same, per prompt token from the prefix cache"),
    Column("price_out", BigInteger, comment="the same, per token of the answer"),
    Column("currency", Text),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    UniqueConstraint(*PARTS, *PRICE, name="line_parts", postgresql_nulls_not_distinct=True),
)

usage_writer = Table(
    "usage_writer",
    metadata,
    Column("writer", Text, primary_key=True, comment="a process that books synchronous usage"),
    Column("number", BigInteger, nullable=False, comment="of the group of sums that it booked last"),
    Column("seen_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
)

usage = Table(
    "usage",
    metadata,
    Column("hour", DateTime(timezone=True), nullable=False, comment="the hour (UTC) in which the requests ended"),
    Column("line_id", Integer, ForeignKey("line.line_id"), nullable=False),
    Column("requests", BigInteger, nullable=False, server_default=ZERO),
    Column("ok", BigInteger, nullable=False, server_default=ZERO),
    Column("prompt", BigInteger, nullable=False, server_default=ZERO, comment="tokens, cached ones included"),
    Column("cached", BigInteger, nullable=False, server_default=ZERO, comment="of these, from the prefix cache"),
    Column("output", BigInteger, nullable=False, server_default=ZERO),
    Column("repeats", BigInteger, nullable=False, server_default=ZERO, comment="of a batch's second or later run"),
    Column("retried", BigInteger, nullable=False, server_default=ZERO, comment="that took more than one attempt"),
    Column("retried_ok", BigInteger, nullable=False, server_default=ZERO),
    Column("yields", BigInteger, nullable=False, server_default=ZERO),
    PrimaryKeyConstraint("hour", "line_id"),
)
