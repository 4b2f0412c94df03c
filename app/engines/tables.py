"""Tables: pools (the engines that serve one model) and engines."""

from sqlalchemy import (
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
)

from app.db.metadata import metadata
from app.states import ENGINE

pool = Table(
    "pool",
    metadata,
    Column("pool_id", SmallInteger, Identity(always=True), primary_key=True),
    Column("model", Text, nullable=False, unique=True),
)

engine = Table(
    "engine",
    metadata,
    Column("engine_id", BigInteger, Identity(always=True), primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("pool_id", SmallInteger, ForeignKey("pool.pool_id"), nullable=False),
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
    Column("allowance", SmallInteger, nullable=False, server_default="0"),
    Column("heartbeat_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    postgresql_with={"fillfactor": 50},
)
