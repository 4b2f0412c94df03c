"""Claims about the management of endpoints."""

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from app import crypto
from app.db.pool import Database
from app.errors import BadInput, NotFound
from app.settings import Settings
from app.webhooks import endpoint_removal, endpoints, signing, url_check
from app.webhooks.egress import Egress
from tests.webhooks.support import ACCOUNT, subscribe

URL = "http://127.0.0.1:9/hook"


async def test_the_secret_is_shown_once_and_kept_sealed(database: Database, settings: Settings) -> None:
    async with database.durable() as conn:
        endpoint, secret = await subscribe(conn, settings, URL)
        row = await (await conn.execute("select secret from endpoint")).fetchone()
    assert signing.secret_problem(secret) is None
    assert row is not None
    assert secret.encode() not in row[0]
    assert crypto.unseal(crypto.secret_key(settings), row[0], endpoint.endpoint_id.bytes).decode() == secret
    assert secret not in repr(endpoint)


async def test_a_given_secret_is_used(database: Database, settings: Settings) -> None:
    own = signing.new_secret()
    async with database.durable() as conn:
        assert (await subscribe(conn, settings, URL, secret=own))[1] == own


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"url": "http://10.0.0.1/"},
            "destination.url: the .*; must be https on port 443 of a public address, or http",
        ),
        ({"url": ""}, "destination.url: must be 1 to 2048 characters"),
        ({"url": "https://a/" + "x" * 2048}, "destination.url: must be 1 to 2048 characters"),
        ({"url": URL, "kinds": []}, "events: name at least one of batch.queued"),
        ({"url": URL, "kinds": ["batch.queued", "batch.sung"]}, r"events\[1\]: must be one of batch.queued"),
        ({"url": URL, "shape": "xml"}, "destination.format: must be one of workers_ai, openai, standard, cloudevents"),
        (
            {"url": URL, "shape": "openai", "kinds": ["batch.queued"]},
            r"events\[0\]: must be one of batch.succeeded, .*, because the format openai has no batch.queued",
        ),
        ({"url": URL, "name": " "}, "name: must be 1 to 256"),
        ({"url": URL, "name": "a\0b"}, "name: must be 1 to 256"),
        ({"url": URL, "secret": "hello"}, "destination.secret: must start with 'whsec_'"),
    ],
)
async def test_a_bad_field_is_named(
    database: Database, settings: Settings, options: dict[str, object], message: str
) -> None:
    async with database.durable() as conn:
        with pytest.raises(BadInput, match="^" + message):
            await subscribe(conn, settings, **options)  # type: ignore[arg-type]
        assert (await endpoints.listing(conn, 1)) == ([], 0)


async def test_listing_is_paged_and_ordered_and_shows_only_the_tenants_own_endpoints(
    database: Database, settings: Settings
) -> None:
    async with database.durable() as conn:
        for name in ("b", "c", "a"):
            await subscribe(conn, settings, URL, name=name)
        await subscribe(conn, settings, URL, name="foreign", tenant_id=2)
        page, total = await endpoints.listing(conn, 1, page=2, per_page=2, order="name")
        assert ([e.name for e in page], total) == (["c"], 3)
        page, _ = await endpoints.listing(conn, 1, order="created_at", descending=True)
        assert [e.name for e in page] == ["a", "c", "b"]
        for order in endpoints.ORDERS:
            await endpoints.listing(conn, 1, order=order)
        for wrong in (
            {"page": 0},
            {"page": 2**63},
            {"per_page": 0},
            {"per_page": 101},
            {"order": "url; drop table endpoint"},
        ):
            with pytest.raises(BadInput):
                await endpoints.listing(conn, 1, **wrong)  # type: ignore[arg-type]


async def test_patch_changes_what_is_given(database: Database, settings: Settings) -> None:
    async with database.durable() as conn, Egress.of(settings) as egress:
        made, _ = await subscribe(conn, settings, URL, model="m", tags=["nightly"])
        one: dict[str, Any] = {"tenant_id": 1, "endpoint_id": made.endpoint_id}
        renamed = await endpoints.patch(conn, **one, name="new")
        assert renamed == replace(made, name="new", modified_at=renamed.modified_at)
        changed = await endpoints.patch(conn, **one, kinds=["batch.failed"], tags=[], limits={"max_per_second": 2.5})
        assert (changed.kinds, changed.tags, changed.max_per_second) == (["batch.failed"], [], 2.5)
        assert changed.max_in_flight == made.max_in_flight
        assert changed.modified_at > made.modified_at
        for wrong in ({"limits": {"max_in_flight": 0}}, {"limits": {"max_per_second": 0.0}}, {"tags": ["x" * 51]}):
            with pytest.raises(BadInput):
                await endpoints.patch(conn, **one, **wrong)
        with pytest.raises(BadInput, match=r"^destination\.url"):
            await url_check.checked_url(egress, "http://169.254.169.254/")


async def test_enabling_resets_failures_and_sends_a_test(database: Database, settings: Settings) -> None:
    async with database.transaction() as conn:
        made, _ = await subscribe(conn, settings, URL)
        await conn.execute(
            "update endpoint set state = 'disabled', reason = 'gone', failing_since = now(), failures = 7"
        )
        enabled = await endpoints.switch(conn, 1, ACCOUNT, made.endpoint_id, "enable")
        assert (enabled.state, enabled.reason, enabled.failing_since) == ("pending", None, None)
        again = await endpoints.switch(conn, 1, ACCOUNT, made.endpoint_id, "enable")
        assert again == enabled
        row = await (await conn.execute("select count(*), bool_and(probe) from delivery")).fetchone()
        assert row == (1, True)


async def test_foreign_and_unknown_endpoints_give_the_same_error(database: Database, settings: Settings) -> None:
    async with database.durable() as conn:
        foreign, _ = await subscribe(conn, settings, URL, tenant_id=2)
        await subscribe(conn, settings, URL)
        for endpoint_id in (foreign.endpoint_id, uuid4()):
            with pytest.raises(NotFound, match="Subscription not found"):
                await endpoints.get(conn, 1, endpoint_id)
            with pytest.raises(NotFound, match="Subscription not found"):
                await endpoints.patch(conn, tenant_id=1, endpoint_id=endpoint_id, name="x")
            with pytest.raises(NotFound, match="Subscription not found"):
                await endpoints.delete(conn, 1, endpoint_id)


async def test_delete_returns_the_endpoint_and_its_deliveries_are_removed_after_it(
    database: Database, settings: Settings
) -> None:
    from tests.webhooks.support import emit

    async with database.durable() as conn:
        made, _ = await subscribe(conn, settings, URL)
        await emit(conn, 1)
        assert await endpoints.delete(conn, 1, made.endpoint_id) == made
        with pytest.raises(NotFound):
            await endpoints.get(conn, 1, made.endpoint_id)
        await emit(conn, 2)
        assert await endpoint_removal.step(conn) == 2
        row = await (
            await conn.execute(
                "select (select count(*) from delivery), (select count(*) from endpoint), (select count(*) from event)"
            )
        ).fetchone()
        assert row == (0, 0, 2)
