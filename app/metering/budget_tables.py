"""Tables of budgets."""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
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
        comment="of one window: 10^-9 of the currency, or tokens; likewise spent and held",
    ),
    Column(
        "soft",
        ARRAY(SmallInteger),
        nullable=False,
        server_default=EMPTY,
        comment="per cent of max at which an event is written",
    ),
    Column(
        "divert_at", SmallInteger, comment="per cent of max from which work that is not critical moves to a fallback"
    ),
    Column(
        "fallback",
        ARRAY(Text),
        nullable=False,
        server_default=EMPTY,
        comment="catalogue models, the first that fits is taken",
    ),
    Column("when_spent", Text, CheckConstraint("when_spent in ('wait', 'refuse')", name="when_spent"), nullable=False),
    Column(
        "strict",
        Boolean,
        nullable=False,
        comment="hold all that a request can cost, and refuse calls while the database is away",
    ),
    Column("spent", BigInteger, nullable=False, server_default=ZERO),
    Column(
        "held",
        BigInteger,
        nullable=False,
        server_default=ZERO,
        comment="for funded chunks that are not settled, and in slices",
    ),
    Column("window_from", DateTime(timezone=True), nullable=False),
    Column("window_to", DateTime(timezone=True), comment="null: never"),
    Column(
        "notified",
        SmallInteger,
        nullable=False,
        server_default=ZERO,
        comment="per cent up to which events of soft thresholds were written in this window",
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
        "spent_noted",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="whether the event that its money has ended was written in this window",
    ),
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

lane = Table(
    "lane",
    metadata,
    Column("lane_id", Integer, Identity(always=True), primary_key=True),
    Column("tenant_id", Integer, ForeignKey("tenant.tenant_id"), nullable=False),
    Column("budget_ids", ARRAY(Integer), nullable=False, comment="the budgets that apply, in ascending order"),
    Column(
        "cost",
        Float(53),
        nullable=False,
        server_default=ZERO,
        comment="of its settled results; these four sums fade with a mean life of a day",
    ),
    Column(
        "worst", Float(53), nullable=False, server_default=ZERO, comment="the most that these results could have cost"
    ),
    Column("tokens", Float(53), nullable=False, server_default=ZERO),
    Column("worst_tokens", Float(53), nullable=False, server_default=ZERO),
    Column("learned_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column(
        "strict",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="whether a hold is all that a request can cost, because one of the budgets is strict",
    ),
    UniqueConstraint("tenant_id", "budget_ids", "strict"),
)

budget_slice = Table(
    "budget_slice",
    metadata,
    Column("budget_id", Integer, ForeignKey("budget.budget_id", ondelete="CASCADE"), nullable=False),
    Column("writer", Text, nullable=False, comment="a process that answers synchronous requests"),
    Column("amount", BigInteger, nullable=False, comment="what it may spend; part of the held amount of the budget"),
    Column("number", BigInteger, nullable=False, comment="of the report that it wrote last"),
    Column("seen_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column(
        "beyond",
        BigInteger,
        nullable=False,
        server_default=ZERO,
        comment="what the requests in an engine can cost beyond what they hold, at the last report",
    ),
    PrimaryKeyConstraint("budget_id", "writer"),
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
