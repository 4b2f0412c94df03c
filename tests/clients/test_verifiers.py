"""A real webhook, verified with the libraries that receivers use."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from openai import InvalidWebhookSignatureError, OpenAI
from standardwebhooks import Webhook as StandardWebhook
from standardwebhooks import WebhookVerificationError
from svix.webhooks import Webhook as SvixWebhook

from app.db.pool import Database
from app.settings import Settings
from tests.clients import node
from tests.clients.support import forged_body, signed_webhook


async def test_standardwebhooks_verifies(database: Database, settings: Settings) -> None:
    got, (secret,) = await signed_webhook(database, settings, "standard")
    event = StandardWebhook(secret).verify(got.body, got.headers)
    assert event["type"] == "batch.succeeded"
    assert datetime.now(UTC) - datetime.fromisoformat(event["timestamp"]) < timedelta(minutes=1)
    with pytest.raises(WebhookVerificationError):
        StandardWebhook(secret).verify(forged_body(got), got.headers)


async def test_svix_verifies(database: Database, settings: Settings) -> None:
    got, (secret,) = await signed_webhook(database, settings, "cloudevents")
    SvixWebhook(secret).verify(got.body, got.headers)
    with pytest.raises(Exception, match="signature"):
        SvixWebhook(secret).verify(forged_body(got), got.headers)


async def test_openai_unwraps(database: Database, settings: Settings) -> None:
    got, (secret,) = await signed_webhook(database, settings, "openai")
    client = OpenAI(api_key="unused", webhook_secret=secret)
    event = client.webhooks.unwrap(got.body, got.headers)
    assert event.type == "batch.completed"
    assert event.id == got.webhook_id
    with pytest.raises(InvalidWebhookSignatureError):
        client.webhooks.unwrap(forged_body(got), got.headers)


async def test_while_a_key_is_changed_the_old_and_the_new_one_verify(database: Database, settings: Settings) -> None:
    got, secrets = await signed_webhook(database, settings, "standard", rotated=True)
    assert len(set(secrets)) == 2
    for secret in secrets:
        assert StandardWebhook(secret).verify(got.body, got.headers)
        SvixWebhook(secret).verify(got.body, got.headers)
        assert OpenAI(api_key="unused", webhook_secret=secret).webhooks.verify_signature(got.body, got.headers) is None


@pytest.mark.parametrize("before", ["", pytest.param("a year", marks=pytest.mark.slow)])
async def test_in_javascript(database: Database, settings: Settings, before: str) -> None:
    node.install(optional=bool(before))
    got, (secret,) = await signed_webhook(database, settings, "workers_ai")
    webhook = json.dumps({"headers": got.headers, "body": got.body.decode()})
    node.run("verifiers.mjs", {"SECRET": secret, "WEBHOOK": webhook, "BEFORE": before})
