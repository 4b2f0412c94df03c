"""Tables of the audit log. Triggers of the migration refuse every change but the cut of a signed prefix.

No foreign keys: a row outlives the session, the account and the object that it names.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Identity,
    Index,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
)

from app.db.metadata import metadata

Timestamp = DateTime(timezone=True)

audit = Table(
    "audit",
    metadata,
    Column("audit_id", BigInteger, Identity(always=True), primary_key=True),
    Column("at", Timestamp, nullable=False),
    Column("account", Text, comment="whose object it was; null: the installation's"),
    Column("act", Text, nullable=False, comment="for example policy.apply, key.revoke, item.reveal"),
    Column("target", Text, nullable=False, comment="id of the object"),
    Column("body", Text, nullable=False, comment="the whole record as canonical JSON, which the seal covers"),
)
Index("audit_target", audit.c.target, audit.c.audit_id)
Index("audit_account", audit.c.account, audit.c.audit_id)

audit_pending = Table(
    "audit_pending",
    metadata,
    Column("audit_id", BigInteger, primary_key=True, autoincrement=False, comment="a row that is not sealed yet"),
)

# Both keys are unique, so two stewards that seal at once cannot fork a chain: one of them is refused.
audit_seal = Table(
    "audit_seal",
    metadata,
    Column("account", Text, nullable=False, comment="the chain; empty: the installation's"),
    Column("seq", BigInteger, nullable=False, comment="place in the chain, from 1"),
    Column("audit_id", BigInteger, nullable=False, unique=True),
    Column(
        "hash", LargeBinary, nullable=False, comment="SHA-256 of the hash before, seq (8 bytes, big-endian) and body"
    ),
    PrimaryKeyConstraint("account", "seq"),
)

audit_checkpoint = Table(
    "audit_checkpoint",
    metadata,
    Column("account", Text, nullable=False),
    Column("seq", BigInteger, nullable=False, comment="the newest sealed row that it covers"),
    Column("at", Timestamp, nullable=False),
    Column("cut", Boolean, nullable=False, comment="whether the rows up to seq may be deleted"),
    Column("body", Text, nullable=False, comment="canonical JSON, also in the object store below audit/"),
    Column("signature", LargeBinary, nullable=False, comment="Ed25519, of the body"),
    PrimaryKeyConstraint("account", "seq", "at"),
)
