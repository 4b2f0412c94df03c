"""Tables of the hand-off: results of feeding batches that are still to be handed on, and the packs that wait for inputs."""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Column,
    Identity,
    Index,
    Integer,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    func,
    text,
)

from app.db.metadata import metadata
from app.queue.tables import ZERO, Timestamp

_CHURN = {"autovacuum_vacuum_scale_factor": 0, "autovacuum_vacuum_threshold": 1000}

# A marker. The transaction that makes the children deletes it, so a result is handed on once.
handoff = Table(
    "handoff",
    metadata,
    Column("handoff_id", BigInteger, Identity(always=True), nullable=False),
    Column("batch_id", BigInteger, nullable=False),
    Column("run", SmallInteger, nullable=False, comment="0: the items are packs of the batch, to be made"),
    Column("seqs", ARRAY(Integer), nullable=False, comment="items of the batch that have a result of this run"),
    Column("bytes", BigInteger, nullable=False, comment="size of these results"),
    Column(
        "input",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="lines of the input of a pipeline, which are taken last",
    ),
    Column("tries", SmallInteger, nullable=False, server_default=ZERO, comment="how often handing them on has failed"),
    Column(
        "due",
        Timestamp,
        nullable=False,
        server_default=func.now(),
        comment="when it is tried next; infinity: its pipeline is paused, or it was given up",
    ),
    PrimaryKeyConstraint("batch_id", "handoff_id"),
    postgresql_with=_CHURN,
)
Index("handoff_order", handoff.c.input, handoff.c.handoff_id, postgresql_where=text("due < 'infinity'"))

gather = Table(
    "gather",
    metadata,
    Column("batch_id", BigInteger, nullable=False, comment="a stage that packs"),
    Column("seq", Integer, nullable=False),
    Column("open", Integer, nullable=False, comment="inputs that the pack waits for; 0: it was made, or will never be"),
    PrimaryKeyConstraint("batch_id", "seq"),
    postgresql_with={"fillfactor": 70, **_CHURN},
)
