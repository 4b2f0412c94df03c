"""Claims about the event-subscription resource: Cloudflare's shapes, our webhook destination, clear refusals."""

import asyncio
from typing import Any

import httpx
import pytest

from app.settings import Settings
from tests.api.support import NEW_SUBSCRIPTION, SUBSCRIPTIONS


async def test_create_answers_the_resource_and_shows_the_secret_once(client: httpx.AsyncClient) -> None:
    made = (await client.post(SUBSCRIPTIONS, json=NEW_SUBSCRIPTION)).json()
    assert made["success"] is True
    result = made["result"]
    assert result["destination"].pop("secret").startswith("whsec_")
    limits = {"max_in_flight": 8, "max_per_second": None, "ordered": False}
    assert result["destination"] == {**NEW_SUBSCRIPTION["destination"], "format": "workers_ai", **limits}
    assert result["source"] == {**NEW_SUBSCRIPTION["source"], "tags": [], "metadata": {}}
    assert (result["name"], result["events"], result["enabled"], result["state"]) == (
        NEW_SUBSCRIPTION["name"],
        NEW_SUBSCRIPTION["events"],
        True,
        "pending",
    )
    again = (await client.get(f"{SUBSCRIPTIONS}/{result['id']}")).json()["result"]
    assert "secret" not in again["destination"]
    assert again == result


async def test_listing_pages_and_the_page_after_the_last_is_empty(client: httpx.AsyncClient) -> None:
    for n in range(3):
        await client.post(SUBSCRIPTIONS, json=NEW_SUBSCRIPTION | {"name": f"n{n}"})
    first = (await client.get(SUBSCRIPTIONS, params={"page": 1, "per_page": 2})).json()
    assert [each["name"] for each in first["result"]] == ["n0", "n1"]
    info = {"count": 2, "total_count": 3, "page": 1, "per_page": 2, "total_pages": 2}
    assert first["result_info"] == info | {"cursor": first["result"][-1]["id"]}
    last = (await client.get(SUBSCRIPTIONS, params={"page": 3, "per_page": 2})).json()
    assert last["result"] == []
    turned = (await client.get(SUBSCRIPTIONS, params={"order": "name", "direction": "desc", "extra": "x"})).json()
    assert [each["name"] for each in turned["result"]] == ["n2", "n1", "n0"]
    assert turned["result_info"]["cursor"] is None
    refused = await client.get(SUBSCRIPTIONS, params={"order": "name", "after": first["result_info"]["cursor"]})
    assert (refused.status_code, "after: a list ordered by name" in refused.text) == (400, True)


async def test_patch_changes_what_is_named_and_delete_answers_what_was(client: httpx.AsyncClient) -> None:
    made = (await client.post(SUBSCRIPTIONS, json=NEW_SUBSCRIPTION)).json()["result"]
    one = f"{SUBSCRIPTIONS}/{made['id']}"
    changed = (await client.patch(one, json={"enabled": False, "events": ["batch.failed"]})).json()["result"]
    assert (changed["enabled"], changed["events"], changed["name"]) == (False, ["batch.failed"], "mine")
    gone = (await client.delete(one)).json()["result"]
    assert gone["id"] == made["id"]
    missing = await client.get(one)
    assert missing.status_code == 404
    assert missing.json()["errors"][0]["message"] == "Subscription not found"


async def test_a_secret_that_patch_would_not_change_is_refused(client: httpx.AsyncClient) -> None:
    made = (await client.post(SUBSCRIPTIONS, json=NEW_SUBSCRIPTION)).json()["result"]
    destination = NEW_SUBSCRIPTION["destination"] | {"secret": "whsec_" + "A" * 43 + "="}
    answer = await client.patch(f"{SUBSCRIPTIONS}/{made['id']}", json={"destination": destination})
    assert answer.status_code == 400
    assert "rotate its secret" in answer.json()["errors"][0]["message"]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"events": []}, "events"),
        ({"events": ["batch.exploded"]}, "events[0]"),
        ({"events": ["budget.soft"]}, "events[0]: budget.soft is budget.alert now"),
        ({"name": ""}, "name"),
        ({"source": {"type": "workersAi.model", "model_name": "nosuch"}}, "source.model_name"),
        ({"source": {"type": "r2"}}, "source.type"),
        ({"destination": {"type": "smtp"}}, "destination.type"),
        ({"destination": {"type": "webhook"}}, "destination.url"),
        ({"destination": {"type": "webhook", "url": "ftp://example.com/x"}}, "destination.url"),
        ({"destination": {"type": "webhook", "url": "not a url"}}, "destination.url"),
        ({"destination": {"type": "webhook", "url": "https://example.com", "secret": "short"}}, "destination.secret"),
        ({"destination": {"type": "webhook", "url": "https://example.com", "format": "xml"}}, "destination.format"),
        ({"surprise": 1}, "surprise"),
    ],
)
async def test_bad_subscriptions_are_refused_by_field(
    client: httpx.AsyncClient, change: dict[str, Any], word: str
) -> None:
    answer = await client.post(SUBSCRIPTIONS, json=NEW_SUBSCRIPTION | change)
    assert answer.status_code == 400, answer.text
    assert word in answer.json()["errors"][0]["message"]
    assert (await client.get(SUBSCRIPTIONS)).json()["result"] == []


async def test_another_account_neither_sees_nor_changes_a_subscription(client: httpx.AsyncClient) -> None:
    made = (await client.post(SUBSCRIPTIONS, json=NEW_SUBSCRIPTION)).json()["result"]
    foreign = f"/client/v4/accounts/other/event_subscriptions/subscriptions/{made['id']}"
    for method in ("GET", "PATCH", "DELETE"):
        answer = await client.request(method, foreign, json={} if method == "PATCH" else None)
        assert answer.status_code == 403


async def test_an_account_has_no_more_endpoints_than_the_setting_allows(settings: Settings, key: str) -> None:
    from app.api.app import create_app

    app = create_app(settings.model_copy(update={"webhook_endpoints": 4}))
    transport, headers = httpx.ASGITransport(app=app), {"authorization": f"Bearer {key}"}
    queue = NEW_SUBSCRIPTION | {"destination": {"type": "queues.queue", "queue_id": "q"}}
    hook = {"name": "n", "url": "http://127.0.0.1:9/hook", "event_types": ["batch.completed"]}
    client = httpx.AsyncClient(transport=transport, base_url="http://api", headers=headers)
    async with app.router.lifespan_context(app), client:
        wishes = [(SUBSCRIPTIONS, NEW_SUBSCRIPTION), (SUBSCRIPTIONS, queue), ("/v1/webhook_endpoints", hook)] * 3
        answers = await asyncio.gather(*(client.post(path, json=wish) for path, wish in wishes))
        refused = [answer for answer in answers if answer.status_code == 400]
        assert len(refused) == len(wishes) - 4, [answer.text for answer in answers]
        assert all("and may have 4: delete one" in answer.text for answer in refused)
        first, *_ = (await client.get(SUBSCRIPTIONS)).json()["result"]
        assert (await client.delete(f"{SUBSCRIPTIONS}/{first['id']}")).status_code == 200
        assert (await client.post(SUBSCRIPTIONS, json=queue)).status_code == 200


async def test_private_receivers_need_the_development_setting(settings: Settings, key: str) -> None:
    from app.api.app import create_app

    strict = settings.model_copy(update={"webhook_allow_private": "off"})
    app = create_app(strict)
    transport = httpx.ASGITransport(app=app)
    headers = {"authorization": f"Bearer {key}"}
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://api", headers=headers) as client,
    ):
        for url in (
            "http://127.0.0.1:9/hook",
            "https://127.0.0.1/hook",
            "https://[::1]/hook",
            "https://169.254.169.254/",
        ):
            answer = await client.post(
                SUBSCRIPTIONS, json=NEW_SUBSCRIPTION | {"destination": {"type": "webhook", "url": url}}
            )
            assert answer.status_code == 400, url
            assert "destination.url" in answer.json()["errors"][0]["message"]


@pytest.mark.parametrize(
    "url", ["http://93.184.215.14/hook", "https://93.184.215.14:8443/", "http://10.0.0.7/hook", "https://192.168.1.2/"]
)
async def test_where_loopback_is_allowed_plain_http_to_others_and_private_networks_are_refused(
    client: httpx.AsyncClient, settings: Settings, url: str
) -> None:
    assert settings.webhook_allow_private == "loopback"  # as under `slackwater up`
    answer = await client.post(SUBSCRIPTIONS, json=NEW_SUBSCRIPTION | {"destination": {"type": "webhook", "url": url}})
    assert answer.status_code == 400
    refusal = answer.json()["errors"][0]["message"]
    openai = {"name": "n", "url": url, "event_types": ["batch.completed"]}
    theirs = (await client.post("/v1/webhook_endpoints", json=openai)).json()["error"]["message"]
    assert refusal.startswith("destination.url: the ")
    assert "; must be https on port 443 of a public address, or http or https on a loopback" in refusal
    assert theirs == refusal.removeprefix("destination.")
