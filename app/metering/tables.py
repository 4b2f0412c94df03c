"""Tables of the ledger: lines, the usage of each line by hour, and what was learned from it."""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from app.db.metadata import metadata
from app.metering.line_columns import PARTS, PRICE, SKETCHES
from app.usage_counts import COUNTS

ZERO = text("0")
_COMMENTS = {
    "prompt": "tokens, cached ones included",
    "cached": "of these, from the prefix cache",
    "repeats": "of a batch's second or later run",
    "retried": "that took more than one attempt",
    "engine_ms": "milliseconds of an engine that queued requests had",
    "first_token": "times to the first token: counts of the buckets of app.metering.sketch; null: none was measured",
    "duration": "the same of whole answers",
}


def _usage_columns() -> list[Column[int]]:
    counts = (
        Column(name, BigInteger, nullable=False, server_default=ZERO, comment=_COMMENTS.get(name)) for name in COUNTS
    )
    return [*counts, *(Column(name, ARRAY(Integer), comment=_COMMENTS[name]) for name in SKETCHES)]


line = Table(
    "line",
    metadata,
    Column("line_id", Integer, Identity(always=True), primary_key=True),
    Column("tenant_id", Integer, ForeignKey("tenant.tenant_id"), nullable=False),
    Column("key_id", Text, nullable=False, comment="empty: not known"),
    Column("workflow", Text, nullable=False),
    Column("task", Text, nullable=False),
    Column("critical", Boolean, nullable=False),
    Column("variant", Text, nullable=False),
    Column("family", Text, nullable=False),
    Column("model", Text, nullable=False, comment="catalogue name of the model that answers"),
    Column("kind", Text, nullable=False, comment="sync, door, or the kind of a batch"),
    Column(
        "endpoint",
        Text,
        nullable=False,
        server_default=text("'-'"),
        comment="the engine's route; -: not known; mixed: several in one chunk",
    ),
    Column("price_in", BigInteger, comment="10^-12 of the currency per prompt token; null: the model has no price"),
    Column("price_cached", BigInteger, comment="the same, per prompt token from the prefix cache"),
    Column("price_out", BigInteger, comment="the same, per token of the answer"),
    Column("currency", Text),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column(
        "unused_since",
        DateTime(timezone=True),
        comment="when nothing used it and nobody had looked it up since; null: it is used",
    ),
    UniqueConstraint(*PARTS, *PRICE, name="line_parts", postgresql_nulls_not_distinct=True),
)

usage_writer = Table(
    "usage_writer",
    metadata,
    Column("writer", Text, primary_key=True, comment="a process that books synchronous usage"),
    Column("number", BigInteger, nullable=False, comment="of the group of sums that it booked last"),
    Column("seen_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
)

usage = Table(
    "usage",
    metadata,
    Column("hour", DateTime(timezone=True), nullable=False, comment="the hour (UTC) in which the requests ended"),
    Column("line_id", Integer, ForeignKey("line.line_id"), nullable=False),
    *_usage_columns(),
    PrimaryKeyConstraint("hour", "line_id"),
)

usage_day = Table(
    "usage_day",
    metadata,
    Column("hour", DateTime(timezone=True), nullable=False, comment="the first hour of the day (UTC)"),
    Column("line_id", Integer, ForeignKey("line.line_id"), nullable=False),
    *_usage_columns(),
    PrimaryKeyConstraint("hour", "line_id"),
)

# What queued work had used in the days that were dropped. With it the ledger can be compared with the queue.
dropped_usage = Table(
    "dropped_usage",
    metadata,
    Column("tenant_id", Integer, ForeignKey("tenant.tenant_id"), primary_key=True),
    *(
        Column(name, BigInteger, nullable=False, server_default=ZERO)
        for name in ("ok", "failed", "prompt", "cached", "output")
    ),
)

session_growth = Table(
    "session_growth",
    metadata,
    Column("tenant_id", Integer, ForeignKey("tenant.tenant_id"), nullable=False),
    Column("session", LargeBinary, nullable=False, comment="a keyed hash of the caller's name of the session"),
    Column("workflow", Text, nullable=False, comment="of the last request, as the variant"),
    Column("variant", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("endpoint", Text, nullable=False),
    Column("turns", BigInteger, nullable=False, server_default=ZERO),
    Column(
        "prompts", ARRAY(Integer), nullable=False, comment="prompt tokens of the last ten requests, the latest last"
    ),
    Column("fresh", ARRAY(Integer), nullable=False, comment="of these, computed anew"),
    Column("seen_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    PrimaryKeyConstraint("tenant_id", "session"),
)
Index("session_growth_seen", session_growth.c.seen_at)

ledger_check = Table(
    "ledger_check",
    metadata,
    Column("one", Boolean, CheckConstraint("one", name="one"), primary_key=True, comment="always true: one row"),
    Column("at", DateTime(timezone=True), nullable=False, comment="when the ledger was compared with the queue"),
    Column("drift", BigInteger, nullable=False, comment="sum of all differences, without their signs; should be 0"),
    Column(
        "labels",
        JSONB,
        nullable=False,
        server_default=text("'{}'"),
        comment="share of its labels that an account has used, from one half on, by its name and that of the label",
    ),
)

latency_minute = Table(
    "latency_minute",
    metadata,
    Column("minute", DateTime(timezone=True), nullable=False, comment="the minute in which the answers ended"),
    Column("writer", Text, nullable=False, comment="the process that measured them"),
    Column("model", Text, nullable=False),
    Column(
        "beside", Boolean, nullable=False, comment="whether batch requests were in the engine, as its worker last said"
    ),
    Column("requests", Integer, nullable=False),
    Column("first_token", ARRAY(Integer), nullable=False, comment="bucket, count, bucket, count, … of a sketch"),
    Column("gap", ARRAY(Integer), nullable=False, comment="the same of the time between two tokens"),
    PrimaryKeyConstraint("minute", "model", "beside", "writer"),
)

answer_length = Table(
    "answer_length",
    metadata,
    Column("tenant_id", Integer, ForeignKey("tenant.tenant_id"), nullable=False),
    Column("workflow", Text, nullable=False),
    Column("task", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column(
        "p95", Integer, nullable=False, comment="tokens that 95 of 100 recent answers without a limit do not exceed"
    ),
    Column("answers", Integer, nullable=False, comment="of which it was learned"),
    Column("learned_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    PrimaryKeyConstraint("tenant_id", "workflow", "task", "model"),
)
