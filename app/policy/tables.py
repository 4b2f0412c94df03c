"""Tables of the policy: its versions, and samples of requests without their content."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Float,
    ForeignKey,
    Identity,
    Index,
    Integer,
    Table,
    Text,
    func,
)

from app.db.metadata import metadata

policy = Table(
    "policy",
    metadata,
    Column("policy_id", Integer, Identity(always=True), primary_key=True, comment="the newest is in force"),
    Column("hash", Text, nullable=False, comment="SHA-256 of the text, hexadecimal"),
    Column("text", Text, nullable=False),
    Column("by", Text, nullable=False, comment="who applied it"),
    Column("at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("restores", Integer, comment="the version whose text it put in force again; null: none"),
)

request_sample = Table(
    "request_sample",
    metadata,
    Column("sample_id", BigInteger, Identity(always=True), primary_key=True),
    Column("at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("tenant_id", Integer, ForeignKey("tenant.tenant_id", ondelete="CASCADE"), nullable=False),
    Column("key_id", Text, nullable=False),
    Column("workflow", Text, nullable=False),
    Column("task", Text, nullable=False),
    Column("critical", Boolean, nullable=False),
    Column("kind", Text, nullable=False),
    Column("model", Text, nullable=False, comment="the model that was asked for"),
    Column("endpoint", Text, nullable=False),
    Column("deadline", Float, comment="seconds of its completion window; null: it had none"),
    Column("requests", Integer, nullable=False, comment="how many requests this sample stands for"),
    Column("est_tokens", BigInteger, nullable=False, comment="estimate, of one request: prompt and answer"),
    Column("answer_tokens", BigInteger, nullable=False, comment="of these, the answer"),
)
Index("request_sample_at", request_sample.c.at)
