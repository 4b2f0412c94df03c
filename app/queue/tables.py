"""Tables of the chunk-lease queue.

Payloads and results are insert-only, in daily partitions by batch id; the high bits of an id are its day. The only mutable work
table holds open chunks. A finished chunk is deleted, so the cost of a claim does not depend on the backlog.
The item tables have no foreign keys: one KEY SHARE lock per row would slow COPY down.
"""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Computed,
    DateTime,
    Float,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Numeric,
    PrimaryKeyConstraint,
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
from app.queue.types import TOKENS, Kind
from app.states import BATCH, CHUNK

Timestamp = DateTime(timezone=True)
DETAILS = "other parts of the tokens that engines counted, as input.NAME or output.NAME; null: none"
ZERO = text("0")


def counts(kind: type[Integer], *names: str) -> list[Column[int]]:
    """Columns of counts, which begin at 0."""
    return [Column(name, kind, nullable=False, server_default=ZERO) for name in names]


def _flag(name: str, comment: str) -> Column[bool]:
    return Column(name, Boolean, nullable=False, server_default=text("false"), comment=comment)


def _stored() -> Column[bool]:
    return _flag("stored", "true: body is the key of the object that contains the body")


batch = Table(
    "batch",
    metadata,
    Column("batch_id", BigInteger, primary_key=True, autoincrement=False, server_default=text("next_batch_id()")),
    Column("request_id", Uuid, nullable=False, unique=True, comment="the id callers see"),
    Column("tenant_id", Integer, ForeignKey("tenant.tenant_id"), nullable=False),
    Column("model", Text, nullable=False, comment="the name the caller used"),
    Column("endpoint", Text, nullable=False, comment="the engine route of its items unless an item has its own"),
    Column(
        "state", Text, CheckConstraint(BATCH.check(), name="state"), nullable=False, server_default=BATCH.initial.value
    ),
    Column("run", SmallInteger, nullable=False, server_default=text("1"), comment="number of the current run, from 1"),
    Column("total", Integer, CheckConstraint("total >= 0", name="total"), nullable=False),
    *counts(Integer, "ok", "failed"),
    *counts(BigInteger, *TOKENS, "bytes"),
    Column(
        "cost",
        Numeric,
        nullable=False,
        server_default=ZERO,
        comment="of the results whose lines have the currency of its own line, in 10^-12 of it",
    ),
    Column("deadline", Timestamp, nullable=False, comment="when the fair order tries to have it done"),
    Column("expires_at", Timestamp, comment="when unfinished items are given up; null: never"),
    Column("created_at", Timestamp, nullable=False, server_default=func.now()),
    Column("opened_at", Timestamp, nullable=False, server_default=func.now(), comment="when the current run began"),
    Column("finalized_at", Timestamp),
    Column("idempotency_key", Text),
    Column("request_hash", LargeBinary),
    Column("correlation_id", Text),
    Column("traceparent", Text, comment="W3C trace context of the submit"),
    Column("affinity", Text, comment="x-session-affinity of the submit"),
    Column("tags", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    Column("meta", JSONB),
    Column(
        "kind",
        Text,
        CheckConstraint(f"kind in ({', '.join(repr(kind.value) for kind in Kind)})", name="kind"),
        nullable=False,
        server_default=Kind.BATCH.value,
        comment="response: a background response; flex: a flex call; both have one item; stage: of a pipeline; "
        "checkpoint: a summary",
    ),
    Column(
        "tells_items",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="a subscription wants events of its items, so a flush writes them",
    ),
    Column(
        "open_ended",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="an answer without a limit of its own may use the rest of the context window",
    ),
    Column("line_id", Integer, comment="line of its items; null: not known"),
    Column("policy", JSONB, comment="what rules of the policy decided at its submit; null: nothing"),
    Column(
        "model_lines",
        ARRAY(Integer),
        comment="lines of its models, the first one's first; null: it has one model, of line_id",
    ),
    Column("diverted_to", ARRAY(Text), comment="models to which the policy moved waiting items; null: none"),
    Column(
        "has_sessions",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="whether items of it belong to sessions",
    ),
    Column("name", Text, comment="for people: of its metadata, else of its file; null: it has none"),
    Column("est_tokens", BigInteger, comment="estimated tokens of all its items; null: they come later"),
    Column("shredded_at", Timestamp, comment="when its contents were deleted; null: they were not"),
    Column(
        "pipeline_id", BigInteger, comment="the pipeline that it is a stage of: the batch_id of its input; null: none"
    ),
    Column("parent_id", BigInteger, comment="the batch from whose results its items are made; null: none"),
    _flag("feeds", "its results are handed on: each flush leaves a marker"),
    _flag("fed", "more items may still come"),
    Column("details", JSONB, comment=DETAILS),
    UniqueConstraint("tenant_id", "idempotency_key"),
    CheckConstraint(
        f"(finalized_at is not null) = (state in ({', '.join(repr(s.value) for s in BATCH.final())}))", name="finalized"
    ),
    postgresql_with={"fillfactor": 80},
)
Index("batch_open", batch.c.created_at, postgresql_where=text("finalized_at is null"))
Index(
    "batch_expiry", batch.c.expires_at, postgresql_where=text("expires_at is not null and state in ('open', 'paused')")
)
Index(
    "batch_single",
    batch.c.tenant_id,
    batch.c.request_hash,
    batch.c.created_at,
    postgresql_where=text("kind <> 'batch'"),
)
_A_BATCH = text("kind = 'batch'")
for _name, _columns in {"": (), "_by_state": (batch.c.state,), "_by_model": (batch.c.model, batch.c.state)}.items():
    _listed = (batch.c.tenant_id, *_columns, batch.c.created_at, batch.c.request_id)
    Index(f"batch_listed{_name}", *_listed, postgresql_where=_A_BATCH)
Index("batch_listed_all", batch.c.created_at, batch.c.request_id, postgresql_where=_A_BATCH)
Index(
    "batch_name",
    batch.c.tenant_id,
    batch.c.name,
    postgresql_ops={"name": "text_pattern_ops"},
    postgresql_where=text("name is not null"),
)
Index("batch_tags", batch.c.tags, postgresql_using="gin", postgresql_where=text("tags <> '{}'"))
Index(
    "batch_meta",
    batch.c.meta,
    postgresql_using="gin",
    postgresql_ops={"meta": "jsonb_path_ops"},
    postgresql_where=text("meta is not null"),
)
Index("batch_open_ended", batch.c.model, batch.c.batch_id, postgresql_where=text("open_ended"))
Index("batch_feeding", batch.c.batch_id, postgresql_where=text("feeds and finalized_at is not null"))
Index("batch_fed", batch.c.parent_id, postgresql_where=text("fed"))
Index("batch_halted", batch.c.state, postgresql_where=text("state in ('paused', 'cancelling', 'expiring')"))

item_payload = Table(
    "item_payload",
    metadata,
    Column("batch_id", BigInteger, nullable=False),
    Column("seq", Integer, nullable=False, comment="input order, from 0"),
    Column("reference", Text, comment="external_reference or custom_id"),
    Column("model", Text, comment="catalogue model; null: the batch's"),
    Column("endpoint", Text, comment="engine route; null: the batch's"),
    Column("affinity", Text),
    Column("est_tokens", Integer, nullable=False),
    Column("wants_json", Boolean, nullable=False, comment="the answer is JSON by request"),
    Column("body", LargeBinary, nullable=False, comment="the caller's item, redacted where the policy says so"),
    _stored(),
    Column(
        "line_id",
        Integer,
        comment="line at whose price a rule of the policy moved it to its model; null: that of the batch's model",
    ),
    Column("vault", LargeBinary, comment="sealed values of the placeholders in its body; null: it has none"),
    PrimaryKeyConstraint("batch_id", "seq"),
    postgresql_partition_by="RANGE (batch_id)",
)

item_result = Table(
    "item_result",
    metadata,
    Column("batch_id", BigInteger, nullable=False),
    Column("seq", Integer, nullable=False),
    Column("run", SmallInteger, nullable=False),
    Column("ok", SmallInteger, nullable=False, comment="1: body is the engine's answer; 0: body is an error"),
    Column("attempt", SmallInteger, nullable=False, comment="0: no engine was asked for it"),
    Column("yields", SmallInteger, nullable=False, server_default=ZERO),
    Column("prompt_tokens", Integer, nullable=False, server_default=ZERO),
    Column("cached_tokens", Integer, nullable=False, server_default=ZERO),
    Column("completion_tokens", Integer, nullable=False, server_default=ZERO),
    Column("finished_at", Timestamp, nullable=False, server_default=text("clock_timestamp()")),
    Column("body", LargeBinary, nullable=False),
    _stored(),
    Column("error", Text, comment="the class of its error (app.engines.outcome); null: ok, or not known"),
    Column("engine_id", BigInteger, comment="the engine that it ran on; null: not known"),
    Column("queued_ms", Integer, comment="from the begin of the run until it was sent; null: it was not, or not known"),
    Column("first_token_ms", Integer, comment="from the first send of the lease to the first token; null: not known"),
    Column("ran_ms", Integer, comment="from the first send of the lease to the end; null: not known"),
    Column("details", JSONB, comment=DETAILS),
    PrimaryKeyConstraint("batch_id", "seq", "run"),
    postgresql_partition_by="RANGE (batch_id)",
)
Index(
    "item_result_error",
    item_result.c.batch_id,
    item_result.c.error,
    item_result.c.seq,
    postgresql_where=text("ok = 0"),
)
Index("item_result_failed", item_result.c.batch_id, item_result.c.seq, postgresql_where=text("ok = 0"))

_HOT = {
    "autovacuum_vacuum_scale_factor": 0,
    "autovacuum_vacuum_threshold": 500,
    "autovacuum_analyze_scale_factor": 0,
    "autovacuum_analyze_threshold": 1000,
    "autovacuum_vacuum_cost_delay": 0,
}

chunk = Table(
    "chunk",
    metadata,
    Column("chunk_id", BigInteger, Identity(always=True), primary_key=True),
    Column("batch_id", BigInteger, nullable=False),
    Column("run", SmallInteger, nullable=False),
    Column("tenant_id", Integer, nullable=False),
    Column("pool_id", SmallInteger, nullable=False),
    Column("lo", Integer, nullable=False),
    Column("hi", Integer, nullable=False),
    Column("seqs", ARRAY(Integer), comment="its items in their order (retries, grouped prefixes); null: lo to hi"),
    Column("n", Integer, CheckConstraint("n > 0", name="n_positive"), nullable=False),
    Column("est_tokens", Integer, nullable=False),
    Column("deadline", Timestamp, nullable=False),
    Column(
        "state", Text, CheckConstraint(CHUNK.check(), name="state"), nullable=False, server_default=CHUNK.initial.value
    ),
    Column(
        "attempt",
        SmallInteger,
        nullable=False,
        server_default=ZERO,
        comment="how many losses of workers were charged to it",
    ),
    Column("deaths", SmallInteger, nullable=False, server_default=ZERO, comment="engine deaths charged to its items"),
    Column("retries", SmallInteger, nullable=False, server_default=ZERO, comment="rounds of transient engine errors"),
    Column("charged_for", BigInteger, comment="the worker whose loss was charged last; null: none, or taken back"),
    Column(
        "excused", SmallInteger, comment="charges that were taken back; null: none, which takes no space in the row"
    ),
    Column(
        "token", Integer, nullable=False, server_default=ZERO, comment="fence: grows on claim and reap; 0: never leased"
    ),
    Column("worker_id", BigInteger),
    Column("not_before", Timestamp),
    Column("done", Integer, nullable=False, server_default=ZERO),
    Column("failed", Integer, nullable=False, server_default=ZERO),
    Column("prompt_tokens", BigInteger, comment="of the results that it has stored; null: none, which takes no space"),
    Column("cached_tokens", BigInteger),
    Column("completion_tokens", BigInteger),
    Column("line_id", Integer, comment="line of its items; null: that of the batch"),
    Column(
        "budgets",
        ARRAY(Integer),
        comment="ids of the budgets that pay for it, in ascending order; null: none",
    ),
    Column(
        "maximum_cost",
        BigInteger,
        comment="the most that it can cost, in 10^-9 of the currency; null: it has no budgets",
    ),
    Column("maximum_tokens", BigInteger, comment="the most tokens that it can use"),
    Column("expected_cost", BigInteger, comment="what is reserved for it at most; null: the maximum"),
    Column("expected_tokens", BigInteger, comment="the same in tokens"),
    Column("reserved_cost", BigInteger, comment="what its budgets have reserved for it; null: nothing"),
    Column("reserved_tokens", BigInteger, comment="the same in tokens"),
    Column("reserved_at", Timestamp, comment="when that was reserved last; while it is unreserved: it was taken back"),
    Column(
        "short",
        Boolean,
        comment="the steward has seen that the money that it waits for is not there; null: not seen so",
    ),
    CheckConstraint("(state = 'leased') = (worker_id is not null)", name="leased_has_worker"),
    CheckConstraint("(state = 'delayed') = (not_before is not null)", name="delayed_has_time"),
    postgresql_with={"fillfactor": 60, **_HOT},
)
_ORDER = (chunk.c.pool_id, chunk.c.tenant_id, chunk.c.deadline, chunk.c.chunk_id)
Index("chunk_fair", *_ORDER, postgresql_where=text("state = 'ready'"))
Index("chunk_worker", chunk.c.worker_id, postgresql_where=text("state = 'leased'"))
Index("chunk_returned", chunk.c.batch_id, postgresql_where=text("state <> 'leased' and token > 1"))
Index("chunk_batch", chunk.c.batch_id)
Index("chunk_charged", chunk.c.charged_for, postgresql_where=text("charged_for is not null"))
Index("chunk_edf", chunk.c.pool_id, chunk.c.deadline, postgresql_where=text("state = 'ready'"))
Index("chunk_held", chunk.c.batch_id, postgresql_where=text("state = 'held'"))
_WAITING = (chunk.c.budgets, chunk.c.pool_id, chunk.c.deadline, chunk.c.chunk_id)
Index("chunk_unreserved", *_WAITING, postgresql_where=text("state = 'unreserved'"))
_TENTATIVE = text("state = 'ready' and reserved_tokens is not null")
Index("chunk_tentative", chunk.c.tenant_id, chunk.c.deadline, chunk.c.chunk_id, postgresql_where=_TENTATIVE)
Index("chunk_due", chunk.c.not_before, postgresql_where=text("state = 'delayed'"))

sched = Table(
    "sched",
    metadata,
    Column("pool_id", SmallInteger, nullable=False),
    Column("tenant_id", Integer, nullable=False),
    Column("vtime", Float(53), nullable=False, server_default=ZERO, comment="tokens served / weight"),
    Column("ready", Integer, nullable=False, server_default=ZERO),
    Column("inflight_tokens", BigInteger, nullable=False, server_default=ZERO),
    Column(
        "served_tokens",
        BigInteger,
        nullable=False,
        server_default=ZERO,
        comment="estimated tokens of all items done; never decreases",
    ),
    Column("drifts", Integer, nullable=False, server_default=ZERO, comment="how often the caches had to be corrected"),
    Column(
        "turn",
        Float(53),
        Computed("CASE WHEN ready > 0 THEN floor(vtime / 65536) END", persisted=True),
        comment="virtual time in steps, so that the index of the order seldom changes; null: nothing is ready",
    ),
    Column(
        "first_deadline",
        Timestamp,
        nullable=False,
        server_default=text("'-infinity'"),
        comment="the mark: no ready chunk comes before first_deadline and first_chunk",
    ),
    Column("first_chunk", BigInteger, nullable=False, server_default=ZERO),
    PrimaryKeyConstraint("pool_id", "tenant_id"),
    postgresql_with={"fillfactor": 50, **_HOT},
)
Index("sched_turn", sched.c.pool_id, sched.c.turn, postgresql_where=text("turn IS NOT NULL"))

pace = Table(
    "pace",
    metadata,
    Column("pool_id", SmallInteger, nullable=False),
    Column("at", Timestamp, nullable=False, server_default=func.now()),
    Column("served_tokens", BigInteger, nullable=False, comment="estimated tokens of all tenants; never decreases"),
    Column(
        "tokens_per_second",
        Float(53),
        comment="pace over the last minutes with work; null: too little time was measured",
    ),
    Column("spread", Float(53), comment="relative error of recent forecasts; null: too little time"),
    PrimaryKeyConstraint("pool_id", "at"),
)

worker = Table(
    "worker",
    metadata,
    Column("worker_id", BigInteger, Identity(always=True), primary_key=True, comment="never reused: part of the fence"),
    Column("pool_id", SmallInteger, nullable=False),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("lease_until", Timestamp, nullable=False, comment="not indexed, so that a heartbeat is a HOT update"),
    Column("started_at", Timestamp, nullable=False, server_default=func.now()),
    Column(
        "renewed_at",
        Timestamp,
        nullable=False,
        server_default=func.now(),
        comment="when the lease was last renewed; not indexed, like lease_until",
    ),
    Column(
        "hungry",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="it waits for work, as it last reported; not indexed, like lease_until",
    ),
    Column(
        "noted",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="its lease has lapsed, and who took its engine has noted its loss",
    ),
    postgresql_with={"fillfactor": 50, **_HOT},
)

# What workers and autoscalers need to know of a pool. The steward writes it, so that not each of them computes it.
pool_status = Table(
    "pool_status",
    metadata,
    Column("pool_id", SmallInteger, primary_key=True, autoincrement=False),
    Column("at", Timestamp, nullable=False, comment="when the steward wrote the row"),
    Column("workers", Integer, nullable=False, comment="workers with a lease"),
    Column("engines", Integer, nullable=False, comment="engines that are ready"),
    Column(
        "slack",
        Float(53),
        comment="the smallest share of its window that a batch has left; null: no batch has a deadline",
    ),
    Column("scarce", Boolean, nullable=False, comment="nothing is ready, and an engine has nothing"),
    Column(
        "engine_pace", Float(53), comment="estimated tokens per second of one engine, as last measured; null: never"
    ),
    Column("start_seconds", Float(53), comment="the longest start of an engine; null: none was measured"),
    Column(
        "deadlines",
        ARRAY(Timestamp),
        nullable=False,
        comment="deadlines of work that may run, the earliest first, those close together as one",
    ),
    Column("tokens", ARRAY(Float(53)), nullable=False, comment="estimated tokens that are due by each deadline"),
    postgresql_with={"fillfactor": 50},
)

response_events = Table(
    "response_events",
    metadata,
    Column("batch_id", BigInteger, ForeignKey("batch.batch_id", ondelete="CASCADE"), nullable=False),
    Column(
        "number", Integer, nullable=False, autoincrement=False, comment="sequence number of the first event of the row"
    ),
    Column("last", Integer, nullable=False, comment="sequence number of the last event of the row"),
    Column("body", LargeBinary, nullable=False, comment="a JSON array"),
    PrimaryKeyConstraint("batch_id", "number"),
)

# Batches whose contents are being deleted. A row goes once nothing of them is left.
shredding = Table(
    "shredding",
    metadata,
    Column(
        "batch_id", BigInteger, ForeignKey("batch.batch_id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    ),
)
