"""Tables of budgets. What is reserved for a chunk is in its row (`app.queue.tables`)."""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Float,
    ForeignKey,
    Identity,
    Integer,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    func,
    text,
)

from app.db.metadata import metadata

ZERO = text("0")
EMPTY = text("'{}'")

# Its rows are read and written in the order of budget_id, after those of `usage` and before chunks.
budget = Table(
    "budget",
    metadata,
    Column("budget_id", Integer, Identity(always=True), primary_key=True),
    Column("tenant_id", Integer, ForeignKey("tenant.tenant_id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("scope", Text, CheckConstraint("scope in ('account', 'key', 'workflow')", name="scope"), nullable=False),
    Column("scope_value", Text, nullable=False, comment="id of the key, or the workflow; empty for an account"),
    Column("unit", Text, CheckConstraint("unit in ('cost', 'tokens')", name="unit"), nullable=False),
    Column("currency", Text, comment="of a budget of cost; null: it is of tokens"),
    Column(
        "period",
        Text,
        CheckConstraint("period in ('hour', 'day', 'week', 'month', 'total')", name="period"),
        nullable=False,
    ),
    Column("tz", Text, nullable=False),
    Column(
        "max",
        BigInteger,
        CheckConstraint("max > 0", name="max_positive"),
        nullable=False,
        comment="of one window: 10^-9 of the currency, or tokens; likewise spent and reserved",
    ),
    Column(
        "alerts_at",
        ARRAY(SmallInteger),
        nullable=False,
        server_default=EMPTY,
        comment="per cent of max at which an event is written",
    ),
    Column(
        "queued",
        Text,
        CheckConstraint("queued in ('alert', 'wait', 'refuse')", name="queued"),
        nullable=False,
        comment="what queued work does at the limit",
    ),
    Column(
        "synchronous",
        Text,
        CheckConstraint("synchronous in ('alert', 'refuse')", name="synchronous"),
        nullable=False,
        comment="what synchronous requests do at the limit",
    ),
    Column(
        "reserve",
        Text,
        CheckConstraint("reserve in ('expected', 'maximum')", name="reserve"),
        nullable=False,
        comment="maximum: all that a request can cost, and calls are refused while the database is away",
    ),
    Column("spent", BigInteger, nullable=False, server_default=ZERO),
    Column(
        "reserved",
        BigInteger,
        nullable=False,
        server_default=ZERO,
        comment="for chunks that are not settled, begun or not, and by processes for synchronous requests",
    ),
    Column("window_from", DateTime(timezone=True), nullable=False),
    Column("window_to", DateTime(timezone=True), comment="null: never"),
    Column(
        "notified",
        SmallInteger,
        nullable=False,
        server_default=ZERO,
        comment="per cent up to which alerts were written in this window",
    ),
    Column("changed_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column(
        "diverted_to",
        ARRAY(Text),
        nullable=False,
        server_default=EMPTY,
        comment="models to which work was diverted in this window, each with an event",
    ),
    Column(
        "spent_in",
        DateTime(timezone=True),
        comment="begin of the window in which the event that its money has ended was written",
    ),
    Column(
        "learned_used",
        Float(53),
        nullable=False,
        server_default=ZERO,
        comment="by settled queued results; these three sums fade with a mean life of a day",
    ),
    Column(
        "learned_maximum",
        Float(53),
        nullable=False,
        server_default=ZERO,
        comment="the most that these results could have used",
    ),
    Column("learned_tokens", Float(53), nullable=False, server_default=ZERO, comment="the same in tokens"),
    Column("learned_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column(
        "owner",
        Text,
        CheckConstraint("owner in ('operator', 'account')", name="owner"),
        nullable=False,
        comment="who has set it: the account changes only its own",
    ),
    UniqueConstraint("tenant_id", "name"),
    postgresql_with={"fillfactor": 50},
)

reservation = Table(
    "reservation",
    metadata,
    Column("budget_id", Integer, ForeignKey("budget.budget_id", ondelete="CASCADE"), nullable=False),
    Column("writer", Text, nullable=False, comment="a process that answers synchronous requests"),
    Column("amount", BigInteger, nullable=False, comment="what it may spend; a part of what is reserved of the budget"),
    Column("number", BigInteger, nullable=False, comment="of the report that it wrote last"),
    Column("seen_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column(
        "beyond",
        BigInteger,
        nullable=False,
        server_default=ZERO,
        comment="what the requests in an engine can cost beyond what is reserved for them, at the last report",
    ),
    PrimaryKeyConstraint("budget_id", "writer"),
)
