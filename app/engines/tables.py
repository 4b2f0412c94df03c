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
    Column("context_window", Integer, comment="tokens that its engines promise; null: the catalogue says"),
    Column("task", Text, comment="of a model whose window stands here"),
)

engine = Table(
    "engine",
    metadata,
    Column("engine_id", BigInteger, Identity(always=True), primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("pool_id", SmallInteger, ForeignKey("pool.pool_id"), comment="null: nobody knows yet what it serves"),
    Column("url", Text, nullable=False),
    Column("arrival_url", Text, comment="where the gateway announces synchronous requests to the worker"),
    Column("mode", Text, CheckConstraint("mode in ('managed', 'attached')", name="mode"), nullable=False),
    Column("slots", Integer, nullable=False, server_default="256", comment="requests it runs at once"),
    Column(
        "state",
        Text,
        CheckConstraint(ENGINE.check(), name="state"),
        nullable=False,
        server_default=ENGINE.initial.value,
    ),
    Column("worker_id", BigInteger, comment="holder of the controller lease; valid while that worker's lease is"),
    Column("reason", Text, comment="the controller's last reason code"),
    Column("signal", Text, comment="what decided: it was value against threshold"),
    Column("value", Float(53)),
    Column("threshold", Float(53)),
    Column(
        "reason_since",
        DateTime(timezone=True),
        nullable=False,
        server_default=func.now(),
        comment="since when state and reason are what they are",
    ),
    Column("detail", Text, comment="what is wrong with its telemetry"),
    Column("start_seconds", Float(53), comment="how long it took lately to come back, as its worker learned"),
    Column("expected_at", DateTime(timezone=True), comment="when it should answer; null: it does, or nobody knows"),
    Column("allowance", SmallInteger, nullable=False, server_default="0"),
    Column(
        "intake",
        Text,
        CheckConstraint(INTAKE.check(), name="intake"),
        nullable=False,
        server_default=INTAKE.initial.value,
        comment="whether it takes new work: the operator's word, which outlives its worker",
    ),
    Column("intake_since", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("batch_in_flight", Integer, nullable=False, server_default="0", comment="as its worker last reported"),
    Column("sync_in_flight", Integer, nullable=False, server_default="0", comment="those that a gateway announced"),
    Column("served_name", Text, comment="what it calls the model; null: as the pool does"),
    Column("serves", ARRAY(Text), nullable=False, server_default=text("'{}'"), comment="every name that it serves"),
    Column("max_model_len", Integer, comment="its context window in tokens, if it tells"),
    Column("version", Text),
    Column("scheduling_policy", Text, comment="null: it does not tell"),
    Column(
        "protection",
        Text,
        CheckConstraint("protection in ('inside', 'outside')", name="protection"),
        nullable=False,
        server_default="outside",
        comment="where synchronous requests are protected: in each step of the engine, or by what it is given",
    ),
    Column("problems", JSONB, nullable=False, server_default=text("'[]'"), comment="code, message, remedy of each"),
    Column("heartbeat_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    postgresql_with={"fillfactor": 50},
)
