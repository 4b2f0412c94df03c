"""Table: the decision log, one row for each logged change of an engine's allowance."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Float,
    Identity,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
)

from app.db.metadata import metadata

# No foreign key, because its lock would write to the engine's row at every flush.
decision = Table(
    "decision",
    metadata,
    Column("decision_id", BigInteger, Identity(always=True), nullable=False),
    Column("engine_id", BigInteger, nullable=False),
    Column("at", DateTime(timezone=True), nullable=False),
    Column("layer", Text, CheckConstraint("layer in ('l1', 'l2')", name="layer"), nullable=False),
    Column("was_allowance", Integer, nullable=False),
    Column("allowance", Integer, nullable=False, comment="batch requests that may be in flight"),
    Column("was_reason", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("signal", Text, comment="the signal whose value was compared with threshold"),
    Column("value", Float(53)),
    Column("threshold", Float(53)),
    Column("in_flight", Integer, nullable=False, comment="batch requests in the engine"),
    Column(
        "credited",
        Integer,
        nullable=False,
        comment="batch requests in flight that were admitted after the telemetry was read",
    ),
    Column("detail", Text, comment="what was wrong with the telemetry"),
    PrimaryKeyConstraint("engine_id", "at", "decision_id"),
)
