"""Webhooks by the command line: made, tried, looked at, sent again."""

import asyncio
import io
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
import pytest
from rich.console import Console

from app import crypto
from app.cli import webhooks
from app.cli.webhooks import PATIENCE_SECONDS
from app.db.pool import Database
from app.failure import Failure
from app.settings import Settings
from app.tenants import service as tenants
from app.webhooks import service
from app.webhooks.egress import Egress
from tests.cli.test_admin import slackwater
from tests.webhooks.support import Receiver, receiving, send_due, statuses
from workers.notifier.delivery import Sender


def test_subscriptions_are_made_listed_and_deleted(settings: Settings) -> None:
    made = slackwater(settings, "subscription", "create", "http://127.0.0.1:9/x", "--account", "acme")
    assert made.returncode == 0, made.stderr
    fields = dict(line.split() for line in made.stdout.strip().splitlines())
    assert fields["secret"].startswith("whsec_")
    assert fields["id"] in slackwater(settings, "subscription", "list", "--account", "acme").stdout
    assert slackwater(settings, "subscription", "delete", fields["id"], "--account", "acme").returncode == 0
    bad = slackwater(settings, "subscription", "create", "ftp://example.com")
    assert bad.returncode == 1
    assert "destination.url" in bad.stderr


def test_dns_is_asked_while_nothing_is_locked(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(self: webhooks.Egress, url: str, hosts: object = None) -> None:
        async with await psycopg.AsyncConnection.connect(settings.database_url) as other:
            await other.execute("set lock_timeout = '1s'")
            await tenants.ensure_tenant(other, "other")

    monkeypatch.setattr(webhooks.Egress, "check", check)
    webhooks.create(settings, "acme", "http://127.0.0.1:9/x", "name", events=["batch.queued"])


def test_a_local_receiver_is_refused_with_the_setting_that_allows_it(settings: Settings) -> None:
    strict = settings.model_copy(update={"webhook_allow_private": False})
    with pytest.raises(Failure, match=r"destination\.url") as failure:
        webhooks.create(strict, "acme", "http://127.0.0.1:9/x", "name", events=["batch.queued"])
    assert "SLACKWATER_WEBHOOK_ALLOW_PRIVATE=true" in failure.value.remedy
    with psycopg.connect(settings.database_url) as conn:
        assert conn.execute("select count(*) from tenant").fetchone() == (0,)


def test_a_webhooks_name_is_no_markup(settings: Settings) -> None:
    webhooks.create(settings, "acme", "http://127.0.0.1:9/[/x]", "[/b]x", events=["batch.queued"])
    console = Console(file=io.StringIO(), width=200, record=True)
    webhooks.show_all(settings, "acme", console)
    assert "[/b]x" in console.export_text()


def said(show: Callable[[Console], object]) -> str:
    console = Console(file=io.StringIO(), width=200, record=True)
    show(console)
    return console.export_text()


def happen(settings: Settings, batch_id: int) -> None:
    async def emit() -> None:
        async with Database.of(settings, "test") as database, database.transaction() as conn:
            tenant_id = await tenants.find_tenant(conn, "acme")
            data = {"request_id": f"request-{batch_id}", "account_id": "acme"}
            await service.emit(
                conn, tenant_id=tenant_id, kind="batch.succeeded", model="m", batch_id=batch_id, run=1, data=data
            )

    asyncio.run(emit())


def send_all(settings: Settings) -> None:
    """What a notifier does for every delivery that is due."""

    async def send() -> None:
        async with Database.of(settings, "test") as database, Egress.of(settings) as egress:
            sender = Sender(database, egress, crypto.secret_key(settings), settings)
            await send_due(sender, database)

    asyncio.run(send())


def webhook_to(settings: Settings, receiver: Receiver, shape: str = "workers_ai") -> UUID:
    """One that has accepted its test event."""
    made, _ = webhooks.create(settings, "acme", receiver.url, "name", shape=shape)
    with psycopg.connect(settings.database_url) as conn:
        conn.execute("update endpoint set state = 'active'")
        conn.execute("delete from delivery where probe")
    return made


def test_deliveries_are_shown_sent_again_and_replayed(settings: Settings) -> None:
    with receiving(statuses(500, 204)) as receiver:
        webhook = webhook_to(settings, receiver)
        for batch_id in (1, 2):
            happen(settings, batch_id)
        send_all(settings)
        listed = said(lambda console: webhooks.show_deliveries(settings, "acme", webhook, console, state=None, limit=9))
        assert ("request-1" in listed, "request-2" in listed) == (True, True)
        assert "500 http_5xx" in listed
        pending = said(
            lambda console: webhooks.show_deliveries(settings, "acme", webhook, console, state="pending", limit=9)
        )
        assert ("request-1" in pending) != ("request-2" in pending)
        with psycopg.connect(settings.database_url) as conn:
            row = conn.execute("select delivery_id from delivery where state = 'pending'").fetchone()
        assert row is not None
        shown = said(lambda console: webhooks.show_delivery(settings, "acme", webhook, row[0], console))
        assert "127.0.0.1" in shown
        webhooks.redeliver(settings, "acme", webhook, row[0])
        send_all(settings)
        hour_ago = datetime.now(UTC) - timedelta(hours=1)
        assert webhooks.replay(settings, "acme", webhook, hour_ago, None, everything=False) == 0
        assert webhooks.replay(settings, "acme", webhook, hour_ago, None, everything=True) == 2
        send_all(settings)
        assert len(receiver.requests) == 5
        with pytest.raises(Failure, match="Delivery not found") as failure:
            webhooks.redeliver(settings, "acme", webhook, 99)
        assert "subscription list" in failure.value.remedy


@pytest.mark.parametrize(("status", "outcome"), [(204, "delivered in "), (500, "Not delivered: 500 http_5xx")])
def test_a_test_waits_for_its_outcome(settings: Settings, status: int, outcome: str) -> None:
    with receiving(statuses(status)) as receiver:
        webhook = webhook_to(settings, receiver)
        notifier = threading.Timer(0.5, send_all, [settings])
        notifier.start()
        try:
            found = said(lambda console: webhooks.test(settings, "acme", webhook, console))
        except Failure as failure:
            found = failure.problem
        notifier.join()
    assert outcome in found


def test_a_test_that_nobody_sends_says_what_is_missing(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "PATIENCE_SECONDS", 0.3)
    assert PATIENCE_SECONDS > 5
    with receiving() as receiver:
        webhook = webhook_to(settings, receiver)
        with pytest.raises(Failure) as failure:
            webhooks.test(settings, "acme", webhook, Console(file=io.StringIO()))
    assert "slackwater up" in failure.value.remedy


def test_a_webhook_is_paused_disabled_enabled_and_gets_a_new_key(settings: Settings) -> None:
    with receiving() as receiver:
        webhook = webhook_to(settings, receiver, "standard")
        assert webhooks.switch(settings, "acme", webhook, "pause") == "paused"
        assert webhooks.switch(settings, "acme", webhook, "disable") == "disabled"
        assert "disabled: by its owner" in said(lambda console: webhooks.show_all(settings, "acme", console))
        happen(settings, 1)
        yesterday = datetime.now(UTC) - timedelta(days=1)
        with pytest.raises(Failure, match="disabled"):
            webhooks.replay(settings, "acme", webhook, yesterday, None, everything=False)
        assert webhooks.switch(settings, "acme", webhook, "enable") == "pending"
        send_all(settings)
        secret = webhooks.rotate(settings, "acme", webhook, 0)
        assert webhooks.replay(settings, "acme", webhook, yesterday, None, everything=False) == 1
        send_all(settings)
        assert receiver.requests[-1].verified(secret)["data"]["id"] == "request-1"


def test_every_command_is_told_by_help_alone(settings: Settings) -> None:
    shown = slackwater(settings, "subscription", "--help").stdout
    for command in (
        "create",
        "list",
        "test",
        "deliveries",
        "delivery",
        "redeliver",
        "replay",
        "rotate",
        "enable",
        "disable",
        "pause",
    ):
        assert command in shown
    assert slackwater(settings, "subscription", "replay", "--help").returncode == 0
