"""Tables: what happened, where it is to be told, one event for one endpoint, one HTTP try.

Rows are the truth; a Celery message only says that a delivery may be due.
"""

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
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)

from app.db.metadata import metadata
from app.states import DELIVERY

Timestamp = DateTime(timezone=True)

event = Table(
    "event",
    metadata,
    Column("event_id", BigInteger, Identity(always=True), primary_key=True),
    Column("message_id", Uuid, nullable=False, server_default=text("gen_random_uuid()"), comment="the webhook-id"),
    Column("tenant_id", Integer, nullable=False),
    Column("kind", Text, nullable=False, comment="batch.queued, batch.succeeded, …"),
    Column("model", Text, nullable=False),
    Column("batch_id", BigInteger, nullable=False),
    Column("run", SmallInteger, nullable=False),
    Column("data", LargeBinary, nullable=False, comment="JSON; each endpoint's format is made from it"),
    Column("occurred_at", Timestamp, nullable=False, server_default=func.now()),
    UniqueConstraint("batch_id", "run", "kind"),
)

endpoint = Table(
    "endpoint",
    metadata,
    Column("endpoint_id", Uuid, primary_key=True, server_default=text("gen_random_uuid()")),
    Column("tenant_id", Integer, ForeignKey("tenant.tenant_id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("url", Text, nullable=False),
    Column("model", Text, comment="null: events of all models"),
    Column("kinds", ARRAY(Text), nullable=False),
    Column("format", Text, nullable=False, server_default="workers_ai"),
    Column("enabled", Boolean, nullable=False, server_default=text("true")),
    Column("disabled_reason", Text),
    Column("secret", LargeBinary, nullable=False, comment="encrypted signing secret"),
    Column("failing_since", Timestamp),
    Column("created_at", Timestamp, nullable=False, server_default=func.now()),
    Column("modified_at", Timestamp, nullable=False, server_default=func.now()),
)
Index("endpoint_tenant", endpoint.c.tenant_id)

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
    Column("attempts", SmallInteger, nullable=False, server_default="0"),
    Column("fence", Integer, nullable=False, server_default="0"),
    Column("next_attempt_at", Timestamp, nullable=False, server_default=func.now()),
    Column("lease_until", Timestamp),
    Column("hinted_at", Timestamp, comment="when the broker was last told"),
    UniqueConstraint("event_id", "endpoint_id"),
    CheckConstraint("(state = 'sending') = (lease_until is not null)", name="sending_has_lease"),
)
Index("delivery_due", delivery.c.next_attempt_at, postgresql_where=text("state = 'pending'"))
Index("delivery_leased", delivery.c.lease_until, postgresql_where=text("state = 'sending'"))
Index("delivery_endpoint", delivery.c.endpoint_id)

attempt = Table(
    "attempt",
    metadata,
    Column("attempt_id", BigInteger, Identity(always=True), primary_key=True),
    Column("delivery_id", BigInteger, ForeignKey("delivery.delivery_id", ondelete="CASCADE"), nullable=False),
    Column("n", SmallInteger, nullable=False),
    Column("started_at", Timestamp, nullable=False),
    Column("duration_ms", Integer, nullable=False),
    Column("http_status", SmallInteger),
    Column("error_class", Text, comment="dns, connect, tls, timeout, http_4xx, ssrf_blocked, …; null: delivered"),
    Column("response_body", LargeBinary, comment="the first bytes of the receiver's answer"),
)
Index("attempt_delivery", attempt.c.delivery_id)
