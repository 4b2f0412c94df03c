"""Events: every kind of event, and the data that each kind carries. Pure.

`app.webhooks.emitter` writes them. `app.webhooks.formats` turns them into the bodies that receivers get.
"""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self

import orjson


class EventKind(StrEnum):
    """What happened. The values are stored, and subscriptions name them."""

    BATCH_QUEUED = "batch.queued"
    BATCH_STARTED = "batch.started"
    BATCH_PROGRESS = "batch.progress"
    BATCH_SUCCEEDED = "batch.succeeded"
    BATCH_FAILED = "batch.failed"
    BATCH_CANCELLED = "batch.cancelled"
    BATCH_EXPIRED = "batch.expired"
    BATCH_AT_RISK = "batch.at_risk"
    BATCH_SHREDDED = "batch.shredded"
    ITEM_SUCCEEDED = "item.succeeded"
    ITEM_FAILED = "item.failed"
    ITEM_WAITING = "item.waiting"
    RESPONSE_COMPLETED = "response.completed"
    RESPONSE_INCOMPLETE = "response.incomplete"
    RESPONSE_FAILED = "response.failed"
    RESPONSE_CANCELLED = "response.cancelled"
    BUDGET_ALERT = "budget.alert"
    BUDGET_SPENT = "budget.spent"
    BUDGET_RENEWED = "budget.renewed"
    BUDGET_DIVERTED = "budget.diverted"
    PIPELINE_QUEUED = "pipeline.queued"
    PIPELINE_PAUSED = "pipeline.paused"
    PIPELINE_SUCCEEDED = "pipeline.succeeded"
    PIPELINE_FAILED = "pipeline.failed"
    PIPELINE_CANCELLED = "pipeline.cancelled"
    PIPELINE_EXPIRED = "pipeline.expired"
    STAGE_ENDED = "stage.ended"
    CONVERSATION_FILLING = "conversation.filling"
    QUOTA_REACHED = "quota.reached"
    POLICY_APPLIED = "policy.applied"
    AUDIT_SIGNED = "audit.signed"
    ENDPOINT_FAILING = "endpoint.failing"
    ENDPOINT_DISABLED = "endpoint.disabled"
    TEST = "test"


KINDS = tuple(kind for kind in EventKind if kind != EventKind.TEST)
"""The kinds that a subscription can name. A test event goes to one endpoint, whatever its kinds are."""

RENAMED = {"budget.soft": EventKind.BUDGET_ALERT}
"""Kinds of earlier versions, and what each is called now."""

USUAL_KINDS = (
    EventKind.BATCH_QUEUED,
    EventKind.BATCH_SUCCEEDED,
    EventKind.BATCH_FAILED,
    EventKind.BATCH_CANCELLED,
    EventKind.BATCH_EXPIRED,
    EventKind.ENDPOINT_DISABLED,
)
ITEM_KINDS = (EventKind.ITEM_SUCCEEDED, EventKind.ITEM_FAILED)
WAITING_KINDS = (EventKind.ITEM_WAITING,)
ENDPOINT_KINDS = (EventKind.ENDPOINT_FAILING, EventKind.ENDPOINT_DISABLED)
BUDGET_KINDS = (EventKind.BUDGET_ALERT, EventKind.BUDGET_SPENT, EventKind.BUDGET_RENEWED, EventKind.BUDGET_DIVERTED)
CONVERSATION_KINDS = (EventKind.CONVERSATION_FILLING,)
QUOTA_KINDS = (EventKind.QUOTA_REACHED,)
POLICY_KINDS = (EventKind.POLICY_APPLIED,)
AUDIT_KINDS = (EventKind.AUDIT_SIGNED,)
PIPELINE_KINDS = (
    EventKind.PIPELINE_QUEUED,
    EventKind.PIPELINE_PAUSED,
    EventKind.PIPELINE_SUCCEEDED,
    EventKind.PIPELINE_FAILED,
    EventKind.PIPELINE_CANCELLED,
    EventKind.PIPELINE_EXPIRED,
    EventKind.STAGE_ENDED,
)
PROGRESS_KINDS = (EventKind.BATCH_STARTED, EventKind.BATCH_PROGRESS, EventKind.BATCH_AT_RISK)

NO_REQUEST = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class Counts:
    """Items of a batch, by how they ended."""

    total: int
    succeeded: int
    failed: int
    unfinished: int

    @classmethod
    def of(cls, total: int, succeeded: int, failed: int) -> Self:
        """The counts of a batch; every item that is not counted is unfinished."""
        return cls(total, succeeded, failed, total - succeeded - failed)


@dataclass(frozen=True, slots=True)
class BatchFailure:
    """Why a batch failed. The codes are those that an error of the API has."""

    message: str
    internal_code: int
    http_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EventData:
    """What every event carries. The kind `test` carries no more.

    `request_id`: the batch; in `pipeline.*` and `stage.*` the pipeline, in `endpoint.*` the endpoint, in `budget.*`, `quota.*`,
    `policy.*`, `audit.*`, `conversation.*` and a test all zeros (`NO_REQUEST`). `traceparent`: from the submit, if it had one.
    """

    request_id: str
    account_id: str
    traceparent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchData(EventData):
    """Data of `batch.*` and `response.*`. `counts`: None in `batch.queued`, and for a batch that was refused for its file.
    `policy_rules`: the rules of the policy that chose its model; None: none did. `diverted_to`: models to which it moved
    waiting items; None: none.
    """

    counts: Counts | None = None
    failure: BatchFailure | None = None
    policy_rules: list[str] | None = None
    diverted_to: list[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemData(EventData):
    """Data of `item.*`. `item`: the position in the batch, from 0. `reference`: the caller's name for the item."""

    item: int
    reference: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingData(ItemData):
    """Data of `item.waiting`. `pipeline`, `stage`: with the item, what the answer is sent to."""

    pipeline: str
    stage: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineData(EventData):
    """Data of `pipeline.*` and of `stage.ended`. `request_id`, `pipeline`: the pipeline, `pipeline` as its routes show it.
    `paused_for`: why it pauses; None: somebody paused it, or it does not. `stage`: its id, `batch`: the stage's batch, `counts`:
    its items.
    """

    pipeline: str
    name: str | None = None
    paused_for: str | None = None
    stage: str | None = None
    batch: str | None = None
    counts: Counts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointData(EventData):
    """Data of `endpoint.*`. `message`: why the endpoint is failing or disabled."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetData(EventData):
    """Data of `budget.*`. `budget`: its name. `percent`: the spent share of its maximum."""

    budget: str
    percent: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationData(EventData):
    """Data of `conversation.*`. `tokens`: with which its next prompt begins. `slope`: tokens by which a prompt is longer than the
    one before it. `turns`: that are left until the context window is full.
    """

    conversation: str
    tokens: int
    slope: float
    turns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaData(EventData):
    """Data of `quota.*`. `quota`: its name. `message`: that of the refusal."""

    quota: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyData(EventData):
    """Data of `policy.*`. `version`: of the policy that is in force now."""

    version: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditData(EventData):
    """Data of `audit.*`. `row`: the newest row of the account's audit log that the checkpoint covers. `checkpoint`: the text that
    is signed. `signature`: Ed25519, in hex.
    """

    row: int
    checkpoint: str
    signature: str


_OF_NO_BATCH: tuple[tuple[tuple[EventKind, ...], type[EventData], tuple[str, ...]], ...] = (
    (ENDPOINT_KINDS, EndpointData, ("message",)),
    (BUDGET_KINDS, BudgetData, ("budget", "percent", "message")),
    (CONVERSATION_KINDS, ConversationData, ("conversation", "tokens", "slope", "turns")),
    (QUOTA_KINDS, QuotaData, ("quota", "message")),
    (POLICY_KINDS, PolicyData, ("version", "message")),
    (AUDIT_KINDS, AuditData, ("row", "checkpoint", "signature")),
)


def own_fields(data: EventData) -> dict[str, Any]:
    """The fields of an event of no batch, beside those of every event; of others none."""
    names = next((names for _, data_class, names in _OF_NO_BATCH if type(data) is data_class), ())
    return {name: getattr(data, name) for name in names}


def to_json(data: EventData) -> bytes:
    """The data as it is stored: one flat object, without what is None."""
    values = asdict(data)
    values |= values.pop("failure", None) or {}
    return orjson.dumps({name: value for name, value in values.items() if value is not None})


def from_json(kind: str, stored: bytes) -> EventData:
    """The data of a stored event. Fields that this version does not know are ignored."""
    values = orjson.loads(stored)
    common = {name: values.get(name) for name in ("request_id", "account_id", "traceparent")}
    if kind in ITEM_KINDS:
        return ItemData(**common, item=values["item"], reference=values.get("reference"))
    if kind in WAITING_KINDS:
        return WaitingData(**common, **{name: values.get(name) for name in ("item", "reference", "pipeline", "stage")})
    if kind in PIPELINE_KINDS:
        own = {name: values.get(name) for name in ("name", "paused_for", "stage", "batch")}
        return PipelineData(**common, pipeline=values["pipeline"], **own, counts=_counts(values.get("counts")))
    for kinds, data_class, names in _OF_NO_BATCH:
        if kind in kinds:
            return data_class(**common, **{name: values[name] for name in names})
    if kind == EventKind.TEST:
        return EventData(**common)
    return BatchData(
        **common,
        counts=_counts(values.get("counts")),
        failure=_failure(values),
        policy_rules=values.get("policy_rules"),
        diverted_to=values.get("diverted_to"),
    )


def _counts(stored: dict[str, int] | None) -> Counts | None:
    if stored is None:
        return None
    return Counts(stored["total"], stored["succeeded"], stored["failed"], stored["unfinished"])


def _failure(stored: dict[str, Any]) -> BatchFailure | None:
    if "message" not in stored:
        return None
    return BatchFailure(stored["message"], stored["internal_code"], stored["http_code"])
