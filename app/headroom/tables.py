"""Tables: the decision log, one row for each logged change of an engine's allowance; and what each engine did, every 10
seconds for a day, and by minute after that.
"""

from typing import Any

from sqlalchemy import (
    REAL,
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Float,
    Identity,
    Index,
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


def _sample() -> list[Column[Any]]:
    """What an engine did in some seconds. Requests and usage are means over them."""
    return [
        Column("engine_id", BigInteger, nullable=False),
        Column("at", DateTime(timezone=True), nullable=False, comment="the end of the time"),
        Column("seconds", REAL, nullable=False, comment="how long that was"),
        Column("reason", Text, nullable=False, comment="the reason code that held longest"),
        Column("closed_seconds", REAL, nullable=False, comment="of these, without an allowance"),
        Column("allowance", REAL, nullable=False),
        *(Column(name, REAL, nullable=False) for name in ("batch", "sync", "sync_waiting", "frozen")),
        Column("kv_usage", REAL, comment="0 to 1; null: not known"),
        Column("step_ms", REAL, comment="an engine step, as measured; null: none was"),
        Column("predicted_ms", REAL, comment="the same, as predicted"),
        Column("allowed_ms", REAL, comment="how long a step was allowed to take; null: L1 rules"),
        Column("batch_tokens", BigInteger, nullable=False, comment="computed for batch requests: the harvest"),
        Column("sync_tokens", BigInteger, nullable=False, comment="computed for all other requests"),
        Column("yields", Integer, nullable=False),
        Column("evictions", Integer, nullable=False),
    ]


engine_sample = Table("engine_sample", metadata, *_sample(), PrimaryKeyConstraint("engine_id", "at"))
engine_minute = Table("engine_minute", metadata, *_sample(), PrimaryKeyConstraint("engine_id", "at"))
for _table in (engine_sample, engine_minute):
    Index(f"{_table.name}_at", _table.c.at, postgresql_using="brin")
