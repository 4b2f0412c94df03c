"""The tables `pool` (the engines that serve one model) and `engine`."""

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
    SmallInteger,
    Table,
    Text,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from app.db.metadata import metadata
from app.states import ENGINE, INTAKE

pool = Table(
    "pool",
    metadata,
    Column("pool_id", SmallInteger, Identity(always=True), primary_key=True),
    Column("model", Text, nullable=False, unique=True),
    Column(
        "context_window",
        Integer,
        comment="context window in tokens that callers are promised; null: as in the catalogue",
    ),
    Column("task", Text, comment="task of an adopted model; null: as in the catalogue"),
)

engine = Table(
    "engine",
    metadata,
    Column("engine_id", BigInteger, Identity(always=True), primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column(
        "pool_id", SmallInteger, ForeignKey("pool.pool_id"), comment="null: it is not known yet which model it serves"
    ),
    Column("url", Text, nullable=False),
    Column("arrival_url", Text, comment="where the gateway announces synchronous requests to the worker"),
    Column("mode", Text, CheckConstraint("mode in ('managed', 'attached')", name="mode"), nullable=False),
    Column("slots", Integer, nullable=False, server_default=text("256"), comment="how many requests it runs at once"),
    Column(
        "state",
        Text,
        CheckConstraint(ENGINE.check(), name="state"),
        nullable=False,
        server_default=ENGINE.initial.value,
    ),
    Column(
        "worker_id", BigInteger, comment="the worker that controls it, as long as the lease of that worker is valid"
    ),
    Column("reason", Text, comment="the controller's last reason code"),
    Column("signal", Text, comment="the signal that decided; its value was compared with threshold"),
    Column("value", Float(53)),
    Column("threshold", Float(53)),
    Column(
        "reason_since",
        DateTime(timezone=True),
        nullable=False,
        server_default=func.now(),
        comment="when state or reason last changed",
    ),
    Column("detail", Text, comment="what is wrong with its telemetry, or how its process ended"),
    Column(
        "start_seconds", Float(53), comment="how long it recently took to start or to recover, as its worker measured"
    ),
    Column(
        "expected_at",
        DateTime(timezone=True),
        comment="when it is expected to answer; null: it answers, or the time is not known",
    ),
    Column("allowance", SmallInteger, nullable=False, server_default=text("0")),
    Column(
        "intake",
        Text,
        CheckConstraint(INTAKE.check(), name="intake"),
        nullable=False,
        server_default=INTAKE.initial.value,
        comment="whether it takes new work, as the operator set it; it outlives the worker",
    ),
    Column("intake_since", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("batch_in_flight", Integer, nullable=False, server_default=text("0"), comment="as its worker last reported"),
    Column(
        "in_engine",
        JSONB,
        nullable=False,
        server_default=text("'{}'"),
        comment="items in the engine by batch id, as its worker last reported",
    ),
    Column(
        "sync_in_flight", Integer, nullable=False, server_default=text("0"), comment="announced by gateways, not ended"
    ),
    Column("served_name", Text, comment="its own name for the model; null: the same as the pool's"),
    Column("serves", ARRAY(Text), nullable=False, server_default=text("'{}'"), comment="all names that it serves"),
    Column("max_model_len", Integer, comment="its context window in tokens; null: it does not report it"),
    Column("version", Text),
    Column("scheduling_policy", Text, comment="null: it does not report it"),
    Column(
        "protection",
        Text,
        CheckConstraint("protection in ('inside', 'outside')", name="protection"),
        nullable=False,
        server_default="outside",
        comment="inside: our scheduler shares each step; outside: only the number of batch requests is controlled",
    ),
    Column("problems", JSONB, nullable=False, server_default=text("'[]'"), comment="list of code, message and remedy"),
    Column("heartbeat_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column(
        "dialect",
        Text,
        nullable=False,
        server_default="vllm",
        comment="the kind of engine: which fields a request to it may have (app/engines/dialects.py)",
    ),
    postgresql_with={"fillfactor": 50},
)
