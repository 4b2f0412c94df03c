"""Claims about the hosts that a policy allows: a rule holds for webhooks that are registered already, at each attempt."""

import pytest

from app import crypto
from app.db.pool import Database
from app.engines import catalogue
from app.policy import service as policies
from app.settings import Settings
from app.webhooks.egress import Egress
from tests.webhooks.support import ACCOUNT, emit, receiving, send_due, subscribe
from workers.notifier.delivery import Sender

RULE = f"""
[[rule]]
id = "partners"
when = {{ account = "{ACCOUNT}" }}
allow = {{ webhook_hosts = ["hooks.example.com"] }}
contact = "ops@example.com"
"""
TOLD = "Policy rule partners does not allow webhooks to 127.0.0.1. Ask ops@example.com."


async def applied(database: Database, settings: Settings, text: str) -> None:
    async with database.transaction() as conn:
        await policies.apply(conn, text, catalogue.load(settings.models_file), "test")


async def test_a_rule_that_came_after_the_registration_stops_its_deliveries_and_says_which_rule_and_whom_to_ask(
    database: Database, settings: Settings
) -> None:
    with receiving() as receiver:
        async with database.durable() as conn:
            await subscribe(conn, settings, receiver.url)
            await emit(conn, 1)
        await applied(database, settings, RULE)
        async with Egress.of(settings) as egress:
            sender = Sender(database, egress, crypto.secret_key(settings), settings)
            await send_due(sender, database)
            await sender.rules.audit.store()
        assert receiver.requests == []
    async with database.durable() as conn:
        ended = "select d.state, d.reason, a.error_class, e.failures from delivery d"
        row = await (
            await conn.execute(
                f"{ended} join attempt a using (delivery_id) join endpoint e using (endpoint_id)".encode()
            )
        ).fetchone()
        assert row == ("dead", TOLD, "policy_denied", 0)  # no failure of the receiver
        noted = await conn.execute(
            "select account, target, body::jsonb->>'outcome' from audit where act = 'policy.denied'"
        )
        assert await noted.fetchall() == [(ACCOUNT, "partners", TOLD)]


async def test_a_rule_that_only_observes_or_is_of_another_account_stops_no_delivery(
    database: Database, settings: Settings
) -> None:
    with receiving() as receiver:
        async with database.durable() as conn:
            await subscribe(conn, settings, receiver.url)
            await emit(conn, 1)
        other = RULE.replace(ACCOUNT, "other").replace('"partners"', '"others"')
        await applied(database, settings, f"{RULE}observe = true\n{other}")
        async with Egress.of(settings) as egress:
            await send_due(Sender(database, egress, crypto.secret_key(settings), settings), database)
        assert len(receiver.requests) == 1


async def test_nothing_is_claimed_while_no_policy_could_be_read(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object) -> None:
        raise TimeoutError

    with receiving() as receiver:
        async with database.durable() as conn:
            await subscribe(conn, settings, receiver.url)
            await emit(conn, 1)
        async with Egress.of(settings) as egress:
            sender = Sender(database, egress, crypto.secret_key(settings), settings)
            with monkeypatch.context() as away:
                away.setattr("app.policy.service.newest_id", fails)
                await send_due(sender, database)
                async with database.durable() as conn:
                    row = await (await conn.execute("select state, attempts from delivery")).fetchone()
                assert row == ("pending", 0)
            await send_due(sender, database)
        assert len(receiver.requests) == 1
