"""Tables of the history of batches: what each waited for, and of what its items failed.

They have no foreign key, whose lock would write to the batch's row at each insert. Retention deletes them with their batch.
"""

from sqlalchemy import BigInteger, Column, Index, Integer, PrimaryKeyConstraint, SmallInteger, Table, Text, func, text

from app.db.metadata import metadata
from app.queue.tables import Timestamp

batch_phase = Table(
    "batch_phase",
    metadata,
    Column("batch_id", BigInteger, nullable=False),
    Column("at", Timestamp, nullable=False, server_default=func.now(), comment="when the steward first saw it"),
    Column("tenant_id", Integer, nullable=False),
    Column("until", Timestamp, comment="when the next one began, or the batch ended; null: it lasts"),
    Column(
        "code", Text, nullable=False, comment="what the batch waits for, as `why` names it; running: it does not wait"
    ),
    PrimaryKeyConstraint("batch_id", "at"),
    postgresql_with={"fillfactor": 80},
)
Index(
    "batch_phase_now",
    batch_phase.c.tenant_id,
    batch_phase.c.code,
    batch_phase.c.batch_id,
    postgresql_where=text("until is null"),
)
Index("batch_phase_open", batch_phase.c.batch_id, unique=True, postgresql_where=text("until is null"))

batch_error = Table(
    "batch_error",
    metadata,
    Column("batch_id", BigInteger, nullable=False),
    Column("run", SmallInteger, nullable=False),
    Column("error", Text, nullable=False, comment="the class of the error (app.engines.outcome)"),
    Column("tenant_id", Integer, nullable=False),
    Column("n", Integer, nullable=False, comment="items of the run that failed with it, as folded"),
    PrimaryKeyConstraint("batch_id", "run", "error"),
)
Index("batch_error_class", batch_error.c.tenant_id, batch_error.c.error, batch_error.c.batch_id)
