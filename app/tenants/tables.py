"""Tables: tenants, their API keys, and the keys' usage of the current minute."""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
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
    text,
)
from sqlalchemy.dialects.postgresql import CIDR

from app.db.metadata import metadata
from app.states import TENANT
from app.tenants.key_scope import KeyRole

_ROLES = ", ".join(repr(role.value) for role in KeyRole)

tenant = Table(
    "tenant",
    metadata,
    Column("tenant_id", Integer, primary_key=True, comment="the id of a deleted account is never used again"),
    Column("account_id", Text, nullable=False, unique=True, comment="the account in a Workers AI URL"),
    Column("name", Text, nullable=False),
    Column(
        "weight", Float, CheckConstraint("weight > 0", name="weight_positive"), nullable=False, server_default=text("1")
    ),
    Column("max_inflight_tokens", BigInteger, nullable=False, server_default=text("1000000000")),
    Column(
        "retention_days",
        Integer,
        CheckConstraint("retention_days > 0", name="retention_positive"),
        comment="how long its batches are kept at least; null: as in the settings",
    ),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column(
        "webhook_hosts",
        ARRAY(Text),
        comment="the only hosts that its webhooks may go to; null: any that the settings allow",
    ),
    Column(
        "state",
        Text,
        CheckConstraint(TENANT.check(), name="state"),
        nullable=False,
        server_default=TENANT.initial.value,
    ),
    Column(
        "has_quota",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="whether it has a row in quota, so that the submits of others need not look",
    ),
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
    Column(
        "requests_per_minute",
        Integer,
        CheckConstraint("requests_per_minute > 0", name="requests_positive"),
        comment="limit of synchronous requests; null: as in the settings",
    ),
    Column(
        "tokens_per_minute",
        BigInteger,
        CheckConstraint("tokens_per_minute > 0", name="tokens_positive"),
        comment="limit of estimated tokens of synchronous requests; null: as in the settings",
    ),
    Column("pins", ARRAY(Text), comment="labels that every request of the key gets, as name=value"),
    Column(
        "role",
        Text,
        CheckConstraint(f"role in ({_ROLES})", name="role"),
        nullable=False,
        server_default=KeyRole.SUBMITTER.value,
        comment="what it may do in its account",
    ),
    Column("models", ARRAY(Text), comment="the only models that its requests may name; null: any"),
    Column("endpoints", ARRAY(Text), comment="the only routes of engines that its requests may use; null: any"),
    Column("networks", ARRAY(CIDR), comment="the only networks that it may be used from; null: any"),
    Column(
        "restore",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="whether it reads what redaction has replaced",
    ),
    Column("created_by", Text, comment="who made it; null: not known"),
    Column("master_key", Text, comment="id of the master key whose pepper secret_hash has; null: not known"),
    Column(
        "rotation",
        Integer,
        nullable=False,
        server_default=text("0"),
        comment="how often its secret was changed",
    ),
    Column("old_secret_hash", LargeBinary, comment="of the secret before the last rotation"),
    Column("old_until", DateTime(timezone=True), comment="until when the old secret works"),
)

key_usage = Table(
    "key_usage",
    metadata,
    Column("key_id", Text, ForeignKey("api_key.key_id"), primary_key=True),
    Column("minute", DateTime(timezone=True), nullable=False, comment="the minute to which the counts belong"),
    Column("requests", Integer, nullable=False),
    Column("tokens", BigInteger, nullable=False, comment="estimated tokens of prompts and answers"),
    postgresql_with={"fillfactor": 50},
)
