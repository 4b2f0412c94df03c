"""Claims about bodies and signatures."""

import base64
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import orjson
import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from app.webhooks import formats, signing

MOMENT = datetime(2025, 5, 1, 2, 48, 57, 132_900, UTC)
SUBSCRIPTION = UUID("1830c4bb612e43c3af7f4cada31fbf3f")
REQUEST = "12345678-90ab-cdef-1234-567890abcdef"


def event(kind: str, **data: object) -> formats.Event:
    known = {"request_id": REQUEST, "account_id": "f9f79265f388666de8122cfb508d7776", "model": "@cf/baai/bge-m3"}
    return formats.Event(UUID(int=7), kind, "@cf/baai/bge-m3", known | data, MOMENT)


@pytest.mark.parametrize(
    ("kind", "data", "payload"),
    [
        ("batch.queued", {}, {"requestId": REQUEST}),
        ("batch.succeeded", {"counts": {"ok": 3}}, {"requestId": REQUEST}),
        (
            "batch.failed",
            {"message": "Out of luck", "internal_code": 5006, "http_code": 400},
            {"requestId": REQUEST, "message": "Out of luck", "internalCode": 5006, "httpCode": 400},
        ),
        (
            "batch.failed",
            {},
            {"requestId": REQUEST, "message": "Model execution failed", "internalCode": 5001, "httpCode": 500},
        ),
    ],
)
def test_every_kind_has_exactly_the_documented_shape(kind: str, data: dict[str, object], payload: object) -> None:
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


def test_timestamps_are_utc_milliseconds_whatever_the_zone() -> None:
    assert formats.timestamp(MOMENT.astimezone(timezone(timedelta(hours=5)))) == "2025-05-01T02:48:57.132Z"
    assert formats.timestamp(MOMENT.replace(microsecond=0)) == "2025-05-01T02:48:57.000Z"


def test_the_webhook_id_holds_no_dot_and_depends_on_the_event_only() -> None:
    assert event("batch.queued").webhook_id == event("batch.failed").webhook_id == f"evt_{UUID(int=7).hex}"
    assert "." not in event("batch.queued").webhook_id


def test_the_standard_library_verifies_our_headers_and_refuses_a_tampered_body_id_or_secret() -> None:
    secret, body = signing.new_secret(), '{"a":"grün"}'.encode()
    headers = signing.headers(secret, "evt_1", body, datetime.now(UTC))
    assert Webhook(secret).verify(body, headers) == {"a": "grün"}
    for bad_body, bad_headers, bad_secret in (
        (body + b" ", headers, secret),
        (body, headers | {"webhook-id": "evt_2"}, secret),
        (body, headers | {"webhook-timestamp": str(int(headers["webhook-timestamp"]) - 1)}, secret),
        (body, headers, signing.new_secret()),
    ):
        with pytest.raises(WebhookVerificationError):
            Webhook(bad_secret).verify(bad_body, bad_headers)


@pytest.mark.parametrize(
    "moment", [MOMENT.replace(tzinfo=None), datetime(2025, 1, 1, tzinfo=timezone(timedelta(hours=1)))]
)
def test_signing_takes_aware_utc_only(moment: datetime) -> None:
    with pytest.raises(ValueError, match="aware UTC"):
        signing.headers(signing.new_secret(), "evt_1", b"{}", moment)


@pytest.mark.parametrize(
    ("secret", "problem"),
    [
        (signing.new_secret(), None),
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
