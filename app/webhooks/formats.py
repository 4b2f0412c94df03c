"""The bodies that receivers get, in the format of each endpoint. No body holds results. Pure.

To add a format: write a function here and name it in `FORMATS`.

workers_ai  the documented Workers AI shape: `cf.workersAi.model.batch.queued | succeeded | failed`, camelCase
openai      the thin event of OpenAI's webhooks, `batch.completed | failed | expired | cancelled` and
            `response.completed | incomplete | failed | cancelled`; it has no other kinds
standard    the body that Standard Webhooks recommends: type, timestamp, data
cloudevents CloudEvents 1.0, structured
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from app.errors import ExecutionFailed
from app.events import (
    PROGRESS_KINDS,
    BatchData,
    BatchFailure,
    EventData,
    EventKind,
    ItemData,
    PipelineData,
    WaitingData,
    own_fields,
)

PREFIX = "cf.workersAi.model."
SCHEMA_VERSION = 1
_EXECUTION_FAILED = BatchFailure("Model execution failed", ExecutionFailed.code, ExecutionFailed.status)


@dataclass(frozen=True)
class Event:
    """A stored event. `message_id`: the `webhook-id`, which is the same in every attempt.

    `kind`: an `EventKind`, or a kind that only a newer version knows.
    """

    message_id: UUID
    kind: str
    model: str
    data: EventData
    occurred_at: datetime

    @property
    def webhook_id(self) -> str:
        """The receiver's idempotency key. It holds no dot, as Standard Webhooks asks."""
        return f"evt_{self.message_id.hex}"


def workers_ai(event: Event, subscription_id: UUID) -> bytes:
    """The body of `event` for one subscription, in Cloudflare's shape."""
    return orjson.dumps(
        {
            "type": PREFIX + event.kind,
            "source": {"type": "workersAi.model", "modelName": event.model},
            "payload": _payload(event),
            "metadata": {
                "accountId": event.data.account_id,
                "eventSubscriptionId": subscription_id.hex,
                "eventSchemaVersion": SCHEMA_VERSION,
                "eventTimestamp": timestamp(event.occurred_at),
            },
        }
    )


def openai(event: Event, subscription_id: UUID) -> bytes:
    """The body in OpenAI's shape, as its clients' `webhooks.unwrap` reads it (openai-python 3.52, types/webhooks)."""
    prefix = "resp_" if event.kind.startswith("response.") else "batch_"
    return orjson.dumps(
        {
            "id": event.webhook_id,
            "object": "event",
            "created_at": int(event.occurred_at.timestamp()),
            "type": "batch.completed" if _ran(event) else OPENAI_TYPES.get(event.kind, event.kind),
            "data": {"id": prefix + UUID(event.data.request_id).hex},
        }
    )


def _ran(event: Event) -> bool:
    """Whether the batch failed although it ran. A batch that was refused for its file has no counts."""
    return event.kind == EventKind.BATCH_FAILED and isinstance(event.data, BatchData) and event.data.counts is not None


def standard(event: Event, subscription_id: UUID) -> bytes:
    """The body as Standard Webhooks 1.0.0 recommends it."""
    return orjson.dumps({"type": event.kind, "timestamp": timestamp(event.occurred_at), "data": _data(event)})


def _data(event: Event) -> dict[str, Any]:
    """The event's data in the formats `standard` and `cloudevents`, without what it does not have."""
    values: dict[str, Any] = {"id": event.data.request_id, "account_id": event.data.account_id, "model": event.model}
    values |= own_fields(event.data)
    match event.data:
        case BatchData(counts=counts, failure=failure, policy_rules=rules, diverted_to=models):
            values |= {"policy_rules": rules, "diverted_to": models}
            values |= {"request_counts": asdict(counts) if counts else None}
            values |= {"message": failure.message if failure else None}
        case PipelineData():
            values |= _pipeline(event.data) | {"id": event.data.pipeline}
        case WaitingData(item=item, reference=reference, pipeline=pipeline, stage=stage):
            values |= {"pipeline": pipeline, "stage": stage, "item": item, "reference": reference}
        case ItemData(item=item, reference=reference):
            values |= {"item": item, "reference": reference}
    return {name: value for name, value in values.items() if value not in (None, "")}


def _pipeline(data: PipelineData) -> dict[str, Any]:
    """What an event tells of a pipeline besides its id; what it does not have is None."""
    counts = asdict(data.counts) if data.counts else None
    names = {"name": data.name, "paused_for": data.paused_for, "stage": data.stage, "batch": data.batch}
    return names | {"request_counts": counts}


_CAMEL = {"paused_for": "pausedFor", "request_counts": "requestCounts"}


def cloudevents(event: Event, subscription_id: UUID) -> bytes:
    """The event in CloudEvents 1.0, structured JSON."""
    attributes = {
        "id": event.webhook_id,
        "source": f"/accounts/{event.data.account_id}" + (f"/models/{event.model}" if event.model else ""),
        "type": f"slackwater.{event.kind}",
        "subject": event.data.request_id,
        "time": event.occurred_at,
        "datacontenttype": "application/json",
    }
    return bytes(JSONFormat().write(CloudEvent(attributes, _data(event))))


def render(name: str, event: Event, subscription_id: UUID) -> tuple[str, bytes]:
    """Content type and body of an event in the format of this name."""
    return ("application/cloudevents+json" if name == "cloudevents" else "application/json"), FORMATS[name](
        event, subscription_id
    )


FORMATS: Mapping[str, Callable[[Event, UUID], bytes]] = {
    "workers_ai": workers_ai,
    "openai": openai,
    "standard": standard,
    "cloudevents": cloudevents,
}
OPENAI_TYPES: Mapping[str, str] = {
    EventKind.BATCH_SUCCEEDED: "batch.completed",
    EventKind.BATCH_FAILED: "batch.failed",
    EventKind.BATCH_EXPIRED: "batch.expired",
    EventKind.BATCH_CANCELLED: "batch.cancelled",
    EventKind.RESPONSE_COMPLETED: "response.completed",
    EventKind.RESPONSE_INCOMPLETE: "response.incomplete",
    EventKind.RESPONSE_FAILED: "response.failed",
    EventKind.RESPONSE_CANCELLED: "response.cancelled",
}


def known_kinds(name: str, kinds: Sequence[str]) -> list[str]:
    """Those of the kinds that the format of this name has a body for."""
    return [kind for kind in kinds if name != "openai" or kind in OPENAI_TYPES]


def timestamp(moment: datetime) -> str:
    """ISO 8601 in UTC with milliseconds: `2025-05-01T02:48:57.132Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _named(data: EventData) -> dict[str, Any]:
    """What the payload of any event of a pipeline or a batch has."""
    if isinstance(data, PipelineData):
        found = _pipeline(data) | {"pipeline": data.pipeline}
        return {_CAMEL.get(name, name): value for name, value in found.items() if value is not None}
    if isinstance(data, BatchData):
        more = {"policyRules": data.policy_rules, "divertedTo": data.diverted_to}
        return {name: value for name, value in more.items() if value}
    return {}


def _payload(event: Event) -> dict[str, Any]:
    """The payload as documented for `queued`, `succeeded` and `failed`; our own kinds add their fields in the same style."""
    payload: dict[str, Any] = {"requestId": event.data.request_id} | own_fields(event.data)
    payload |= _named(event.data)
    match event.data:
        case BatchData(failure=failure) if event.kind == EventKind.BATCH_FAILED:
            failure = failure or _EXECUTION_FAILED
            payload["message"] = failure.message
            payload["internalCode"] = failure.internal_code
            payload["httpCode"] = failure.http_code
        case BatchData(counts=counts) if counts is not None and event.kind in PROGRESS_KINDS:
            payload["requestCounts"] = asdict(counts)
        case ItemData():
            payload |= _of_item(event.data)
    return payload


def _of_item(data: ItemData) -> dict[str, Any]:
    of = {"pipeline": data.pipeline, "stage": data.stage} if isinstance(data, WaitingData) else {}
    return {"id": data.item, "externalReference": data.reference} | of
