"""The table of batches that start when others have ended."""

from sqlalchemy import BigInteger, Boolean, Column, PrimaryKeyConstraint, Table, text

from app.db.metadata import metadata

# A row for each pair, until the batch starts. The batch is paused meanwhile.
dependency = Table(
    "dependency",
    metadata,
    Column("batch_id", BigInteger, nullable=False, comment="a batch that waits"),
    Column("needs_id", BigInteger, nullable=False, comment="a batch that must be final first"),
    Column(
        "held",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="its owner paused it meanwhile, so it stays paused in the end",
    ),
    PrimaryKeyConstraint("batch_id", "needs_id"),
)
