"""JSON schemas of the bodies of subscriptions and webhooks, for the OpenAPI document; bounds as in `app.webhooks.validation`."""

from typing import Any

from app.api.openapi_schemas import STRING, Schema, one, only, or_null, pairs
from app.api.parameter_limits import NUMBER
from app.events import KINDS
from app.labels import MOST_TAGS
from app.webhooks import validation
from app.webhooks.formats import FORMATS, OPENAI_TYPES, known_kinds
from app.webhooks.pull_queue import MOST as MOST_FETCHED
from app.webhooks.signing import PATTERN

_TIME: Schema = {"type": "string", "format": "date-time"}
_NAME: Schema = {"type": "string", "minLength": 1, "maxLength": validation.NAME_LENGTH, "pattern": validation.NAME}
_URL: Schema = {"type": "string", "format": "uri", "minLength": 1, "maxLength": validation.URL_LENGTH}
_SECRET: Schema = or_null({"type": "string", "pattern": PATTERN})
_FORMAT: Schema = {"enum": [*FORMATS, None]}
_BOOLEAN: Schema = {"type": "boolean"}
_LIMITS: Schema = {
    "max_in_flight": {"type": ["integer", "null"], "minimum": 1, "maximum": validation.MOST_IN_FLIGHT},
    "max_per_second": {"type": ["number", "null"], "minimum": 0.01, "maximum": validation.MOST_PER_SECOND},
    "ordered": {"type": ["boolean", "null"]},
}
_TAGS: Schema = {
    "type": "array",
    "items": {"type": "string", "minLength": 1, "maxLength": 50},
    "maxItems": MOST_TAGS,
}


def _events(kinds: list[str]) -> Schema:
    return {"type": "array", "minItems": 1, "items": {"enum": kinds}}


_EVENTS: Schema = _events([*KINDS])
_WEBHOOK: dict[str, Any] = {"type": {"const": "webhook"}, **_LIMITS}
_TO_WEBHOOK: Schema = only(
    "type", "url", url=_URL, secret=_SECRET, format=_FORMAT, asymmetric=_BOOLEAN, queue_id=or_null(STRING), **_WEBHOOK
)
_QUEUE: Schema = {"type": "string", "minLength": 1, "maxLength": validation.QUEUE_LENGTH}
_TO_QUEUE: Schema = only("type", "queue_id", type={"const": "queues.queue"}, queue_id=_QUEUE, format=_FORMAT)
_SOURCE: Schema = only(
    type={"const": "workersAi.model"},
    model_name=or_null(STRING),
    tags=or_null(_TAGS),
    metadata=or_null(pairs()),
)
_TO_OPENAI: Schema = one("destination", destination=one("format", format={"const": "openai"}))
SUBSCRIPTION: Schema = {
    **only(
        *("name", "source", "destination", "events"),
        name=_NAME,
        source=_SOURCE,
        destination={"oneOf": [_TO_WEBHOOK, _TO_QUEUE]},
        events=_EVENTS,
        enabled=_BOOLEAN,
    ),
    "if": _TO_OPENAI,
    "then": {"properties": {"events": _events(known_kinds("openai", KINDS))}},
}
SUBSCRIPTION_CHANGE: Schema = only(
    name=or_null(_NAME),
    enabled={"type": ["boolean", "null"]},
    events=or_null(_EVENTS),
    source=or_null(_SOURCE),
    destination=or_null(only("type", url=or_null(_URL), **_WEBHOOK)),
)
REPLAY: Schema = only("since", since=_TIME, until=or_null(_TIME), events=or_null(_EVENTS), only_failed=_BOOLEAN)
ROTATION: Schema = only(
    secret=_SECRET,
    overlap_hours={"type": "number", "minimum": 0, "maximum": validation.MOST_OVERLAP_SECONDS / 3600},
)
ACKNOWLEDGED: Schema = only(
    "ids", ids={"type": "array", "items": {"type": "string", "pattern": NUMBER}, "maxItems": MOST_FETCHED}
)

_OPENAI_EVENT: Schema = {"enum": sorted(OPENAI_TYPES.values())}
_OPENAI_EVENTS: Schema = {"type": "array", "items": _OPENAI_EVENT, "minItems": 1}
WEBHOOK: Schema = one("name", "url", "event_types", name=_NAME, url=_URL, event_types=_OPENAI_EVENTS)
WEBHOOK_CHANGE: Schema = one(name=or_null(_NAME), url=or_null(_URL), event_types=or_null(_OPENAI_EVENTS))
WEBHOOK_ROTATION: Schema = one(keep_old_secret_active_for_24_hours=_BOOLEAN)
WEBHOOK_TEST: Schema = one("event_type", event_type=_OPENAI_EVENT)
