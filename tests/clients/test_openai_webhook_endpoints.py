"""OpenAI's client manages webhooks as it does at OpenAI. The receiver is real, and so is the notifier."""

from collections.abc import Iterator

import openai
import pytest
from openai import OpenAI
from standardwebhooks import Webhook

from tests.system.stack import Account
from tests.webhooks.support import receiving, statuses

pytestmark = pytest.mark.slow

TYPES = ["batch.completed", "batch.failed"]


@pytest.fixture(autouse=True)
def _clean(client: OpenAI) -> Iterator[None]:
    yield
    for endpoint in client.webhooks.list():
        client.webhooks.delete(endpoint.id)


def test_an_endpoint_is_made_shown_changed_and_removed(client: OpenAI) -> None:
    made = client.webhooks.create(name="n", url="http://127.0.0.1:9/hook", event_types=TYPES)  # type: ignore[arg-type]
    assert made.id.startswith("we_")
    assert made.signing_secret.startswith("whsec_")
    assert made.signing_secret_hint == made.signing_secret[-4:]
    assert (made.object, made.event_types) == ("webhook_endpoint", TYPES)
    shown = client.webhooks.retrieve(made.id)
    assert (shown.name, shown.url, shown.created_at) == ("n", "http://127.0.0.1:9/hook", made.created_at)
    assert "signing_secret" not in shown.to_dict()
    changed = client.webhooks.update(made.id, name="m", event_types=["batch.expired"])
    assert (changed.name, changed.url, changed.event_types) == ("m", shown.url, ["batch.expired"])
    gone = client.webhooks.delete(made.id)
    assert (gone.id, gone.deleted, gone.object) == (made.id, True, "webhook_endpoint.deleted")
    with pytest.raises(openai.NotFoundError):
        client.webhooks.retrieve(made.id)


def test_endpoints_are_listed_page_by_page_the_newest_first(client: OpenAI) -> None:
    made = [
        client.webhooks.create(name=f"n{n}", url="http://127.0.0.1:9/", event_types=["batch.failed"]) for n in range(5)
    ]
    first = client.webhooks.list(limit=2)
    assert [each.name for each in first.data] == ["n4", "n3"]
    assert (first.has_more, first.first_id, first.last_id) == (True, made[4].id, made[3].id)
    last = client.webhooks.list(limit=2, after=made[1].id)
    assert ([each.name for each in last.data], last.has_more) == (["n0"], False)


def test_a_test_is_sent_and_its_status_told_and_a_rotated_secret_signs_beside_the_old_one(client: OpenAI) -> None:
    with receiving(statuses(200, 200, 200, 418)) as receiver:
        made = client.webhooks.create(name="n", url=receiver.url, event_types=["batch.completed"])
        receiver.wait(1)
        told = client.webhooks.test(made.id, event_type="batch.completed")
        assert (told.status_code, told.success, told.event_type) == (200, True, "batch.completed")
        event = client.webhooks.unwrap(
            receiver.requests[1].body, receiver.requests[1].headers, secret=made.signing_secret
        )
        assert event.type == "batch.completed"
        rotated = client.webhooks.rotate_secret(made.id, keep_old_secret_active_for_24_hours=True)
        assert rotated.signing_secret != made.signing_secret
        client.webhooks.test(made.id, event_type="batch.failed")
        for secret in (made.signing_secret, rotated.signing_secret):
            Webhook(secret).verify(receiver.requests[2].body, receiver.requests[2].headers)
        assert client.webhooks.test(made.id, event_type="batch.failed").status_code == 418


def test_a_receiver_that_is_not_there_is_an_error_that_no_client_tries_again(client: OpenAI) -> None:
    made = client.webhooks.create(name="n", url="http://127.0.0.1:9/", event_types=["batch.completed"])
    with pytest.raises(openai.APIStatusError, match=r"could not be reached: no connection .* \(connect\)") as refusal:
        client.webhooks.test(made.id, event_type="batch.completed")
    assert refusal.value.status_code == 424  # clients try 408, 409, 429 and what is above 499 again
    assert refusal.value.response.headers["x-should-retry"] == "false"
    assert refusal.value.type == "invalid_request_error"


def test_what_happens_here_is_listed_and_what_does_not_is_refused_by_field(client: OpenAI) -> None:
    ends = {"batch": ("completed", "failed", "expired", "cancelled")}
    ends["response"] = ("completed", "failed", "incomplete", "cancelled")
    listed = client.webhooks.event_types.list().data
    assert sorted(listed) == sorted(f"{of}.{end}" for of, each in ends.items() for end in each)
    with pytest.raises(openai.BadRequestError, match=r"event_types\[1\]"):
        client.webhooks.create(name="n", url="http://127.0.0.1:9/", event_types=["batch.failed", "video.failed"])
    with pytest.raises(openai.BadRequestError, match=r"Error code: 400.*url: the scheme is http"):
        client.webhooks.create(name="n", url="http://169.254.169.254/", event_types=["batch.failed"])
    with pytest.raises(openai.NotFoundError):
        client.webhooks.delete("we_nonsense")


def test_subscriptions_made_otherwise_are_shown(client: OpenAI, account: Account) -> None:
    path = f"{account.path}/event_subscriptions/subscriptions"
    body = {"name": "theirs", "source": {}, "destination": {"type": "webhook", "url": "http://127.0.0.1:9/"}}
    made = account.client.post(path, json=body | {"events": ["batch.started", "batch.succeeded"]}).json()["result"]
    shown = client.webhooks.retrieve(f"we_{made['id']}")
    assert (shown.name, shown.event_types) == ("theirs", ["batch.started", "batch.completed"])
