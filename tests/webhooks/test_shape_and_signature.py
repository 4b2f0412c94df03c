"""Claims about the bodies of the four formats, and about signatures."""

import base64
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import openai
import orjson
import pytest
from cloudevents.core.formats.json import JSONFormat
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from standardwebhooks import Webhook, WebhookVerificationError

from app import events
from app.events import KINDS
from app.webhooks import formats, signing

MOMENT = datetime(2025, 5, 1, 2, 48, 57, 132_900, UTC)
SUBSCRIPTION = UUID("1830c4bb612e43c3af7f4cada31fbf3f")
COUNTS = {"total": 3, "succeeded": 3, "failed": 0, "unfinished": 0}
FAILURE = {"message": "Out of luck", "internal_code": 5006, "http_code": 400}
REQUEST = "12345678-90ab-cdef-1234-567890abcdef"


def event(kind: str, **data: object) -> formats.Event:
    """An event as it is read from its row."""
    stored = {"request_id": REQUEST, "account_id": "f9f79265f388666de8122cfb508d7776"} | data
    return formats.Event(UUID(int=7), kind, "@cf/baai/bge-m3", events.from_json(kind, orjson.dumps(stored)), MOMENT)


@pytest.mark.parametrize(
    ("kind", "data", "payload"),
    [
        ("batch.queued", {}, {"requestId": REQUEST}),
        ("batch.succeeded", {"counts": COUNTS}, {"requestId": REQUEST}),
        (
            "batch.succeeded",
            {"policy_rules": ["small-first"], "diverted_to": ["small"]},
            {"requestId": REQUEST, "policyRules": ["small-first"], "divertedTo": ["small"]},
        ),
        (
            "batch.failed",
            FAILURE,
            {"requestId": REQUEST, "message": "Out of luck", "internalCode": 5006, "httpCode": 400},
        ),
        (
            "batch.failed",
            {},
            {"requestId": REQUEST, "message": "Model execution failed", "internalCode": 5001, "httpCode": 500},
        ),
        (
            "item.failed",
            {"item": 0, "reference": "france"},
            {"requestId": REQUEST, "id": 0, "externalReference": "france"},
        ),
        ("batch.progress", {"counts": COUNTS}, {"requestId": REQUEST, "requestCounts": COUNTS}),
        ("endpoint.disabled", {"message": "gone"}, {"requestId": REQUEST, "message": "gone"}),
        *(
            (kind, data, {"requestId": REQUEST} | data)
            for kind, data in (
                ("conversation.filling", {"conversation": "conv_1", "tokens": 3000, "slope": 120.5, "turns": 9}),
                ("quota.reached", {"quota": "open_items", "message": "full"}),
                ("policy.applied", {"version": 3, "message": "in force"}),
                ("audit.signed", {"row": 7, "checkpoint": "{}", "signature": "00"}),
            )
        ),
    ],
)
def test_every_kind_has_exactly_the_documented_body(kind: str, data: dict[str, object], payload: object) -> None:
    assert orjson.loads(formats.workers_ai(event(kind, **data), SUBSCRIPTION)) == {
        "type": f"cf.workersAi.model.{kind}",
        "source": {"type": "workersAi.model", "modelName": "@cf/baai/bge-m3"},
        "payload": payload,
        "metadata": {
            "accountId": "f9f79265f388666de8122cfb508d7776",
            "eventSubscriptionId": "1830c4bb612e43c3af7f4cada31fbf3f",
            "eventSchemaVersion": 1,
            "eventTimestamp": "2025-05-01T02:48:57.132Z",
        },
    }


def test_an_openai_client_unwraps_the_openai_format() -> None:
    secret, moment = signing.new_secret(), datetime.now(UTC)
    client = openai.OpenAI(api_key="none", webhook_secret=secret)
    for kind, expected in (("succeeded", "completed"), *((same, same) for same in ("failed", "expired", "cancelled"))):
        happened = event(f"batch.{kind}")
        body = formats.FORMATS["openai"](happened, SUBSCRIPTION)
        unwrapped = client.webhooks.unwrap(body, signing.headers([secret], happened.webhook_id, body, moment))
        assert (unwrapped.type, unwrapped.data.id) == (f"batch.{expected}", f"batch_{UUID(REQUEST).hex}")
        assert (unwrapped.id, unwrapped.created_at) == (happened.webhook_id, int(MOMENT.timestamp()))


def test_openai_calls_a_batch_that_ran_completed_and_one_that_was_refused_failed() -> None:
    ran = event("batch.failed", counts={"total": 2, "succeeded": 0, "failed": 2, "unfinished": 0})
    assert orjson.loads(formats.openai(ran, SUBSCRIPTION))["type"] == "batch.completed"
    assert orjson.loads(formats.openai(event("batch.failed"), SUBSCRIPTION))["type"] == "batch.failed"


def test_the_standard_format_has_type_timestamp_and_data() -> None:
    known = {"id": REQUEST, "account_id": "f9f79265f388666de8122cfb508d7776", "model": "@cf/baai/bge-m3"}
    assert orjson.loads(formats.FORMATS["standard"](event("batch.succeeded", counts=COUNTS), SUBSCRIPTION)) == {
        "type": "batch.succeeded",
        "timestamp": "2025-05-01T02:48:57.132Z",
        "data": known | {"request_counts": COUNTS},
    }
    failed = orjson.loads(formats.FORMATS["standard"](event("batch.failed", **FAILURE), SUBSCRIPTION))
    assert failed["data"] == known | {"message": "Out of luck"}


@pytest.mark.parametrize("shape", formats.FORMATS)
def test_every_format_has_a_body_for_every_kind_that_it_knows(shape: str) -> None:
    stored = {"item": 0, "reference": "france", "counts": COUNTS, "budget": "b", "percent": 75} | FAILURE
    stored |= {"pipeline": "pipe_1", "stage": "extract"}
    stored |= {"conversation": "conv_1", "tokens": 3000, "slope": 120.5, "turns": 9}
    stored |= {"quota": "open_items", "version": 3, "row": 7, "checkpoint": "{}", "signature": "00"}
    for kind in formats.known_kinds(shape, KINDS):
        assert orjson.loads(formats.FORMATS[shape](event(kind, **stored), SUBSCRIPTION))


def test_the_standard_format_names_the_item() -> None:
    found = orjson.loads(formats.FORMATS["standard"](event("item.succeeded", item=0, reference="france"), SUBSCRIPTION))
    assert (found["data"]["item"], found["data"]["reference"]) == (0, "france")


def test_timestamps_are_utc_milliseconds_whatever_the_zone() -> None:
    assert formats.timestamp(MOMENT.astimezone(timezone(timedelta(hours=5)))) == "2025-05-01T02:48:57.132Z"
    assert formats.timestamp(MOMENT.replace(microsecond=0)) == "2025-05-01T02:48:57.000Z"


def test_the_webhook_id_holds_no_dot_and_depends_on_the_event_only() -> None:
    assert event("batch.queued").webhook_id == event("batch.failed").webhook_id == f"evt_{UUID(int=7).hex}"
    assert "." not in event("batch.queued").webhook_id


def test_the_standard_library_verifies_our_headers_and_refuses_a_tampered_body_id_or_secret() -> None:
    secret, body = signing.new_secret(), '{"a":"grün"}'.encode()
    headers = signing.headers([secret], "evt_1", body, datetime.now(UTC))
    assert Webhook(secret).verify(body, headers) == {"a": "grün"}
    for bad_body, bad_headers, bad_secret in (
        (body + b" ", headers, secret),
        (body, headers | {"webhook-id": "evt_2"}, secret),
        (body, headers | {"webhook-timestamp": str(int(headers["webhook-timestamp"]) - 1)}, secret),
        (body, headers, signing.new_secret()),
    ):
        with pytest.raises(WebhookVerificationError):
            Webhook(bad_secret).verify(bad_body, bad_headers)


def test_a_public_key_verifies_what_is_signed_with_ed25519_beside_both_secrets_of_a_rotation() -> None:
    private, secrets, body = signing.new_signing_key(), [signing.new_secret(), signing.new_secret()], b'{"a":1}'
    headers = signing.headers(secrets, "evt_1", body, datetime.now(UTC), [private])
    versions = [part.split(",")[0] for part in headers["webhook-signature"].split(" ")]
    assert versions == ["v1", "v1", "v1a"]
    for secret in secrets:
        assert Webhook(secret).verify(body, headers) == {"a": 1}
    raw = base64.b64decode(signing.public_key(private).removeprefix("whpk_"))
    signature = base64.b64decode(headers["webhook-signature"].rpartition("v1a,")[2])
    signed = f"evt_1.{headers['webhook-timestamp']}.".encode() + body
    Ed25519PublicKey.from_public_bytes(raw).verify(signature, signed)


def test_the_official_library_reads_the_cloudevents_format() -> None:
    happened = event("batch.succeeded", counts=COUNTS)
    content_type, body = formats.render("cloudevents", happened, SUBSCRIPTION)
    found = JSONFormat().read(None, body)
    assert content_type == "application/cloudevents+json"
    assert (found.get_id(), found.get_type(), found.get_subject()) == (
        happened.webhook_id,
        "slackwater.batch.succeeded",
        REQUEST,
    )
    assert found.get_time() == MOMENT
    assert found.get_data()["request_counts"] == COUNTS


@pytest.mark.parametrize(
    "moment", [MOMENT.replace(tzinfo=None), datetime(2025, 1, 1, tzinfo=timezone(timedelta(hours=1)))]
)
def test_signing_takes_aware_utc_only(moment: datetime) -> None:
    with pytest.raises(ValueError, match="aware UTC"):
        signing.headers([signing.new_secret()], "evt_1", b"{}", moment)


@pytest.mark.parametrize(
    ("secret", "problem"),
    [
        pytest.param(signing.new_secret(), None, id="a new one"),
        ("whsec_" + base64.b64encode(b"x" * 24).decode(), None),
        ("whsec_" + base64.b64encode(b"x" * 64).decode(), None),
        ("whsec_" + base64.b64encode(b"x" * 23).decode(), "must hold 24 to 64 bytes, not 23"),
        ("whsec_" + base64.b64encode(b"x" * 65).decode(), "must hold 24 to 64 bytes, not 65"),
        ("whsec_not base64!", "must be 'whsec_' followed by base64"),
        ("whsec_ü", "must be 'whsec_' followed by base64"),
        ("secret", "must start with 'whsec_'"),
    ],
)
def test_a_secret_is_whsec_and_24_to_64_bytes(secret: str, problem: str | None) -> None:
    assert signing.secret_problem(secret) == problem
