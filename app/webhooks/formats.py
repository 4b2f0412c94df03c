"""Event bodies as receivers know them. Pure.

The documented Workers AI shape: `cf.workersAi.model.batch.queued | succeeded | failed`, camelCase, never the results.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson

from app.errors import ExecutionFailed

PREFIX = "cf.workersAi.model."
SCHEMA_VERSION = 1


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


FORMATS = {"workers_ai": workers_ai}


def timestamp(moment: datetime) -> str:
    """ISO 8601 in UTC with milliseconds: `2025-05-01T02:48:57.132Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _payload(event: Event) -> dict[str, Any]:
    payload: dict[str, Any] = {"requestId": event.data["request_id"]}
    if event.kind == "batch.failed":
        payload["message"] = event.data.get("message", "Model execution failed")
        payload["internalCode"] = event.data.get("internal_code", ExecutionFailed.code)
        payload["httpCode"] = event.data.get("http_code", ExecutionFailed.status)
    return payload
