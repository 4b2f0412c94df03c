"""Claims about `slackwater subscription …`: create, test, show and redeliver, all over HTTP."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from app import crypto
from app.cli import deliveries
from app.db.pool import Database
from app.events import BatchData, EventKind
from app.settings import Settings
from app.tenants import service as tenants
from app.webhooks import emitter
from app.webhooks.egress import Egress
from testing.waiting import wait_for
from tests.cli.support import TERMINAL, Run
from tests.webhooks.support import Receiver, receiving, send_due, statuses
from workers.notifier.delivery import Sender

URL = "http://127.0.0.1:9/x"
Make = Callable[..., str]


def happen(settings: Settings, batch_id: int) -> None:
    async def emit() -> None:
        async with Database.of(settings, "test") as database, database.transaction() as conn:
            tenant_id = await tenants.find_tenant(conn, "acme")
            data = BatchData(request_id=f"request-{batch_id}", account_id="acme")
            await emitter.emit(
                conn,
                tenant_id=tenant_id,
                kind=EventKind.BATCH_SUCCEEDED,
                model="m",
                batch_id=batch_id,
                run=1,
                data=data,
            )

    asyncio.run(emit())


def send_all(settings: Settings) -> None:
    """What a notifier does for every delivery that is due."""

    async def send() -> None:
        async with Database.of(settings, "test") as database, Egress.of(settings) as egress:
            sender = Sender(database, egress, crypto.secret_key(settings), settings)
            await send_due(sender, database)

    asyncio.run(send())


@pytest.fixture
def webhook_to(run: Run, settings: Settings) -> Make:
    """Makes a webhook that has accepted its test event; returns its id."""

    def call(receiver: Receiver, *options: str) -> str:
        made = json.loads(run("subscription", "create", receiver.url, "--json", *options).output)
        with psycopg.connect(settings.database_url) as conn:
            conn.execute("update endpoint set state = 'active'")
            conn.execute("delete from delivery where probe")
        return str(made["id"])

    return call


def test_subscriptions_are_made_listed_and_deleted(run: Run) -> None:
    made = run("subscription", "create", URL, "--name", "[/b]x", "--metadata", "team=search", "--asymmetric")
    assert made.exit_code == 0, made.output
    fields = dict(words for line in made.output.splitlines() if len(words := line.split()) == 2)
    assert fields["state"] == "pending"
    assert f"`slackwater subscription test {fields['id']}` sends another" in made.output
    assert fields["secret"].startswith("whsec_")
    assert fields["public"].startswith("whpk_")
    head, row = (line.split("\t") for line in run("subscription", "list").output.splitlines())
    assert head == ["id", "state", "name", "to", "model", "events", "format"]
    assert row[:5] == [fields["id"], "pending", "[/b]x", URL, "*"]
    assert "batch.queued,batch.succeeded" in row[5]
    shown = run("subscription", "show", fields["id"]).output
    assert "metadata  team=search\n" in shown
    assert fields["secret"] not in shown
    assert run("subscription", "delete", fields["id"]).exit_code == 0
    assert json.loads(run("subscription", "list", "--json").output) == []
    assert "'x' is not an id" in run("subscription", "show", "x").output
    gone = run("subscription", "show", fields["id"])
    assert (gone.exit_code, "Subscription not found" in gone.output) == (1, True)


def test_a_webhook_without_a_name_is_named_after_its_host(run: Run) -> None:
    made = json.loads(run("subscription", "create", URL, "--json").output)
    assert made["name"] == urlsplit(URL).hostname
    refused = run("subscription", "create", "http://[")
    assert (refused.exit_code, "destination.url" in refused.output) == (1, True), refused.output


def test_a_host_that_does_not_resolve_is_told_when_the_webhook_is_made(run: Run) -> None:
    made = run("subscription", "create", "https://nowhere.invalid/hook")
    assert made.exit_code == 0, made.output
    assert "Warning: nowhere.invalid does not resolve; nothing can be sent to it until it does." in made.output
    assert "Warning" not in run("subscription", "create", URL).output


def test_ids_are_whole_on_a_terminal_of_80_columns(run: Run) -> None:
    made = json.loads(run("subscription", "create", URL + "y" * 200, "--json").output)
    lines = run("subscription", "list", env=TERMINAL).output.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(made["id"] in line for line in lines)


def test_the_api_decides_what_a_webhook_may_be(run: Run) -> None:
    for arguments, message in (
        (["ftp://example.com"], "destination.url"),
        ([URL, "--model", "nobody"], "source.model_name: no such model 'nobody'"),
        ([URL, "--event", "batch.done"], "events[0]"),
        ([URL, "--format", "xml"], "destination.format"),
    ):
        refused = run("subscription", "create", *arguments)
        assert (refused.exit_code, message in refused.output) == (1, True), refused.output
    assert run("subscription", "list").output.count("\n") == 1


def test_every_page_of_the_list_is_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.cli.subscription._PAGE", 2)
    for n in range(5):
        run("subscription", "queue", f"queue-{n}")
    assert len(json.loads(run("subscription", "list", "--json").output)) == 5


def test_deliveries_are_shown_sent_again_and_replayed(run: Run, settings: Settings, webhook_to: Make) -> None:
    with receiving(statuses(500, 204)) as receiver:
        webhook = webhook_to(receiver)
        for batch_id in (1, 2):
            happen(settings, batch_id)
        send_all(settings)
        listed = run("subscription", "deliveries", webhook, "--limit", "9").output
        assert ("request-1" in listed, "request-2" in listed) == (True, True)
        assert "\t500 http_5xx\t" in listed
        pending = json.loads(run("subscription", "deliveries", webhook, "--state", "pending", "--json").output)
        delivery = pending[0]["id"]
        shown = run("subscription", "delivery", webhook, delivery).output
        assert "\t500 http_5xx\t127.0.0.1\t" in shown
        again = run("subscription", "redeliver", webhook, delivery)
        assert f"`slackwater subscription delivery {webhook} {delivery}` shows the attempts" in " ".join(
            again.output.split()
        )
        send_all(settings)
        hour_ago = f"{datetime.now().astimezone() - timedelta(hours=1):%Y-%m-%d %H:%M:%S}"
        replay = ["subscription", "replay", webhook, "--since", hour_ago]
        assert run(*replay).output == "0 events are sent again\n"
        assert run(*replay, "--all").output == "2 events are sent again\n"
        send_all(settings)
        assert len(receiver.requests) == 5
        unknown = run("subscription", "redeliver", webhook, "99")
        assert (unknown.exit_code, "Delivery not found" in unknown.output) == (1, True)


def test_a_dead_delivery_says_why_in_the_list_and_in_its_own_view(
    run: Run, settings: Settings, webhook_to: Make
) -> None:
    why = "all 10 attempts failed, the last one with http_5xx"
    with receiving(statuses(500)) as receiver:
        webhook = webhook_to(receiver)
        happen(settings, 1)
        with psycopg.connect(settings.database_url) as conn:
            conn.execute("update delivery set attempts = 9")
        send_all(settings)
        head, row = (line.split("\t") for line in run("subscription", "deliveries", webhook).output.splitlines())
        assert dict(zip(head, row, strict=True))["next, or why none"] == why
        lines = run("subscription", "deliveries", webhook, env=TERMINAL).output.splitlines()
        assert max(map(len, lines)) <= 80
        folded = " ".join(line[line.rindex("  ") :].strip() for line in map(str.rstrip, lines[1:]))
        assert folded == why
        assert f"reason      {why}\n" in run("subscription", "delivery", webhook, row[0]).output
        shown = run("subscription", "delivery", webhook, row[0], env=TERMINAL).output
        assert max(map(len, shown.splitlines())) <= 80


@contextmanager
def sent_once(settings: Settings) -> Iterator[None]:
    """A notifier that sends what there is once there is something."""

    def send() -> None:
        with psycopg.connect(settings.database_url, autocommit=True) as conn:
            wait_for(lambda: conn.execute("select from delivery").fetchall())
        send_all(settings)

    notifier = threading.Thread(target=send)
    notifier.start()
    yield
    notifier.join()


@pytest.mark.parametrize(("status", "outcome"), [(204, "delivered in "), (500, "Not delivered: 500 http_5xx")])
def test_a_test_waits_for_its_outcome(
    run: Run, settings: Settings, webhook_to: Make, status: int, outcome: str
) -> None:
    with receiving(statuses(status)) as receiver:
        webhook = webhook_to(receiver)
        with sent_once(settings):
            shown = run("subscription", "test", webhook)
    assert shown.exit_code == (status == 500)
    assert outcome in shown.output
    assert (f"`slackwater subscription deliveries {webhook}`" in " ".join(shown.output.split())) == (status == 500)


def test_a_test_of_a_receiver_that_is_not_there_says_so_in_words(
    run: Run, settings: Settings, webhook_to: Make
) -> None:
    with receiving() as receiver:
        webhook = webhook_to(receiver)
    with sent_once(settings):
        shown = run("subscription", "test", webhook)
    said = " ".join(shown.output.split())
    assert shown.exit_code == 1
    assert "Not delivered: the receiver could not be reached: no connection to it could be made (connect)." in said


def test_a_rule_that_forbids_the_receiver_is_named_with_whom_to_ask_and_no_further_attempt_is_promised(
    run: Run, settings: Settings, webhook_to: Make, tmp_path: Path
) -> None:
    with receiving() as receiver:
        webhook = webhook_to(receiver)
        rules = tmp_path / "policy.toml"
        rules.write_text(
            '[[rule]]\nid = "partners"\nallow = { webhook_hosts = ["x.example"] }\ncontact = "ops@x.example"\n'
        )
        assert run("policy", "apply", str(rules)).exit_code == 0
        with sent_once(settings):
            shown = run("subscription", "test", webhook)
    said = " ".join(shown.output.split())
    assert shown.exit_code == 1
    assert "Not delivered: Policy rule partners does not allow webhooks to 127.0.0.1. Ask ops@x.example." in said
    assert "It will not be tried again" in said
    assert receiver.requests == []


def test_a_test_that_nobody_sends_names_what_is_missing(
    run: Run, webhook_to: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert deliveries.PATIENCE_SECONDS > 5
    monkeypatch.setattr(deliveries, "PATIENCE_SECONDS", 0.1)
    with receiving() as receiver:
        webhook = webhook_to(receiver)
        shown = run("subscription", "test", webhook)
    assert shown.exit_code == 1
    assert "slackwater up" in shown.output


def test_a_webhook_is_paused_disabled_enabled_and_gets_a_new_key(
    run: Run, settings: Settings, webhook_to: Make
) -> None:
    with receiving() as receiver:
        webhook = webhook_to(receiver, "--format", "standard")
        assert run("subscription", "pause", webhook).output.startswith("paused; ")
        assert run("subscription", "disable", webhook).output == "disabled\n"
        assert "disabled: by its owner" in run("subscription", "list").output
        happen(settings, 1)
        yesterday = f"{datetime.now(UTC) - timedelta(days=2):%Y-%m-%d}"
        replay = ["subscription", "replay", webhook, "--since", yesterday]
        assert "disabled" in run(*replay).output
        assert run("subscription", "enable", webhook).output.startswith("pending; ")
        send_all(settings)
        secret = run("subscription", "rotate", webhook, "--overlap-hours", "0").output.split()[1]
        assert json.loads(run(*replay, "--json").output) == {"replayed": 1, "complete": True}
        send_all(settings)
        assert receiver.requests[-1].verified(secret)["data"]["id"] == "request-1"
