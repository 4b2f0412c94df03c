"""Tables of the console: one-time links and sessions."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Identity,
    Integer,
    LargeBinary,
    Table,
    Text,
    func,
)

from app.access.roles import Role
from app.db.metadata import metadata

Timestamp = DateTime(timezone=True)


def _grant() -> tuple[Column[str], Column[str], Column[int]]:
    names = ", ".join(repr(role.value) for role in Role)
    return (
        Column("subject", Text, nullable=False, comment="who signs in"),
        Column("role", Text, CheckConstraint(f"role in ({names})", name="role"), nullable=False),
        Column(
            "tenant_id",
            Integer,
            ForeignKey("tenant.tenant_id", ondelete="CASCADE"),
            comment="the account of a viewer or an admin; null: the installation",
        ),
    )


_OF_ACCOUNT = "(tenant_id is not null) = (role in ('viewer', 'admin'))"

console_login = Table(
    "console_login",
    metadata,
    Column("hash", LargeBinary, primary_key=True, comment="SHA-256 of the token of a one-time link"),
    *_grant(),
    Column("expires_at", Timestamp, nullable=False),
    CheckConstraint(_OF_ACCOUNT, name="scope"),
)

console_session = Table(
    "console_session",
    metadata,
    Column("session_id", BigInteger, Identity(always=True), primary_key=True),
    Column("hash", LargeBinary, nullable=False, unique=True, comment="SHA-256 of the cookie's token"),
    *_grant(),
    Column("signed_in_at", Timestamp, nullable=False, server_default=func.now()),
    Column("seen_at", Timestamp, nullable=False, server_default=func.now(), comment="coarse: at most once a minute"),
    Column("expires_at", Timestamp, nullable=False, comment="its end, however much it is used"),
    Column("revoked_at", Timestamp),
    CheckConstraint(_OF_ACCOUNT, name="scope"),
)

operator_token = Table(
    "operator_token",
    metadata,
    Column("token_id", Text, primary_key=True),
    Column("name", Text, nullable=False, comment="the person or the program that has it, as the audit log shows it"),
    Column("role", Text, CheckConstraint("role in ('operator', 'auditor')", name="role"), nullable=False),
    Column("secret_hash", LargeBinary, nullable=False, comment="HMAC-SHA256 under the pepper"),
    Column("master_key", Text, nullable=False, comment="id of the master key whose pepper secret_hash has"),
    Column("created_by", Text, nullable=False),
    Column("created_at", Timestamp, nullable=False, server_default=func.now()),
    Column("expires_at", Timestamp, nullable=False),
    Column("last_used_at", Timestamp, comment="coarse: written at most once a minute"),
    Column("revoked_at", Timestamp),
    CheckConstraint("expires_at <= created_at + interval '90 days'", name="lifetime"),
)
