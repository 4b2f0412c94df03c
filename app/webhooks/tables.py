"""Tables: events, endpoints, deliveries (one event for one endpoint) and attempts (one HTTP request).

The rows are the truth. A Celery message is only a hint that a delivery may be due.
"""

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
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from app.db.metadata import metadata
from app.states import DELIVERY, ENDPOINT

Timestamp = DateTime(timezone=True)

event = Table(
    "event",
    metadata,
    Column("event_id", BigInteger, Identity(always=True), primary_key=True),
    Column("message_id", Uuid, nullable=False, server_default=text("gen_random_uuid()"), comment="the webhook-id"),
    Column("tenant_id", Integer, nullable=False),
    Column("kind", Text, nullable=False, comment="batch.queued, batch.succeeded, …"),
    Column("model", Text, nullable=False),
    Column("batch_id", BigInteger),
    Column("run", SmallInteger),
    Column("data", LargeBinary, nullable=False, comment="JSON; each endpoint's format is made from it"),
    Column("occurred_at", Timestamp, nullable=False, server_default=func.now()),
    Column(
        "n",
        Integer,
        nullable=False,
        server_default=text("0"),
        comment="its number among the events of the same batch, run and kind",
    ),
    UniqueConstraint("batch_id", "run", "kind", "n"),
)
Index("event_tenant", event.c.tenant_id, event.c.event_id)

endpoint = Table(
    "endpoint",
    metadata,
    Column("endpoint_id", Uuid, primary_key=True, server_default=text("gen_random_uuid()")),
    Column("tenant_id", Integer, ForeignKey("tenant.tenant_id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("url", Text, comment="where its events are sent; null: they are fetched"),
    Column("queue_id", Text, comment="the queue from which its events are fetched; null: they are sent"),
    Column("model", Text, comment="null: events of all models"),
    Column("kinds", ARRAY(Text), nullable=False),
    Column("format", Text, nullable=False, server_default="workers_ai"),
    Column(
        "state",
        Text,
        CheckConstraint(ENDPOINT.check(), name="state"),
        nullable=False,
        server_default=ENDPOINT.initial.value,
    ),
    Column("reason", Text, comment="why it is disabled"),
    Column("secret", LargeBinary, comment="encrypted signing secret; null: its events are fetched"),
    Column("failing_since", Timestamp),
    Column("created_at", Timestamp, nullable=False, server_default=func.now()),
    Column("modified_at", Timestamp, nullable=False, server_default=func.now()),
    Column(
        "previous_secret", LargeBinary, comment="the secret before a rotation, which also signs until previous_until"
    ),
    Column("previous_until", Timestamp),
    Column("signing_key", LargeBinary, comment="sealed ed25519 key, for v1a signatures"),
    Column(
        "previous_signing_key",
        LargeBinary,
        comment="that before a rotation, which also signs until previous_until",
    ),
    Column(
        "tags",
        ARRAY(Text),
        nullable=False,
        server_default=text("'{}'"),
        comment="only events of batches that have all of them",
    ),
    Column(
        "metadata",
        JSONB,
        nullable=False,
        server_default=text("'{}'"),
        comment="only events of batches whose metadata has all of it",
    ),
    Column(
        "ordered",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="an event of a batch is sent after the deliveries of its earlier events have ended",
    ),
    Column(
        "max_in_flight",
        SmallInteger,
        CheckConstraint("max_in_flight > 0", name="in_flight_positive"),
        nullable=False,
        server_default=text("8"),
    ),
    Column("max_per_second", Float(53), CheckConstraint("max_per_second > 0", name="rate_positive")),
    Column("paced_until", Timestamp, comment="until then, the deliveries that were sent use up max_per_second"),
    Column("failures", Integer, nullable=False, server_default=text("0"), comment="failed attempts in a row"),
    Column(
        "open_until",
        Timestamp,
        comment="circuit breaker: nothing is sent before then, and afterwards one delivery at a time",
    ),
    Column(
        "warned",
        SmallInteger,
        nullable=False,
        server_default=text("0"),
        comment="how many warning steps it has reached since it began to fail",
    ),
    Column(
        "hinted_at", Timestamp, comment="when a hint for its due deliveries was last published; null: none is expected"
    ),
    CheckConstraint("(url is null) <> (queue_id is null) and (url is null) = (secret is null)", name="sent_or_fetched"),
)
Index("endpoint_tenant", endpoint.c.tenant_id)
Index("endpoint_closing", endpoint.c.endpoint_id, postgresql_where=text("state = 'closing'"))

delivery = Table(
    "delivery",
    metadata,
    Column("delivery_id", BigInteger, Identity(always=True), primary_key=True),
    Column("event_id", BigInteger, ForeignKey("event.event_id"), nullable=False),
    Column("endpoint_id", Uuid, ForeignKey("endpoint.endpoint_id", ondelete="CASCADE"), nullable=False),
    Column(
        "state",
        Text,
        CheckConstraint(DELIVERY.check(), name="state"),
        nullable=False,
        server_default=DELIVERY.initial.value,
    ),
    Column("attempts", SmallInteger, nullable=False, server_default=text("0")),
    Column("fence", Integer, nullable=False, server_default=text("0")),
    Column(
        "next_attempt_at",
        Timestamp,
        nullable=False,
        server_default=func.now(),
        comment="infinity: the event is fetched, not sent",
    ),
    Column("lease_until", Timestamp),
    Column(
        "attempts_before",
        SmallInteger,
        nullable=False,
        server_default=text("0"),
        comment="attempts before it was last sent again by hand",
    ),
    Column("batch_id", BigInteger),
    Column(
        "probe",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="a test event; it is also sent to endpoints that are not active",
    ),
    Column("claimed_at", Timestamp, comment="when its latest attempt began"),
    Column("reason", Text, comment="why it is dead"),
    UniqueConstraint("event_id", "endpoint_id"),
    CheckConstraint("(state = 'sending') = (lease_until is not null)", name="sending_has_lease"),
)
Index("delivery_due", delivery.c.next_attempt_at, postgresql_where=text("state = 'pending'"))
Index("delivery_leased", delivery.c.lease_until, postgresql_where=text("state = 'sending'"))
Index(
    "delivery_next",
    delivery.c.endpoint_id,
    delivery.c.probe.desc(),
    delivery.c.next_attempt_at,
    delivery.c.delivery_id,
    postgresql_where=text("state = 'pending'"),
)
Index("delivery_sending", delivery.c.endpoint_id, postgresql_where=text("state = 'sending'"))
Index("delivery_held", delivery.c.endpoint_id, postgresql_where=text("state = 'held'"))
Index("delivery_dead", delivery.c.endpoint_id, postgresql_where=text("state = 'dead'"))
Index(
    "delivery_open",
    delivery.c.endpoint_id,
    delivery.c.batch_id,
    delivery.c.delivery_id,
    postgresql_where=text("state in ('pending', 'held', 'sending')"),
)
Index("delivery_endpoint", delivery.c.endpoint_id, delivery.c.delivery_id)

attempt = Table(
    "attempt",
    metadata,
    Column("attempt_id", BigInteger, Identity(always=True), primary_key=True),
    Column("delivery_id", BigInteger, ForeignKey("delivery.delivery_id", ondelete="CASCADE"), nullable=False),
    Column("n", SmallInteger, nullable=False),
    Column("started_at", Timestamp, nullable=False),
    Column("duration_ms", Integer, nullable=False),
    Column("http_status", SmallInteger),
    Column(
        "error_class",
        Text,
        comment="dns, connect, tls, timeout, http_4xx, ssrf_blocked, sender_lost, …; null: delivered",
    ),
    Column("response_body", LargeBinary, comment="the first bytes of the receiver's answer"),
    Column("address", Text, comment="the IP address that answered"),
)
Index("attempt_delivery", attempt.c.delivery_id)
