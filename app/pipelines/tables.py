"""Tables of pipelines, their stages and their parked items. The items of a stage are those of its batch."""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)

from app.db.metadata import metadata
from app.queue.tables import ZERO, Timestamp
from app.states import PARKED, PIPELINE

pipeline = Table(
    "pipeline",
    metadata,
    Column(
        "pipeline_id",
        BigInteger,
        ForeignKey("batch.batch_id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
        comment="the batch_id of its input, stage 0",
    ),
    Column("request_id", Uuid, nullable=False, unique=True, comment="the id callers see"),
    Column("tenant_id", Integer, ForeignKey("tenant.tenant_id"), nullable=False),
    Column("name", Text),
    Column(
        "state",
        Text,
        CheckConstraint(PIPELINE.check(), name="state"),
        nullable=False,
        server_default=PIPELINE.initial.value,
    ),
    Column("run", SmallInteger, nullable=False, server_default=text("1")),
    Column(
        "definition",
        LargeBinary,
        nullable=False,
        comment="JSON; sealed with the key of its input where that is sealed; empty: its contents were deleted",
    ),
    Column("inputs", Integer, comment="lines of its input; null: its source is not final yet"),
    Column(
        "source_id",
        BigInteger,
        comment="the batch whose items become its input; null: it has lines of its own, or all are copied",
    ),
    Column(
        "copied",
        Integer,
        nullable=False,
        server_default=ZERO,
        comment="items of its source with numbers below this are copied",
    ),
    Column("budget", BigInteger, comment="the most that it may cost, in 10^-9 of the currency; null: no limit"),
    Column("paused_for", Text, comment="why it is paused; null: it is not"),
    Column(
        "overruled",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="it was resumed after a pause, so failures and many items do not pause it again",
    ),
    Column("deadline", Timestamp, nullable=False, comment="when the fair order tries to have it done"),
    Column("expires_at", Timestamp, comment="when unfinished items are given up; null: never"),
    Column("created_at", Timestamp, nullable=False, server_default=func.now()),
    Column("opened_at", Timestamp, nullable=False, server_default=func.now()),
    Column("finalized_at", Timestamp),
    Column("idempotency_key", Text),
    Column("request_hash", LargeBinary),
    UniqueConstraint("tenant_id", "idempotency_key"),
    CheckConstraint(
        f"(finalized_at is not null) = (state in ({', '.join(repr(s.value) for s in PIPELINE.final())}))",
        name="finalized",
    ),
)
Index("pipeline_open", pipeline.c.pipeline_id, postgresql_where=text("finalized_at is null"))
Index("pipeline_listed", pipeline.c.tenant_id, pipeline.c.created_at, pipeline.c.pipeline_id)
Index(
    "pipeline_name",
    pipeline.c.tenant_id,
    pipeline.c.name,
    postgresql_ops={"name": "text_pattern_ops"},
    postgresql_where=text("name is not null"),
)

_COUNTS = {
    "taken": "results of its parent that were handed on to it",
    "ran": "items that are requests, or were parked",
    "passed": "items with a result without a request: the parent's, or a picked choice",
    "dropped": "items of the parent that made none here",
    "refused": "items that were errors from the beginning",
}
stage = Table(
    "stage",
    metadata,
    Column("pipeline_id", BigInteger, ForeignKey("pipeline.pipeline_id", ondelete="CASCADE"), nullable=False),
    Column(
        "n",
        SmallInteger,
        nullable=False,
        comment="0: the input; from 1: a stage of the definition, re-asks and escalations counted",
    ),
    Column("batch_id", BigInteger, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    *(Column(name, Integer, nullable=False, server_default=ZERO, comment=comment) for name, comment in _COUNTS.items()),
    Column("packs", Integer, comment="packs by value; -1: they are not known yet; null: it does not pack by value"),
    Column(
        "waits_for",
        ARRAY(SmallInteger),
        comment="stages that must be final before it starts; null: it has started, or waits for none",
    ),
    PrimaryKeyConstraint("pipeline_id", "n"),
    postgresql_with={"fillfactor": 70, "autovacuum_vacuum_scale_factor": 0, "autovacuum_vacuum_threshold": 500},
)

parked = Table(
    "parked",
    metadata,
    Column("batch_id", BigInteger, nullable=False),
    Column("seq", Integer, nullable=False),
    Column("run", SmallInteger, nullable=False),
    Column(
        "state",
        Text,
        CheckConstraint(PARKED.check(), name="state"),
        nullable=False,
        server_default=PARKED.initial.value,
    ),
    Column("due", Timestamp, nullable=False, comment="when it becomes an error if nobody has answered"),
    PrimaryKeyConstraint("batch_id", "seq"),
    postgresql_with={"fillfactor": 80},
)
Index("parked_due", parked.c.due, postgresql_where=text("state = 'waiting'"))
Index("parked_waiting", parked.c.batch_id, parked.c.seq, postgresql_where=text("state = 'waiting'"))
