"""Tables of counts: of finished chunks until they are added to their batches and to the fair order, and of removed batches."""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from app.db.metadata import metadata
from app.queue.tables import DETAILS, ZERO, Timestamp, counts
from app.queue.types import TOKENS

batch_delta = Table(
    "batch_delta",
    metadata,
    Column("delta_id", BigInteger, Identity(always=True), primary_key=True),
    Column("batch_id", BigInteger, nullable=False),
    Column("ok", Integer, nullable=False),
    Column("failed", Integer, nullable=False),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("completion_tokens", BigInteger, nullable=False),
    Column("line_id", Integer, comment="line of the results; null: that of the batch"),
    Column("at", Timestamp, nullable=False, server_default=func.now(), comment="when the chunk ended"),
    *counts(Integer, "repeats", "retried", "retried_ok", "yields"),
    Column("budgets", ARRAY(Integer), comment="of the chunk; null: it had none"),
    Column("reserved_cost", BigInteger, comment="what its budgets had reserved for it, which returns"),
    Column("reserved_tokens", BigInteger),
    Column("maximum_cost", BigInteger, comment="the most that the results could have cost"),
    Column("maximum_tokens", BigInteger),
    Column(
        "engine_ms",
        BigInteger,
        nullable=False,
        server_default=ZERO,
        comment="milliseconds of an engine that the items had",
    ),
    *(
        Column(name, LargeBinary, nullable=False, server_default=text("''"), comment=comment)
        for name, comment in {
            "first_tokens": "a byte for each answer whose time to the first token is known: its bucket in app.metering.sketch",
            "durations": "the same of whole answers",
        }.items()
    ),
    Column("errors", ARRAY(Text), comment="the classes of the errors of its failed items; null: none failed"),
    Column("added", Integer, nullable=False, server_default=ZERO, comment="items that were added to the batch"),
    Column("bytes", BigInteger, nullable=False, server_default=ZERO, comment="of their requests"),
    Column(
        "unrun",
        Integer,
        nullable=False,
        server_default=ZERO,
        comment="of the results, those that no engine was asked for",
    ),
    Column("unrun_ok", Integer, nullable=False, server_default=ZERO, comment="of these, the answers"),
    Column("details", JSONB, comment=DETAILS),
    postgresql_with={"autovacuum_vacuum_scale_factor": 0, "autovacuum_vacuum_threshold": 1000},
)
Index("batch_delta_batch", batch_delta.c.batch_id)

# What the batches of an account counted that are no longer in `batch`, less the results that no engine was asked for, which are
# in `batch`, but in no ledger. With it the ledger can be compared with the queue.
removed_counts = Table(
    "removed_counts",
    metadata,
    Column("tenant_id", Integer, ForeignKey("tenant.tenant_id"), primary_key=True),
    *counts(BigInteger, "ok", "failed", *TOKENS),
)

# What ended leases have used, until it is added to the fair order.
sched_delta = Table(
    "sched_delta",
    metadata,
    Column("delta_id", BigInteger, Identity(always=True), primary_key=True),
    Column("pool_id", SmallInteger, nullable=False),
    Column("tenant_id", Integer, nullable=False),
    Column("est_tokens", Integer, nullable=False, comment="of the chunk: what its claim has charged"),
    Column("used_tokens", BigInteger, nullable=False),
    Column("served_tokens", BigInteger, nullable=False, comment="estimated tokens of the items that have a result"),
    postgresql_with={"autovacuum_vacuum_scale_factor": 0, "autovacuum_vacuum_threshold": 1000},
)
