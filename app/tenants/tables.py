"""Tables: who is billed and isolated, and the keys that speak for them."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Float,
    ForeignKey,
    Integer,
    LargeBinary,
    Table,
    Text,
    func,
)

from app.db.metadata import metadata

tenant = Table(
    "tenant",
    metadata,
    Column("tenant_id", Integer, primary_key=True),
    Column("account_id", Text, nullable=False, unique=True, comment="the account in a Workers AI URL"),
    Column("name", Text, nullable=False),
    Column("weight", Float, CheckConstraint("weight > 0", name="weight_positive"), nullable=False, server_default="1"),
    Column("max_inflight_tokens", BigInteger, nullable=False, server_default="1000000000"),
    Column(
        "retention_days",
        Integer,
        CheckConstraint("retention_days > 0", name="retention_positive"),
        comment="its batches are kept at least this long; null: as the settings say",
    ),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
)

api_key = Table(
    "api_key",
    metadata,
    Column("key_id", Text, primary_key=True),
    Column("tenant_id", Integer, ForeignKey("tenant.tenant_id"), nullable=False),
    Column("secret_hash", LargeBinary, nullable=False, comment="HMAC-SHA256 under the pepper"),
    Column("name", Text, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("last_used_at", DateTime(timezone=True), comment="coarse: written at most once a minute"),
    Column("expires_at", DateTime(timezone=True)),
    Column("revoked_at", DateTime(timezone=True)),
)
