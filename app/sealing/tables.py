"""Tables of keys: the key of each account at the key provider, by name, and the wrapped data key of each sealed batch,
conversation and tree of responses.

The name is random, so that two installations can use one provider.
"""

from sqlalchemy import BigInteger, Boolean, Column, DateTime, ForeignKey, Index, Integer, LargeBinary, Table, Text, Uuid

from app.db.metadata import metadata

account_kek = Table(
    "account_kek",
    metadata,
    Column(
        "tenant_id", Integer, ForeignKey("tenant.tenant_id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    ),
    Column("kek", Text, nullable=False, comment="name of the key at the key provider that wraps new data keys"),
    Column("retired", Text, comment="the one before it, which a rotation has not destroyed yet"),
)

batch_key = Table(
    "batch_key",
    metadata,
    Column(
        "batch_id", BigInteger, ForeignKey("batch.batch_id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    ),
    Column("kek", Text, nullable=False, comment="name of the key at the key provider"),
    Column("wrapped", LargeBinary, nullable=False, comment="the data key of its bodies, wrapped"),
    Column(
        "only_vaults",
        Boolean,
        nullable=False,
        server_default="false",
        comment="it seals only the values behind placeholders; the bodies are in the clear",
    ),
    Column("failed_at", DateTime(timezone=True), comment="when a worker could not unwrap it"),
    Column("failure", Text, comment="why it could not"),
)
Index("batch_key_kek", batch_key.c.kek)

turn_key = Table(
    "turn_key",
    metadata,
    Column("key_id", Uuid, primary_key=True),
    Column("tenant_id", Integer, ForeignKey("tenant.tenant_id", ondelete="CASCADE"), nullable=False),
    Column("kek", Text, nullable=False, comment="name of the key at the key provider"),
    Column("wrapped", LargeBinary, nullable=False, comment="the data key of turns, wrapped"),
)
Index("turn_key_kek", turn_key.c.kek)
Index("turn_key_tenant", turn_key.c.tenant_id)
