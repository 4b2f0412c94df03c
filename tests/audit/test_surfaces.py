"""Claims about what the API and the command line record: who, with which request, and never any content."""

import json
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from app.access import operator_tokens
from app.access.roles import Role
from app.audit import log, sealing
from app.audit.log import Entry
from app.budgets import service as budgets
from app.budgets.rules import Owner
from app.cli import audit as commands
from app.cli import key as keys
from app.crypto import secret_key
from app.db.pool import Database
from app.engines import catalogue
from app.policy import service as policies
from app.settings import Settings
from app.tenants import service as tenants
from app.tenants.key_scope import KeyRole, KeyScope
from tests.api import in_process
from tests.api.support import NEW_SUBSCRIPTION, SUBSCRIPTIONS

SECRET = "correct horse battery staple"
MODEL = "@cf/moonshotai/kimi-k2.6"
RULES = """
[[rule]]
id = "no-drafts"
when = { task = "draft" }
deny = "Drafts are not answered here"
[[rule]]
id = "no-kimi"
when = { task = "extract" }
deny = { models = ["@cf/moonshotai/kimi-k2.6"] }
"""


@pytest.fixture
async def ruled(database: Database, settings: Settings, client: httpx.AsyncClient) -> httpx.AsyncClient:
    """A client of an API with a policy in force."""
    async with database.transaction() as conn:
        await policies.apply(conn, RULES, catalogue.load(settings.models_file), "test")
    await in_process.application().state.parts.admission.policy.renew()
    return client


async def recorded(database: Database, act: str) -> list[Entry]:
    await in_process.application().state.parts.admission.audit.store()
    async with database.relaxed() as conn:
        return [each for each in await log.latest(conn, limit=1000) if each.act == act]


async def test_a_request_that_a_rule_denies_is_recorded_with_its_id_and_without_its_content(
    ruled: httpx.AsyncClient, database: Database
) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": SECRET}]}
    headers = {"x-slackwater-task": "draft", "x-request-id": "request-77"}
    assert (await ruled.post("/v1/chat/completions", json=body, headers=headers)).status_code == 403
    refused = await ruled.post("/v1/chat/completions", json=body, headers=headers | {"x-slackwater-task": "extract"})
    assert refused.status_code == 403
    drafts, kimi = sorted(await recorded(database, "policy.denied"), key=lambda each: each.target)
    assert (drafts.target, drafts.account, drafts.role, drafts.correlation) == (
        "no-drafts",
        "acme",
        "key",
        ["request-77"],
    )
    assert drafts.who.startswith("key ")
    assert "Drafts are not answered here" in drafts.outcome
    assert (kimi.target, kimi.correlation) == ("no-kimi", ["request-77"])
    async with database.relaxed() as conn:
        cursor = await conn.execute("select string_agg(body, '') from audit")
        assert SECRET not in str(await cursor.fetchone())


async def test_a_budget_of_the_api_is_recorded_as_set_by_the_key_with_the_id_of_the_request(
    client: httpx.AsyncClient, database: Database
) -> None:
    path = "/client/v4/accounts/acme/ai/budgets/month"
    assert (await client.put(path, json={"max_tokens": 5}, headers={"x-request-id": "request-8"})).status_code == 200
    assert (await client.delete(path)).status_code == 200
    [row] = await recorded(database, "budget.set")
    assert (row.role, row.account, row.correlation, row.before) == ("key", "acme", ["request-8"], None)
    assert (row.after or {})["max"] == 5
    [row] = await recorded(database, "budget.remove")
    assert (row.before or {})["max"] == 5


async def test_a_key_that_is_used_for_another_account_is_recorded(
    client: httpx.AsyncClient, database: Database
) -> None:
    assert (await client.get("/client/v4/accounts/birch/ai/budgets")).status_code == 403
    [row] = await recorded(database, "access.refused")
    assert (row.account, row.target) == ("acme", "another account")


async def test_what_a_keys_role_may_not_do_is_recorded(
    client: httpx.AsyncClient, database: Database, settings: Settings
) -> None:
    async with database.transaction() as conn:
        scope = KeyScope(KeyRole.VIEWER)
        viewer = await tenants.create_key(conn, secret_key(settings), "acme", "viewer", scope=scope)
    path = "/client/v4/accounts/acme/ai/budgets/month"
    refused = await client.put(path, json={"max_tokens": 5}, headers={"authorization": f"Bearer {viewer}"})
    assert refused.status_code == 403
    [row] = await recorded(database, "access.refused")
    assert (row.account, row.who) == ("acme", f"key {viewer.key_id}")
    assert row.target == "/client/v4/accounts/{account_id}/ai/budgets/{name}"
    assert "takes the role admin" in row.outcome


async def test_that_a_key_would_change_a_budget_of_the_operator_is_recorded(
    client: httpx.AsyncClient, database: Database
) -> None:
    async with database.transaction() as conn:
        await budgets.put(conn, await tenants.find_tenant(conn, "acme"), "month", {"max_tokens": 5}, by=Owner.OPERATOR)
    assert (await client.delete("/client/v4/accounts/acme/ai/budgets/month")).status_code == 403
    [row] = await recorded(database, "access.refused")
    assert (row.account, row.target) == ("acme", "/client/v4/accounts/{account_id}/ai/budgets/{name}")
    assert "belongs to the operator" in row.outcome
    assert await recorded(database, "budget.remove") == []


async def test_a_model_or_an_endpoint_that_a_key_may_not_ask_for_is_recorded(
    client: httpx.AsyncClient, database: Database, settings: Settings
) -> None:
    async with database.transaction() as conn:
        scope = KeyScope(KeyRole.SUBMITTER, endpoints=frozenset({"/v1/embeddings"}))
        limited = await tenants.create_key(conn, secret_key(settings), "acme", "limited", scope=scope)
    asked = {"model": "smollm2-135m-instruct", "messages": [{"role": "user", "content": "planted"}]}
    refused = await client.post("/v1/chat/completions", json=asked, headers={"authorization": f"Bearer {limited}"})
    assert refused.status_code == 403
    [row] = await recorded(database, "access.refused")
    assert (row.account, row.who, row.target) == ("acme", f"key {limited.key_id}", "/v1/chat/completions")
    assert "is limited to /v1/embeddings" in row.outcome
    assert "planted" not in str(row)


async def test_who_knocks_at_an_operators_route_without_a_token_is_recorded(
    client: httpx.AsyncClient, database: Database
) -> None:
    headers = {"x-request-id": "request-9"}
    for path in ("/admin/v1/accounts", "/operator/batches"):
        assert (await client.get(path, headers=headers)).status_code == 401
    found = sorted(await recorded(database, "access.refused"), key=lambda each: each.target)
    assert [each.target for each in found] == ["/admin/v1/accounts", "/operator/batches"]
    assert {(each.who, each.account, *each.correlation) for each in found} == {("unknown caller", None, "request-9")}


async def test_an_unknown_or_revoked_api_key_is_recorded_without_its_secret(
    client: httpx.AsyncClient, database: Database, settings: Settings
) -> None:
    async with database.transaction() as conn:
        revoked = await tenants.create_key(conn, secret_key(settings), "acme", "revoked")
        await tenants.revoke_key(conn, revoked.key_id)
    headers = {"authorization": f"Bearer {revoked}", "x-request-id": "request-10"}
    assert (await client.get("/v1/models", headers=headers)).status_code == 401
    [row] = await recorded(database, "access.refused")
    assert (row.target, row.who, row.account, row.correlation) == ("API key", "unknown caller", None, ["request-10"])
    assert str(revoked).split("_", 3)[-1] not in str(row)


async def test_a_rotation_is_recorded_with_what_the_key_was_before(database: Database, settings: Settings) -> None:
    async with database.transaction() as conn:
        key = await tenants.create_key(conn, secret_key(settings), "acme", "x")
        for _ in range(2):
            await tenants.rotate_key(conn, secret_key(settings), key.key_id, timedelta(hours=1))
        second, first, *_ = await log.latest(conn)
    assert first.before == {"rotation": 0, "old_secret_until": None}
    assert (first.after or {})["rotation"] == 1
    assert second.before == first.after
    assert (second.after or {})["rotation"] == 2


async def test_an_operators_token_is_recorded_with_its_terms_and_its_end_once(
    database: Database, settings: Settings
) -> None:
    async with database.transaction() as conn:
        made = operator_tokens.create(conn, secret_key(settings), "ann", Role.OPERATOR, timedelta(days=1), "test")
        token_id, token = await made
        assert await operator_tokens.revoke(conn, token_id)
        assert not await operator_tokens.revoke(conn, token_id)
        revoke, create, *_ = await log.latest(conn)
    assert [create.act, revoke.act] == ["operator.create", "operator.revoke"]
    assert (create.after or {}).items() >= {"name": "ann", "role": "operator"}.items()
    assert (revoke.before, revoke.after) == ((create.after or {}) | {"state": "live"}, {"state": "revoked"})
    assert token.rpartition("_")[2] not in str([create, revoke])


async def test_the_url_of_a_webhook_is_recorded_by_its_host_and_its_secret_never(
    client: httpx.AsyncClient, database: Database
) -> None:
    secret = "token-in-the-path"
    to = NEW_SUBSCRIPTION["destination"] | {"url": f"http://127.0.0.1:9/{secret}", "secret": "whsec_" + "YWJj" * 8}
    made = await client.post(SUBSCRIPTIONS, json=NEW_SUBSCRIPTION | {"destination": to})
    assert made.status_code == 200, made.text
    other = {"destination": {"type": "webhook", "url": f"http://127.0.0.1:9/{secret}/2"}}
    assert (await client.patch(f"{SUBSCRIPTIONS}/{made.json()['result']['id']}", json=other)).status_code == 200
    [created], [changed] = await recorded(database, "webhook.create"), await recorded(database, "webhook.change")
    assert (created.after or {})["url"].startswith("http://127.0.0.1 (sha256 ")
    assert [*(changed.before or {})] == [*(changed.after or {})] == ["url"]
    assert changed.before != changed.after
    assert secret not in str([created, changed])
    assert "YWJj" not in str([created, changed])


@pytest.fixture
def cli(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.setattr(commands, "settings", lambda: settings)
    return CliRunner()


def test_the_command_line_records_its_user_and_lists_verifies_and_exports_the_log(
    settings: Settings, cli: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    monkeypatch.setattr("getpass.getuser", lambda: "ada")
    created = keys.create_key(settings, "acme", "billing", 90)
    keys.revoke_key(settings, created)

    async def seal() -> None:
        async with Database.of(settings, "test") as database:
            await sealing.seal(database)
            async with database.transaction() as conn:
                key = await tenants.create_key(conn, secret_key(settings), "acme", "unsealed")
                assert created.split("_", 3)[-1] not in str(key)

    asyncio.run(seal())
    listed = json.loads(cli.invoke(commands.app, ["list", "--json", "--account", "acme"]).stdout)
    acts = [(each["act"], each["who"], each["role"]) for each in listed[::-1]]
    assert acts[:3] == [(act, "ada", "command line") for act in ("account.create", "key.create", "key.revoke")]
    assert listed[-1]["correlation"] == listed[-2]["correlation"] != listed[-3]["correlation"]
    assert created.split("_", 3)[-1] not in json.dumps(listed)
    checked = cli.invoke(commands.app, ["verify", "--json"])
    assert (checked.exit_code, json.loads(checked.stdout)["problems"]) == (0, [])
    folder = tmp_path / "export"
    assert cli.invoke(commands.app, ["export", str(folder)]).exit_code == 0
    assert sorted(each.name for each in folder.iterdir()) == [
        "checkpoints.ndjson",
        "keys.json",
        "rows.ndjson",
        "verify.py",
    ]
    again = cli.invoke(commands.app, ["export", str(folder)])
    assert again.exit_code != 0
    assert "has rows.ndjson" in str(again.exception)
    assert cli.invoke(commands.app, ["key"]).stdout.strip() in (folder / "keys.json").read_text()
