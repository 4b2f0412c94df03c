"""Tables of conversations: a session is one conversation, a turn one response of it, or items that its owner added.

A turn without a session is a stored response; those that continue each other by `previous_response_id` form a tree.
"""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from app.db.metadata import metadata
from app.states import TURN

Timestamp = DateTime(timezone=True)
_ZERO = text("0")


def _tenant() -> Column[int]:
    return Column("tenant_id", Integer, ForeignKey("tenant.tenant_id", ondelete="CASCADE"), nullable=False)


session = Table(
    "session",
    metadata,
    Column("session_id", Uuid, primary_key=True),
    _tenant(),
    Column("version", Integer, nullable=False, server_default=_ZERO, comment="number of the last turn that ended"),
    Column(
        "edits",
        Integer,
        nullable=False,
        server_default=_ZERO,
        comment="how often what its turns say was changed: a turn that was prepared before does not begin",
    ),
    Column("turn_id", Uuid, comment="the turn that runs: the fence of its end; null: none runs"),
    Column(
        "lease_until", Timestamp, comment="when the running turn has failed unless renewed; null: its batch decides"
    ),
    Column(
        "base", Integer, nullable=False, server_default=_ZERO, comment="summary stands for the turns up to this one"
    ),
    Column(
        "folded",
        BigInteger,
        nullable=False,
        server_default=_ZERO,
        comment="bytes of the turns for which summary stands",
    ),
    Column("summary", LargeBinary, comment="of a checkpoint, sealed as a turn is; null: there is none"),
    Column("checkpoint_batch", BigInteger, comment="the batch that makes a summary; null: none does"),
    Column("checkpoint_n", Integer, comment="the last turn that this summary will stand for"),
    Column("slope", Float(53), comment="tokens by which a prompt is longer than the one before; null: too few turns"),
    Column("meta", JSONB, nullable=False, server_default=text("'{}'"), comment="OpenAI's metadata"),
    Column("key_id", Uuid, comment="the data key of new turns; null: they are in the clear"),
    Column("created_at", Timestamp, nullable=False, server_default=func.now()),
    Column("used_at", Timestamp, nullable=False, server_default=func.now(), comment="when its last turn ended"),
    postgresql_with={"fillfactor": 70},
)
Index("session_used", session.c.used_at)
Index("session_tenant", session.c.tenant_id)
Index("session_checkpoint", session.c.checkpoint_batch, postgresql_where=text("checkpoint_batch is not null"))

turn = Table(
    "turn",
    metadata,
    Column("turn_id", Uuid, primary_key=True, comment="the id of its response"),
    _tenant(),
    Column(
        "session_id", Uuid, ForeignKey("session.session_id", ondelete="CASCADE"), comment="null: of no conversation"
    ),
    Column("n", Integer, nullable=False, comment="from 1: place in its conversation, or depth in its tree"),
    Column("parent_turn", Uuid, comment="previous_response_id of a response of no conversation"),
    Column(
        "state", Text, CheckConstraint(TURN.check(), name="state"), nullable=False, server_default=TURN.initial.value
    ),
    Column("batch_id", BigInteger, comment="the batch of a background response; null: it is none"),
    Column("model", Text, comment="that answers it; null: items that the owner added"),
    Column(
        "spender", JSONB, comment="the key and the labels of its request, by name; null: of items that the owner added"
    ),
    Column("input", LargeBinary, nullable=False, comment="JSON array of items, redacted, shortened, perhaps sealed"),
    Column("original", LargeBinary, comment="the input before it was shortened; null: it was not"),
    Column("output", LargeBinary, comment="the response object, perhaps sealed; null: it has none"),
    Column("vault", LargeBinary, comment="sealed values of all placeholders so far; null: there are none"),
    Column("key_id", Uuid, comment="the data key that seals it; null: it is in the clear"),
    Column("prompt_tokens", Integer, nullable=False, server_default=_ZERO),
    Column("cached_tokens", Integer, nullable=False, server_default=_ZERO),
    Column("completion_tokens", Integer, nullable=False, server_default=_ZERO),
    Column("idempotency_key", Text),
    Column("request_hash", LargeBinary, comment="of the body that came with the key"),
    Column("created_at", Timestamp, nullable=False, server_default=func.now()),
    Column("finished_at", Timestamp),
    UniqueConstraint("session_id", "n"),
    UniqueConstraint("session_id", "idempotency_key"),
)
Index("turn_old", turn.c.created_at, postgresql_where=text("session_id is null"))
Index("turn_tenant", turn.c.tenant_id)
Index("turn_child", turn.c.parent_turn, postgresql_where=text("parent_turn is not null"))
Index("turn_queued", turn.c.session_id, turn.c.n, postgresql_where=text("state = 'queued'"))
Index("turn_open", turn.c.batch_id, postgresql_where=text("state in ('queued', 'running')"))
