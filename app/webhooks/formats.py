"""Event bodies as receivers know them, one format for each endpoint. Pure, and never the results.

workers_ai  the documented Workers AI shape: `cf.workersAi.model.batch.queued | succeeded | failed`, camelCase
openai      the thin event of OpenAI's webhooks, `batch.completed | failed | expired | cancelled` and
            `response.completed | incomplete | failed | cancelled`; it has no others
standard    the body that Standard Webhooks recommends: type, timestamp, data
cloudevents CloudEvents 1.0, structured
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from app.errors import ExecutionFailed

PREFIX = "cf.workersAi.model."
SCHEMA_VERSION = 1
_FAILED = "Model execution failed"


@dataclass(frozen=True)
class Event:
    """What happened. `message_id` is the `webhook-id`: one per event, the same in every attempt."""

    message_id: UUID
    kind: str
    model: str
    data: dict[str, Any]
    occurred_at: datetime

    @property
    def webhook_id(self) -> str:
        """The receiver's idempotency key; holds no dot, as Standard Webhooks asks."""
        return f"evt_{self.message_id.hex}"


def workers_ai(event: Event, subscription_id: UUID) -> bytes:
    """The body of `event` for one subscription, in Cloudflare's shape."""
    return orjson.dumps(
        {
            "type": PREFIX + event.kind,
            "source": {"type": "workersAi.model", "modelName": event.data.get("model", event.model)},
            "payload": _payload(event),
            "metadata": {
                "accountId": event.data["account_id"],
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
            "type": "batch.completed" if _ran_in_vain(event) else OPENAI_TYPES.get(event.kind, event.kind),
            "data": {"id": prefix + UUID(event.data["request_id"]).hex},
        }
    )


def _ran_in_vain(event: Event) -> bool:
    """Whether it tells of a batch none of whose requests succeeded; one that was refused for its file has no counts."""
    return event.kind == "batch.failed" and "counts" in event.data


def standard(event: Event, subscription_id: UUID) -> bytes:
    """The body as Standard Webhooks 1.0.0 recommends it."""
    return orjson.dumps({"type": event.kind, "timestamp": timestamp(event.occurred_at), "data": _data(event)})


def _data(event: Event) -> dict[str, Any]:
    data = {"id": event.data["request_id"], "account_id": event.data["account_id"]}
    told = {"model": event.model, "request_counts": event.data.get("counts"), "message": event.data.get("message")}
    told |= {"item": event.data.get("item"), "reference": event.data.get("reference")}
    return data | {name: value for name, value in told.items() if value not in (None, "")}


def cloudevents(event: Event, subscription_id: UUID) -> bytes:
    """The event in CloudEvents 1.0, structured JSON."""
    attributes = {
        "id": event.webhook_id,
        "source": f"/accounts/{event.data['account_id']}" + (f"/models/{event.model}" if event.model else ""),
        "type": f"slackwater.{event.kind}",
        "subject": event.data["request_id"],
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
OPENAI_TYPES = {
    "batch.succeeded": "batch.completed",
    "batch.failed": "batch.failed",
    "batch.expired": "batch.expired",
    "batch.cancelled": "batch.cancelled",
    "response.completed": "response.completed",
    "response.incomplete": "response.incomplete",
    "response.failed": "response.failed",
    "response.cancelled": "response.cancelled",
}


def known_kinds(name: str, kinds: Sequence[str]) -> list[str]:
    """Those of the kinds that the format of this name has a shape for."""
    return [kind for kind in kinds if name != "openai" or kind in OPENAI_TYPES]


def timestamp(moment: datetime) -> str:
    """ISO 8601 in UTC with milliseconds: `2025-05-01T02:48:57.132Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _payload(event: Event) -> dict[str, Any]:
    """As documented for `queued`, `succeeded` and `failed`; the kinds of our own tell in the same manner what they are about."""
    payload: dict[str, Any] = {"requestId": event.data["request_id"]}
    if event.kind == "batch.failed":
        payload["message"] = event.data.get("message", _FAILED)
        payload["internalCode"] = event.data.get("internal_code", ExecutionFailed.code)
        payload["httpCode"] = event.data.get("http_code", ExecutionFailed.status)
    elif event.kind.startswith("item."):
        payload |= {"id": event.data["item"], "externalReference": event.data["reference"]}
    elif event.kind.startswith("endpoint."):
        payload["message"] = event.data["message"]
    elif event.kind in ("batch.started", "batch.progress", "batch.at_risk"):
        payload["requestCounts"] = event.data["counts"]
    return payload
