"""Each part works under its own database role, and may do nothing that its part does not need."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest
from typer.testing import CliRunner, Result

from app import processes
from app.access import operator_tokens, sessions
from app.access.roles import Grant, Role
from app.audit import sealing
from app.audit.acts import Act
from app.audit.grouped import GroupedLog
from app.budgets import service as budgets
from app.cli import audit as audit_commands
from app.cli.key import create_key
from app.console.pages import PAGES
from app.crypto import secret_key
from app.db import roles
from app.db.pool import Database
from app.db.role_grants import BROKER, DAILY, GRANTS
from app.environment import child_environment
from app.queue import partitions, retention
from app.settings import Settings
from app.storage.store import Store
from app.tenants import service as tenants
from app.tenants.key_scope import EVERYTHING
from testing.fakes.engine import FakeEngine
from testing.waiting import LIMIT_SECONDS, eventually
from tests.maintenance.support import work
from tests.walk.operations import NOTHING, every_operation, filled
from tests.webhooks.support import receiving

pytestmark = pytest.mark.slow
MODEL = "smollm2-135m-instruct"
SAY = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
PARTS = {
    "app.api": "sw_api",
    "workers.gpu": "sw_worker",
    "workers.steward": "sw_steward",
    "workers.maintenance": "sw_steward",
    "workers.notifier": "sw_notifier",
    "app.console": "sw_console",
}


@pytest.fixture
def url(external_postgres_url: str) -> Iterator[str]:
    """A database with the roles, which go with it."""
    roles.apply(external_postgres_url)
    yield external_postgres_url
    with psycopg.connect(external_postgres_url, autocommit=True) as conn:
        for role in (*GRANTS, BROKER):
            conn.execute(f"drop owned by {role} cascade; drop role {role}".encode())


def of_role(url: str, role: str) -> str:
    place = urlsplit(url)
    return place._replace(netloc=f"{role}@{place.hostname}:{place.port}").geturl()


def refused(url: str, role: str, statement: str) -> bool:
    with psycopg.connect(of_role(url, role)) as conn:
        try:
            conn.execute(statement.encode())
        except psycopg.errors.InsufficientPrivilege:
            return True
    return False


async def test_a_notifier_adds_refusals_to_the_audit_log_and_cannot_read_it(url: str) -> None:
    async with Database(of_role(url, "sw_notifier"), size=1) as database:
        noted = GroupedLog(database)
        noted.add(Act.POLICY_DENIED, "partners", "acme", "not there")
        await noted.store()
    with psycopg.connect(url) as conn:
        assert conn.execute("select account, target from audit join audit_pending using (audit_id)").fetchall() == [
            ("acme", "partners")
        ]
    assert refused(url, "sw_notifier", "select body from audit")


def test_the_roles_can_be_set_again(url: str) -> None:
    assert roles.apply(url) == [*GRANTS, BROKER]
    assert not refused(url, "sw_report", "select count(*) from usage")
    assert refused(url, "sw_report", "insert into usage default values")


ACCOUNTS_OF = {
    "tenant": "account_id",
    **dict.fromkeys(("audit", "audit_seal", "audit_checkpoint"), "coalesce(account, '')"),
    **dict.fromkeys(("line", "budget"), "(select t.account_id from tenant t where t.tenant_id = x.tenant_id)"),
    "usage": "(select t.account_id from line l join tenant t using (tenant_id) where l.line_id = x.line_id)",
}
FILL = """
insert into line (tenant_id, key_id, workflow, task, critical, variant, family, model, kind, endpoint)
  select tenant_id, '', '', '', false, '', '', 'm', 'sync', '' from tenant;
insert into usage (hour, line_id) select date_trunc('hour', now()), line_id from line"""


async def governed(url: str, folder: Path) -> Settings:
    """An installation in which two accounts have keys, usage, budgets, and a sealed and signed audit log."""
    settings = Settings(data_dir=folder, database_url=url, secret_key="test-secret-key-of-at-least-32-bytes!")
    async with Database.of(settings, "test") as database:
        async with database.transaction() as conn:
            for account in ("acme", "birch"):
                await tenants.create_key(conn, secret_key(settings), account, "test")
                tenant_id = await tenants.find_tenant(conn, account)
                await budgets.put(conn, tenant_id, "month", {"max_tokens": 5})
            await conn.execute(FILL)
            await operator_tokens.create(conn, secret_key(settings), "ann", Role.AUDITOR, timedelta(days=1), "test")
        await sealing.seal(database)
        await work(database, settings).audit.sign()
    return settings


def seen(url: str, role: str) -> dict[str, set[str]]:
    """The accounts of the rows that a role sees, by table. Empty: the installation."""
    with psycopg.connect(of_role(url, role)) as conn:
        statements = {table: f"select distinct {account} from {table} x" for table, account in ACCOUNTS_OF.items()}
        return {table: {str(each) for (each,) in conn.execute(text.encode())} for table, text in statements.items()}


async def test_reports_see_the_rows_of_the_accounts_that_they_are_bound_to_and_of_no_other(
    url: str, tmp_path: Path
) -> None:
    await governed(url, tmp_path)
    every = {"acme", "birch"}
    assert seen(url, "sw_report") == {table: every | ({""} if "audit" in table else set()) for table in ACCOUNTS_OF}
    roles.apply(url, "acme, lab")
    assert seen(url, "sw_report") == {table: {"acme"} for table in ACCOUNTS_OF}
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("create role analyst login in role sw_report")
        conn.execute("create role backup login")
        for table in ACCOUNTS_OF:
            conn.execute(f"grant select on {table} to backup".encode())
    try:
        assert seen(url, "analyst") == {table: {"acme"} for table in ACCOUNTS_OF}
        assert seen(url, "backup")["audit"] == {"acme", "birch", ""}
        assert seen(url, "backup")["usage"] == every
    finally:
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute("drop owned by analyst, backup; drop role analyst, backup")
    roles.apply(url, "birch")
    assert seen(url, "sw_report") == {table: {"birch"} for table in ACCOUNTS_OF}
    roles.apply(url)
    assert seen(url, "sw_report")["usage"] == every


async def test_reports_verify_and_export_the_chains_of_their_accounts(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = await governed(url, tmp_path)
    own = settings.model_copy(update={"database_url": of_role(url, "sw_report")})
    monkeypatch.setattr(audit_commands, "settings", lambda: own)

    def run(*words: str) -> Result:
        return CliRunner().invoke(audit_commands.app, words)

    whole = await asyncio.to_thread(run, "verify")
    assert whole.exit_code == 0, whole.output
    roles.apply(url, "acme")
    for command in (("verify",), ("export", str(tmp_path / "all"))):
        refused = await asyncio.to_thread(run, *command)
        assert "--account" in str(getattr(refused.exception, "remedy", refused.exception)) + refused.output
        assert refused.exit_code != 0
    assert not (tmp_path / "all").exists()
    checked = await asyncio.to_thread(run, "verify", "--account", "acme", "--json")
    assert (checked.exit_code, json.loads(checked.output)["problems"]) == (0, [])
    assert json.loads(checked.output)["rows"] > 0
    exported = await asyncio.to_thread(run, "export", str(tmp_path / "one"), "--account", "acme")
    assert exported.exit_code == 0, exported.output
    listed = await asyncio.to_thread(run, "list", "--json")
    assert {each["account"] for each in json.loads(listed.output)} == {"acme"}


@asynccontextmanager
async def installation(url: str, folder: Path, engine: FakeEngine) -> AsyncIterator[Settings]:
    """Every part in a process of its own, each under its role."""
    settings = Settings(
        data_dir=folder,
        database_url=url,
        broker_url=of_role(url, BROKER).replace("postgresql://", "pgmq://"),
        secret_key="test-secret-key-of-at-least-32-bytes!",
        port=processes.free_port(),
        console_port=processes.free_port(),
        engine_url=engine.url,
        engine_slots=engine.slots,
        lease_seconds=3,
        heartbeat_seconds=0.5,
        steward_seconds=0.1,
        webhook_sweep_seconds=0.5,
        webhook_allow_private="loopback",
        worker_metrics_port=0,
        notifier_metrics_port=0,
        maintenance_metrics_port=0,
        steward_metrics_port=0,
    )
    async with Database(url, size=1) as database, database.transaction() as conn:
        await partitions.create(conn, 0)
    started = []
    for module, role in PARTS.items():
        own = settings.model_copy(update={"database_url": of_role(url, role)})
        with (folder / f"{module}.log").open("wb") as log:
            command = (sys.executable, "-m", module)
            part = asyncio.create_subprocess_exec(*command, env=child_environment(own, {}), stdout=log, stderr=log)
            started.append(await part)
    try:
        yield settings
    finally:
        for process in started:
            if process.returncode is None:
                process.terminate()
        await asyncio.wait_for(asyncio.gather(*(process.wait() for process in started)), LIMIT_SECONDS)


async def until(client: httpx.AsyncClient, path: str, **wanted: Any) -> dict[str, Any]:
    """The answer of this path, once it has these values."""

    async def told() -> dict[str, Any]:
        answer = await client.get(path)
        return dict(answer.json().get("result") or answer.json()) if answer.status_code == 200 else {}

    return await eventually(told, f"{wanted} at {path}", until=lambda found: wanted.items() <= found.items())


async def unreadable_pages(settings: Settings) -> list[tuple[str, int]]:
    """The pages of the console that it cannot show to an operator who has signed in."""
    async with Database(settings.database_url, size=1) as database, database.transaction() as conn:
        token = await sessions.invite(conn, Grant("ada", Role.OPERATOR))
    place, own = f"http://127.0.0.1:{settings.console_port}", {"sec-fetch-site": "same-origin"}
    async with httpx.AsyncClient(base_url=place, headers=own, timeout=LIMIT_SECONDS, trust_env=False) as browser:
        assert (await browser.post("/console/login", data={"token": token})).status_code == 303
        found = [(page.path, (await browser.get(page.path)).status_code) for page in PAGES if "{" not in page.path]
    assert len(found) > 8
    return [(path, status) for path, status in found if status != 200]


async def test_the_steward_drops_an_old_day_under_its_own_role(url: str, tmp_path: Path) -> None:
    names = {"low": 4 << 36, "high": 5 << 36}
    with psycopg.connect(of_role(url, "sw_steward"), autocommit=True) as conn:
        for parent in DAILY:
            conn.execute(f"create table {parent}_20240105 (like {parent} including all)".encode())
            attached = "alter table {0} attach partition {0}_20240105 for values from ({low}) to ({high})"
            conn.execute(attached.format(parent, **names).encode())
    settings = Settings(data_dir=tmp_path, database_url=of_role(url, "sw_steward"))
    outcome = await retention.run(settings.database_url, 1, Store.of(settings))
    assert [str(day) for day in outcome.dropped] == ["2024-01-05"]


async def test_every_part_does_its_work_under_its_own_role(url: str, tmp_path: Path) -> None:
    account = "/client/v4/accounts/acme"
    roles.apply(url, "acme")  # row-level security hides nothing from the parts
    async with FakeEngine() as engine, installation(url, tmp_path, engine) as settings:
        key = await asyncio.to_thread(create_key, settings, "acme", "test", 1, scope=EVERYTHING)
        headers = {"authorization": f"Bearer {key}"}
        base = f"http://127.0.0.1:{settings.port}"
        with receiving() as receiver:
            async with httpx.AsyncClient(
                base_url=base, headers=headers, timeout=LIMIT_SECONDS, trust_env=False
            ) as client:
                await until(client, "/ready", status="ready")
                subscription = {
                    "name": "all",
                    "source": {"type": "workersAi.model"},
                    "destination": {"type": "webhook", "url": receiver.url},
                    "events": ["batch.succeeded", "item.succeeded"],
                }
                made = await client.post(f"{account}/event_subscriptions/subscriptions", json=subscription)
                assert made.status_code == 200, made.text
                items = [{"prompt": f"number {n}", "max_tokens": 4} for n in range(40)]
                sent = await client.post(f"{account}/ai/run/{MODEL}?queueRequest=true", json={"requests": items})
                assert sent.status_code == 200, sent.text
                request_id = sent.json()["result"]["request_id"]
                await until(client, f"{account}/ai/batches/{request_id}", status="completed")
                await asyncio.to_thread(receiver.wait, 41)
                results = await client.get(f"{account}/ai/batches/{request_id}/results")
                assert len(results.text.splitlines()) == 40
                direct = await client.post(
                    "/v1/chat/completions", json={"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
                )
                assert direct.status_code == 200, direct.text
                status = await until(client, "/status", status="warning")
                assert status["parts"] | {"workers": 1} == dict.fromkeys(status["parts"], "ok") | {"workers": 1}
                failed = []
                for operation in every_operation():
                    if operation.security in ("key", "none"):  # the latter: /metrics and /status read counts, too
                        values = NOTHING | {"request_id": request_id}
                        path = filled(operation.path, values)
                        body = {"json": operation.body or {}} if operation.method in ("post", "put", "patch") else {}
                        answer = await client.request(operation.method, path, **body)
                        if answer.status_code >= 500:
                            failed.append((operation.method, path, answer.text[:200]))
                assert failed == []
                assert await unreadable_pages(settings) == []
    denied = [
        (log.name, line)
        for log in sorted(tmp_path.glob("*.log"))
        for line in log.read_text(errors="replace").splitlines()
        if "permission denied" in line or "must be owner" in line
    ]
    assert denied == []
