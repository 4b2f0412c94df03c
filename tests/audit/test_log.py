"""Claims about the audit log in the database: written with its cause, sealed, signed, checked, exported, cut."""

import asyncio
import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from app import clock
from app.admission import quotas
from app.audit import actor, check, checkpoints, export, log, sealing
from app.audit.actor import Actor
from app.audit.acts import Act
from app.audit.checkpoints import Signer
from app.audit.grouped import GroupedLog
from app.audit.record import Record
from app.audit.verifier import Verifier
from app.batches import accounts
from app.budgets import service as budgets
from app.db.pool import Database
from app.engines import catalogue
from app.errors import StorageError
from app.policy import service as policy
from app.settings import DEMO_MODELS, Settings
from app.storage import object_names
from app.storage.store import Store
from app.tenants import service as tenants
from testing.waiting import eventually
from tests.maintenance.support import work
from tests.queue import support
from tests.queue.test_history import NoHints
from workers.maintenance.audit import AuditKeeper
from workers.steward.metrics import Metrics
from workers.steward.rounds import Rounds
from workers.steward.sealing import AuditLog

ADA = Actor("ada", "operator", correlation="request-7")
RULES = '[[rule]]\nid = "no-drafts"\nwhen = { workflow = "draft" }\ndeny = "no"\n'


async def write(database: Database, count: int, account: str | None = "acme") -> None:
    async with database.transaction() as conn:
        await log.record_all(conn, [Record("test.act", f"t{n}", account) for n in range(count)])


def keeper(database: Database, settings: Settings) -> AuditKeeper:
    return work(database, settings).audit


async def verified(database: Database, settings: Settings) -> Verifier:
    async with database.relaxed() as conn:
        return await check.verify(conn, Store.of(settings), checkpoints.known_keys(settings))


async def sign(
    database: Database,
    settings: Settings,
    account: str = "acme",
    *,
    cut_at: int = 0,
    cut_days: int = 365,
    days_ago: int = 0,
) -> None:
    """Sign the head of a chain, `days_ago`, or cut it as a steward does, whether that is allowed or not."""
    at = clock.now() - timedelta(days=days_ago)
    async with database.transaction() as conn:
        if cut_at:
            sql = "select seq, hash from audit_seal where account = %s and seq = %s"
            row = await (await conn.execute(sql, (account, cut_at))).fetchone()
        else:
            sql = "select seq, hash from audit_seal where account = %s order by seq desc limit 1"
            row = await (await conn.execute(sql, (account,))).fetchone()
        assert row
        made = Signer(settings).checkpoint(account, sealing.Head(*row), at, cut_days=cut_days if cut_at else None)
        await checkpoints.store(Store.of(settings), made)
        path = settings.data_dir / "objects" / object_names.checkpoint(account, made.seq, at)
        os.utime(path, (at.timestamp(), at.timestamp()))
        await checkpoints.add(conn, made)
        if cut_at:
            await checkpoints.cut(conn, made)


async def tamper(database: Database, statement: str) -> None:
    """What somebody with all rights on the database can do."""
    async with database.transaction() as conn:
        await conn.execute("set local session_replication_role = replica")
        assert (await conn.execute(statement.encode())).rowcount


@pytest.fixture
async def signed(database: Database, settings: Settings) -> None:
    """Eight sealed rows of an account and two of the installation, with checkpoints after the fourth and the last."""
    await write(database, 4)
    await write(database, 2, None)
    await sealing.seal(database)
    await sign(database, settings)
    await write(database, 4)
    await sealing.seal(database)
    await sign(database, settings)
    await sign(database, settings, "")


# ------------------------------------------------------------ writing


async def test_every_change_of_the_terms_leaves_a_row_with_before_after_and_who(database: Database) -> None:
    models = catalogue.load(DEMO_MODELS)
    with actor.acting(ADA):
        async with database.transaction() as conn:
            await tenants.create_tenant(conn, "acme")
            await quotas.change(conn, "acme", quotas.Quota(open_items=10))
            await quotas.change(conn, "acme", quotas.Quota(open_items=20))
            await tenants.set_share(conn, "acme", 2.0, None)
            await tenants.set_retention(conn, "acme", 90)
            await tenants.set_webhook_hosts(conn, "acme", [".example.com"])
            key = await tenants.create_key(conn, b"pepper", "acme", "billing")
            tenant_id = await tenants.find_tenant(conn, "acme")
            await budgets.put(conn, tenant_id, "month", {"max_tokens": 100})
        async with database.transaction() as conn:
            await budgets.put(conn, tenant_id, "month", {"max_tokens": 200})
        async with database.transaction() as conn:
            await budgets.remove(conn, tenant_id, "month")
        async with database.transaction() as conn:
            await policy.apply(conn, RULES, models, "ada")
            await policy.apply(conn, RULES.replace("no-drafts", "none"), models, "ada")
            await policy.roll_back(conn, None, models, "ada")
            await tenants.revoke_key(conn, key.key_id)
            await accounts.close(conn, "acme")
    async with database.relaxed() as conn:
        found = (await log.latest(conn))[::-1]
    assert {(each.who, each.role, tuple(each.correlation)) for each in found} == {("ada", "operator", ("request-7",))}
    changes = [(each.act, each.before, each.after) for each in found]
    assert [act for act, *_ in changes] == [
        *("account.create", "quota.set", "quota.set", "account.share", "account.retention", "account.webhook_hosts"),
        *("key.create", "budget.set", "budget.set", "budget.remove"),
        *("policy.apply", "policy.apply", "policy.rollback", "key.revoke", "account.delete"),
    ]
    assert changes[2] == ("quota.set", {"open_items": 10}, {"open_items": 20})
    assert changes[3][1:] == ({"weight": 1.0}, {"weight": 2.0})
    assert changes[5][1:] == ({"webhook_hosts": None}, {"webhook_hosts": [".example.com"]})
    assert changes[8] == ("budget.set", {"max": 100}, {"max": 200})
    assert changes[9][1]["max"] == 200  # type: ignore[index]
    assert changes[12][1]["version"] + 1 == changes[12][2]["version"]  # type: ignore[index]


async def test_what_is_rolled_back_leaves_no_row_and_what_changes_nothing_neither(database: Database) -> None:
    async with database.transaction() as conn:
        await support.make_tenant(conn, "acme")
    with pytest.raises(RuntimeError):
        async with database.transaction() as conn:
            await tenants.set_share(conn, "acme", 7.0, None)
            raise RuntimeError
    async with database.durable() as conn:
        await tenants.set_share(conn, "acme", None, None)
        assert [each.act for each in await log.latest(conn) if each.act != "account.create"] == []


async def test_refusals_of_a_second_are_one_row_with_their_count_and_the_ids_of_the_requests(
    database: Database,
) -> None:
    grouped = GroupedLog(database)
    for n in range(30):
        with actor.acting(Actor("key k1", "key", correlation=f"request-{n}")):
            grouped.add("policy.denied", "no-drafts", "acme", "no")
    await grouped.store()
    async with database.relaxed() as conn:
        found = await log.latest(conn)
    assert sum((each.after or {})["requests"] for each in found) == 30
    assert len(found) <= 2
    assert found[-1].correlation[0] == "request-0"
    assert (found[0].who, found[0].outcome, found[0].target) == ("key k1", "no", "no-drafts")


async def test_refusals_wait_while_the_database_takes_none_and_all_are_counted(database: Database) -> None:
    grouped = GroupedLog(Database("postgresql://127.0.0.1:1/none", patience_seconds=0.1))
    grouped.add("policy.denied", "no-drafts", "acme", "no")
    storing = asyncio.create_task(grouped.store())
    await asyncio.sleep(0)
    grouped.add("policy.denied", "no-drafts", "acme", "no")
    await storing
    grouped._database = database
    await grouped.store()
    async with database.relaxed() as conn:
        assert sum((each.after or {})["requests"] for each in await log.latest(conn)) == 2


@pytest.mark.parametrize("table", ["audit", "audit_seal", "audit_checkpoint"])
async def test_no_statement_changes_or_deletes_a_row(signed: None, database: Database, table: str) -> None:
    column = "hash" if table == "audit_seal" else "body"
    for statement in (f"update {table} set {column} = {column}", f"delete from {table}", f"truncate {table}"):
        async with database.durable() as conn:
            with pytest.raises(psycopg.errors.RaiseException, match="only added to"):
                await conn.execute(statement.encode())


# ------------------------------------------------------------ sealing and checking


async def test_rows_are_sealed_in_chains_of_their_accounts(
    signed: None, database: Database, settings: Settings
) -> None:
    found = await verified(database, settings)
    assert (found.rows, found.checkpoints, found.problems) == (10, 3, [])
    async with database.relaxed() as conn:
        newest = await log.latest(conn, account="acme")
        assert [each.seq for each in newest] == [8, 7, 6, 5, 4, 3, 2, 1]
        assert all(each.signed for each in newest)
        await log.record(conn, Record("test.act", "one more", "acme"))
        assert (await log.latest(conn))[0].seq is None


@pytest.mark.parametrize(
    "statement",
    [
        "update audit set body = replace(body, '\"t1\"', '\"t2\"') where audit_id = 2",
        "update audit set account = 'birch' where audit_id = 2",
        "update audit set act = 'test.acT' where audit_id = 2",
        "update audit set target = 'x' where audit_id = 2",
        "update audit set at = at + interval '1 microsecond' where audit_id = 2",
        "update audit_seal set hash = set_byte(hash, 31, get_byte(hash, 31) # 1) where audit_id = 2",
        "update audit_seal set hash = set_byte(hash, 0, get_byte(hash, 0) # 1) where seq = 8",
        "update audit_seal set account = 'acmf' where audit_id = 2",
        "update audit_seal set audit_id = 1000 where audit_id = 2",
        "update audit_seal set seq = 9 where account = 'acme' and seq = 8",
        "update audit_checkpoint set body = replace(body, 'acme', 'acmf') where seq = 4",
        "update audit_checkpoint set signature = set_byte(signature, 5, get_byte(signature, 5) # 1) where seq = 8",
        "update audit_checkpoint set seq = 3 where seq = 4",
        "update audit_checkpoint set cut = true where seq = 4",
        "delete from audit where audit_id = 5",
        "delete from audit_seal where audit_id = 5",
    ],
)
async def test_one_changed_byte_of_a_row_a_seal_or_a_checkpoint_is_found(
    signed: None, database: Database, settings: Settings, statement: str
) -> None:
    await tamper(database, "update audit set at = at - interval '0 s'")  # changes nothing, and nothing is found
    assert (await verified(database, settings)).problems == []
    await tamper(database, statement)
    assert (await verified(database, settings)).problems


async def test_a_changed_object_of_the_store_is_found(signed: None, database: Database, settings: Settings) -> None:
    bucket = Store.of(settings)
    keys = [key async for key, _ in bucket.list("audit/")]
    assert len(keys) == 3
    await bucket.put(keys[0], (await bucket.get(keys[0])).replace(b"seq", b"sep"))
    assert (await verified(database, settings)).problems


async def test_a_deleted_tail_with_its_seals_and_checkpoints_is_found_by_the_stored_checkpoint(
    signed: None, database: Database, settings: Settings
) -> None:
    await tamper(database, "delete from audit a using audit_seal s where s.audit_id = a.audit_id and seq > 4")
    await tamper(database, "delete from audit_seal where seq > 4")
    await tamper(database, "delete from audit_checkpoint where seq > 4")
    [problem] = (await verified(database, settings)).problems
    assert problem.startswith("account acme: rows 5 to 8 are missing")


async def test_a_deleted_tail_that_was_not_signed_yet_is_found_by_the_stewards_next_look(
    database: Database, settings: Settings
) -> None:
    steward = AuditLog(database, settings, Metrics())
    await write(database, 4)
    await steward.seal()
    await keeper(database, settings).sign()
    await write(database, 4)
    await steward.seal()
    await tamper(database, "delete from audit a using audit_seal s where s.audit_id = a.audit_id and seq > 5")
    await tamper(database, "delete from audit_seal where seq > 5")
    assert (await verified(database, settings)).problems == []
    await steward.look()
    assert steward._metrics.audit_problems._value.get() == 1
    await steward.look()
    assert steward._metrics.audit_problems._value.get() == 1


@pytest.mark.parametrize("since", [0, 1, 3, 4])
async def test_a_steward_finds_that_a_tail_was_deleted_which_another_had_sealed(
    database: Database, settings: Settings, since: int
) -> None:
    before, after = (AuditLog(database, settings, Metrics()) for _ in range(2))
    await write(database, 4)
    await before.seal()
    await keeper(database, settings).sign()
    await write(database, 4)
    await before.seal()
    await after.look()
    assert after._metrics.audit_problems._value.get() == 0
    await tamper(database, "delete from audit a using audit_seal s where s.audit_id = a.audit_id and seq > 5")
    await tamper(database, "delete from audit_seal where seq > 5")
    await write(database, since)  # the chain may grow past the gap before the next look
    await after.seal()
    await after.look()
    assert after._metrics.audit_problems._value.get() == 1


async def test_a_leading_steward_seals_what_is_written_and_notices_that_all_of_it_was_truncated(
    database: Database, settings: Settings
) -> None:
    rounds = Rounds(database, NoHints(), settings)  # type: ignore[arg-type]
    await write(database, 4)

    async def sealed() -> bool:
        async with database.relaxed() as conn:
            return all(each.seq for each in await log.latest(conn))

    async with rounds.watching():
        await eventually(sealed, seconds=30)
    async with database.transaction() as conn:
        await conn.execute("set local session_replication_role = replica")
        await conn.execute("truncate audit, audit_seal, audit_checkpoint")
    await rounds._audit.look()
    assert rounds.metrics.audit_problems._value.get() == 1


async def test_checkpoints_come_at_their_interval_and_only_for_chains_that_have_grown(
    database: Database, settings: Settings
) -> None:
    slow = settings.model_copy(update={"audit_checkpoint_seconds": 3600})
    quick = settings.model_copy(update={"audit_checkpoint_seconds": 1e-6})

    async def count() -> int:
        async with database.relaxed() as conn:
            return len(await check.of_database(conn, None))

    await write(database, 2)
    await sealing.seal(database)
    await keeper(database, slow).sign()
    assert await count() == 1
    await keeper(database, quick).sign()
    assert await count() == 1
    await write(database, 1)
    await sealing.seal(database)
    await keeper(database, slow).sign()
    assert await count() == 1
    await keeper(database, quick).sign()
    assert await count() == 2


async def test_checkpoints_of_an_earlier_secret_key_are_believed_if_a_setting_names_it(
    signed: None, database: Database, settings: Settings
) -> None:
    former = Signer(settings).public.hex()
    rotated = Settings(**settings.model_dump() | {"secret_key": "another-secret-key-of-at-least-32-bytes"})
    assert "not known" in (await verified(database, rotated)).problems[0]
    known = Settings(**rotated.model_dump() | {"audit_keys": former})
    assert (await verified(database, known)).problems == []


# ------------------------------------------------------------ export and retention


async def test_an_export_is_checked_by_its_own_program(
    signed: None, database: Database, settings: Settings, tmp_path: Path
) -> None:
    keys, folder = checkpoints.known_keys(settings), tmp_path / "export"
    async with database.relaxed() as conn:
        made = await export.export(conn, Store.of(settings), keys, folder)
        only = await export.export(conn, Store.of(settings), keys, tmp_path / "acme", "acme")
        with pytest.raises(FileExistsError):
            await export.export(conn, Store.of(settings), keys, folder)
    assert (made.rows, made.checkpoints, only.rows, only.checkpoints) == (10, 3, 8, 2)
    for name in ("export", "acme"):
        command = [sys.executable, "-I", "-S", str(tmp_path / name / "verify.py"), "--key", keys[0].hex()]
        assert subprocess.run(command, check=False).returncode == 0
    lines = (folder / "rows.ndjson").read_text().splitlines()
    assert json.loads(json.loads(lines[-1])["body"])["account"] == "acme"


async def test_rows_beyond_the_retention_are_cut_with_a_signature_and_the_rest_still_fits(
    database: Database, settings: Settings
) -> None:
    async with database.transaction() as conn:
        old = clock.now() - timedelta(days=400)
        await log.record_all(conn, [Record("test.act", f"t{n}", "acme") for n in range(5)], old)
        await log.record_all(conn, [Record("test.act", "only", "birch")], old)
    await sealing.seal(database)
    for account in ("acme", "birch"):
        await sign(database, settings, account, days_ago=400)
    await write(database, 3)
    await sealing.seal(database)
    maintenance = keeper(database, settings)
    await maintenance.sign()
    await maintenance.cut()
    await maintenance.cut()
    found = await verified(database, settings)
    assert (found.rows, found.problems) == (4, [])
    async with database.relaxed() as conn:
        assert [each.seq for each in await log.latest(conn, account="acme")] == [8, 7, 6]
        assert len(await log.latest(conn, account="birch")) == 1, "the newest row of a chain stays"
    await write(database, 1)
    await sealing.seal(database)
    assert (await verified(database, settings)).problems == []
    await maintenance.sign()
    assert maintenance._problems._reported == set()
    await tamper(database, "delete from audit_seal where account = 'acme' and seq = 6")
    assert (await verified(database, settings)).problems


@pytest.mark.parametrize("stated", [365, 0])
@pytest.mark.parametrize("signs_first", [True, False])
async def test_a_thief_of_the_stewards_role_and_key_cannot_cut_what_is_younger_than_the_retention(
    database: Database, settings: Settings, tmp_path: Path, stated: int, signs_first: bool
) -> None:
    await write(database, 10)
    await sealing.seal(database)
    honest = keeper(database, settings)
    await honest.sign()
    await write(database, 1)
    await sealing.seal(database)
    await honest.sign()
    if signs_first:
        await sign(database, settings)
    await sign(database, settings, cut_at=10, cut_days=stated)
    problems = (await verified(database, settings)).problems
    assert any("rows 1 to 10 are missing" in each for each in problems), problems
    await honest.sign()
    assert any("rows 1 to 10 are missing" in each for each in honest._problems._reported), honest._problems._reported
    async with database.relaxed() as conn:
        await export.export(conn, Store.of(settings), checkpoints.known_keys(settings), tmp_path / "export")
    command = [sys.executable, "-I", "-S", str(tmp_path / "export" / "verify.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "rows 1 to 10 are missing" in done.stdout) == (1, True)


async def test_an_object_of_the_store_that_holds_another_checkpoint_is_found(
    signed: None, database: Database, settings: Settings
) -> None:
    bucket = Store.of(settings)
    one, *_, other = sorted([key async for key, _ in bucket.list("audit/acme")])
    await bucket.put(one, await bucket.get(other))
    assert (await verified(database, settings)).problems == [f"object {one}: this is no checkpoint"]


async def test_the_lag_is_the_age_of_the_oldest_row_without_a_seal(database: Database) -> None:
    async with database.transaction() as conn:
        assert (await log.gauges(conn))[0] == ("audit_lag_seconds", "", 0.0)
        await log.record_all(conn, [Record("test.act", "t")], clock.now() - timedelta(seconds=90))
        assert (await log.gauges(conn))[0][2] >= 89
    await sealing.seal(database)
    async with database.relaxed() as conn:
        assert (await log.gauges(conn))[0][2] == 0.0


async def away(*_: object) -> None:
    """An object store that does not answer."""
    raise StorageError("away")


async def test_a_checkpoint_that_cannot_be_stored_is_counted_as_overdue_until_it_is(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with database.transaction() as conn:
        await log.record_all(conn, [Record(Act.ACCOUNT_CREATE, "t", "acme")], clock.now() - timedelta(seconds=500))
    await sealing.seal(database)
    steward, maintenance = AuditLog(database, settings, Metrics()), keeper(database, settings)

    async def overdue() -> float:
        await steward.look()
        return float(steward._metrics.audit_overdue._value.get())

    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "store", away)
        with pytest.raises(StorageError):
            await maintenance.sign()
    assert 499 < await overdue() < 600
    await maintenance.sign()
    assert await overdue() == 0
    await write(database, 1)
    await sealing.seal(database)
    await maintenance.sign()
    assert await overdue() == 0, "the next one is due in an hour"
