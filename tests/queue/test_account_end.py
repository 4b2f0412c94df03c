"""Deleting an account: it cannot be used from that moment on, and nothing of it is left."""

import uuid
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest
from psycopg.errors import ForeignKeyViolation

from app import cells
from app.batches import accounts
from app.budgets import service as budgets
from app.clock import now
from app.db.pool import Connection
from app.duties import standing
from app.duties.schedule import ACCOUNTS
from app.errors import AccountUnknown
from app.files import service as files
from app.files import upload_parts
from app.queue import chunk_sweeps, pace_log, removal
from app.sealing.keyring import Keyring
from app.sealing.providers import KeyFolder
from app.settings import Settings
from app.storage import object_names
from app.tenants import service as tenants
from tests.maintenance.support import work
from tests.queue import support
from tests.queue.past import Past, deliver
from workers.maintenance import duties
from workers.steward.rounds import Rounds

PEPPER = b"pepper"
OF = """
select c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid
where c.relkind in ('r', 'p') and not c.relispartition and a.attname = %s and not a.attisdropped
  and c.relnamespace = (select relnamespace from pg_class where oid = 'tenant'::regclass)"""
# What an account may have beside its batches, and beside what `use` makes by our code.
FURTHER = (
    "insert into session (session_id, tenant_id) values (gen_random_uuid(), %(tenant)s)",
    "insert into turn (turn_id, tenant_id, session_id, n, input)"
    " select gen_random_uuid(), tenant_id, session_id, 1, '' from session where tenant_id = %(tenant)s",
    "insert into turn_key (key_id, tenant_id, kek, wrapped) values (gen_random_uuid(), %(tenant)s, 'k', '')",
    "insert into account_kek (tenant_id, kek) values (%(tenant)s, %(kek)s)",
    "insert into quota (tenant_id, open_items) values (%(tenant)s, 100)",
)
# What its batches may have.
OF_BATCHES = (
    "insert into batch_phase (batch_id, tenant_id, code) select batch_id, tenant_id, 'running' from batch",
    "insert into batch_error (batch_id, run, error, tenant_id, n) select batch_id, 1, 'invalid', tenant_id, 1 from batch",
    "insert into batch_key (batch_id, kek, wrapped) select batch_id, 'k', '' from batch",
    "insert into pipeline (pipeline_id, request_id, tenant_id, definition, deadline, state, finalized_at)"
    " select batch_id, gen_random_uuid(), tenant_id, '', now(), 'completed', now() from batch",
    "insert into stage (pipeline_id, n, batch_id, name) select batch_id, 0, batch_id, 'input' from batch",
    "insert into endpoint (tenant_id, name, url, kinds, secret, state)"
    " select tenant_id, 'late', 'http://x', '{batch.queued}', '', 'active' from tenant",
)


async def close(past: Past, account: str = "acme") -> None:
    async with past.database.transaction() as conn:
        await accounts.close(conn, account)


async def sweep(past: Past, keyring: Keyring | None = None) -> list[str]:
    return await accounts.sweep(past.database, past.store, keyring)


async def left(past: Past, tenant: int) -> dict[str, int]:
    """Rows by table, of every table that knows accounts."""
    tables = [name for (name,) in await (await past.conn.execute(OF, ("tenant_id",))).fetchall()]
    assert {"tenant", "batch", "session", "pipeline", "batch_phase"} <= set(tables)
    rows = {table: await past.one(f"select count(*) from {table} where tenant_id = %s", tenant) for table in tables}
    return {table: count for table, count in rows.items() if count}


async def orphans(past: Past) -> dict[str, int]:
    """Rows by table that belong to a batch which is gone."""
    tables = [name for (name,) in await (await past.conn.execute(OF, ("batch_id",))).fetchall()]
    gone = "select count(*) from {} where batch_id not in (select batch_id from batch)"
    rows = {table: await past.one(gone.format(table)) for table in tables}
    return {table: count for table, count in rows.items() if count}


async def use(past: Past, tenant: int, account: str, folder: Path) -> str:
    """A key, a file with its object, an upload with a part, and a refused batch of a file. Returns the key."""
    content = folder / "content"
    content.write_bytes(b"x")
    async with past.database.transaction() as conn:
        key = await tenants.create_key(conn, PEPPER, account, "test")
        await conn.execute("insert into key_usage values (%s, now(), 1, 1)", (key.key_id,))
        await budgets.put(conn, tenant, "month", {"max_tokens": 5})
        await conn.execute(
            "insert into file_batch (request_id, tenant_id, input_file_id, endpoint, completion_window, problems,"
            "  output_file_id, error_file_id)"
            " select gen_random_uuid(), %s, 'file-x', '/v1/x', '24h', '[]', gen_random_uuid(), gen_random_uuid()",
            (tenant,),
        )
        upload = await upload_parts.create(conn, tenant, filename="f", purpose="batch", size=1, file_seconds=9)
    await upload_parts.add(past.database, past.store, tenant, upload.upload_id, content, 1)
    values = {"filename": "f", "size": 1, "expires_seconds": 99, "lines": 1, "problems": [], "demand": {}}
    await files.keep(
        past.database, past.store, content, file_id=cells.new_timed_id(), tenant_id=tenant, purpose="batch", **values
    )
    return str(key)


async def objects(past: Past) -> list[str]:
    return [key for page in [page async for page in past.store._pages("")] for key, *_ in page]


async def test_an_account_goes_with_everything_it_has_and_another_one_keeps_all(past: Past, tmp_path: Path) -> None:
    other = await support.make_tenant(past.conn, "other")
    keys = KeyFolder(tmp_path / "keys")
    for tenant, account in ((past.tenant, "acme"), (other, "other")):
        await use(past, tenant, account, tmp_path)
        await Keyring(keys).make(account, b"")
        for statement in FURTHER:
            await past.conn.execute(statement, {"tenant": tenant, "kek": account})
        for day in (await past.day(ago=5 + tenant), now().date()):
            await past.batch(day, final_ago=0, tenant=tenant)
    batches = await (await past.conn.execute("select batch_id, tenant_id from batch")).fetchall()
    for batch_id, _ in batches:
        for key in (object_names.payload(batch_id, 0), object_names.result(batch_id, 1, 0, (1, 1, 1))):
            await past.store.put(key, b"body")
    for statement in OF_BATCHES:
        await past.conn.execute(statement)
    await deliver(past)
    before = await left(past, other)
    await close(past)
    assert await sweep(past, Keyring(keys)) == ["acme"]
    assert (keys._path("acme").exists(), keys._path("other").exists()) == (False, True)
    assert await orphans(past) == {}
    assert await left(past, past.tenant) == {}
    assert await left(past, other) == before
    ids = [batch_id for batch_id, tenant in batches if tenant == other]
    for table in ("item_payload", "item_result"):
        found = await (await past.conn.execute(f"select distinct batch_id from {table} order by 1")).fetchall()
        assert [row[0] for row in found] == sorted(ids)
    names = await objects(past)
    assert len(names) == 6
    assert all(f"/{other}/" in name or any(f"/{batch_id}/" in name for batch_id in ids) for name in names)
    assert await past.one("select count(*) from delivery") == 0  # only the first account had an endpoint
    assert await past.one("select count(*) from key_usage") == 1
    assert await sweep(past) == []


async def test_its_keys_and_webhooks_are_dead_from_the_moment_of_the_delete(past: Past, tmp_path: Path) -> None:
    key = await use(past, past.tenant, "acme", tmp_path)
    assert await tenants.authenticate(past.conn, PEPPER, key) is not None
    await close(past)
    assert await tenants.authenticate(past.conn, PEPPER, key) is None
    row = await (await past.conn.execute("select state, reason from endpoint")).fetchone()
    assert row == ("disabled", "its account is being deleted")
    for attempt in (tenants.find_tenant(past.conn, "acme"), tenants.ensure_tenant(past.conn, "acme")):
        with pytest.raises(AccountUnknown, match="acme is being deleted"):
            await attempt
    await close(past)
    assert await past.one("select count(*) from tenant where state = 'closing'") == 1


async def test_a_key_that_is_made_during_the_delete_does_not_live_on(past: Past) -> None:
    async with past.database.transaction() as conn:
        await tenants.find_tenant(past.conn, "acme")
        await accounts.close(conn, "acme")
    with pytest.raises(AccountUnknown):
        await _insert_key(past.conn, past.tenant)
    assert await past.one("select count(*) from api_key") == 0


async def _insert_key(conn: Connection, tenant_id: int) -> None:
    """The part of `create_key` after it has found the account."""
    found = tenants.ensure_tenant

    async def known(conn: Connection, account_id: str) -> int:
        return tenant_id

    tenants.ensure_tenant = known
    try:
        await tenants.create_key(conn, PEPPER, "acme", "late")
    finally:
        tenants.ensure_tenant = found


async def test_deleting_an_account_cancels_its_waiting_items_and_waits_for_its_running_ones(past: Past) -> None:
    for _ in range(2):
        await past.batch(now().date(), items=3)
    worker = await support.make_worker(past.database, past.pool)
    lease = await support.claim(past.conn, past.pool, worker)
    assert lease is not None
    await close(past)
    assert await sweep(past) == []
    assert await (await past.conn.execute("select batch_id, state from batch")).fetchall() == [
        (lease.batch_id, "cancelling")
    ]
    await support.run_chunk(past.database, lease)
    await chunk_sweeps.sweep(past.conn)
    await support.settle(past.database)
    assert await sweep(past) == ["acme"]
    assert await left(past, past.tenant) == {}


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (removal, "remove"),
        (files, "forget"),
        (accounts.account_removal, "delete_all"),
        (removal, "remove_shares"),
        (tenants, "remove"),
    ],
)
async def test_a_delete_that_is_cut_short_is_finished_by_the_next(
    past: Past, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: ModuleType, name: str
) -> None:
    await use(past, past.tenant, "acme", tmp_path)
    await past.batch(now().date(), final_ago=0)
    await deliver(past)
    await close(past)
    with monkeypatch.context() as broken:
        broken.setattr(module, name, _killed)
        with pytest.raises(SystemExit):
            await sweep(past)
    assert await sweep(past) == ["acme"]
    assert await left(past, past.tenant) == {}


async def _killed(*_: object) -> None:
    raise SystemExit


async def test_items_are_deleted_some_at_a_time(past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "_ITEMS", 2)
    await past.batch(now().date(), final_ago=0, items=5)
    await close(past)
    assert await sweep(past) == ["acme"]
    assert await past.one("select count(*) from item_payload") == 0


async def test_a_batch_stored_during_the_delete_delays_it_until_the_next_sweep(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = accounts.account_removal.delete_all

    async def late(*arguments: object) -> None:
        await real(*arguments)  # type: ignore[arg-type]
        await past.batch(now().date())

    await close(past)
    with monkeypatch.context() as slow:
        slow.setattr(accounts.account_removal, "delete_all", late)
        with pytest.raises(ForeignKeyViolation):  # so the duty says that something is left
            await sweep(past)
    assert await past.one("select count(*) from batch") == 1
    assert await sweep(past) == ["acme"]


async def test_the_pace_of_a_pool_does_not_fall_when_an_account_is_deleted(past: Past) -> None:
    other = await support.make_tenant(past.conn, "other")
    for tenant in (past.tenant, other):
        await past.batch(now().date(), final_ago=0, tenant=tenant)
    await past.batch(now().date(), tenant=other)  # open, and there is an engine, so that the pace is noted
    await support.make_engine(past.conn, past.database, past.pool)
    await pace_log.note(past.conn)
    await close(past)
    assert await sweep(past) == ["acme"]
    await pace_log.note(past.conn)
    served = await (await past.conn.execute("select served_tokens from pace order by at")).fetchall()
    assert len(served) == 2
    assert served[0] == served[1]


async def test_an_account_name_can_be_used_again_and_its_id_never(past: Past) -> None:
    newest = await tenants.create_tenant(past.conn, "newest")
    await close(past, "newest")
    assert await sweep(past) == ["newest"]
    assert await tenants.create_tenant(past.conn, "newest") > newest


async def test_the_steward_asks_at_once_for_the_end_of_a_closed_account(past: Past, settings: Settings) -> None:
    await past.batch(now().date())
    async with past.database.relaxed() as conn:
        await standing.enter(conn)
        await conn.execute("update duty set due_at = now() + interval '1 hour'")
    hints = Asked()
    rounds = Rounds(past.database, hints, settings)
    await rounds._ask_for_duties()
    assert hints.names == []
    await close(past)
    await rounds._ask_for_duties()
    await rounds._ask_for_duties()  # it is asked for already
    assert hints.names == [ACCOUNTS]
    await duties.accounts(work(past.database, settings))
    assert await past.one("select count(*) from tenant") == 0


class Asked:
    """A publisher that only remembers."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def endpoints(self, endpoint_ids: list[uuid.UUID]) -> bool:
        return not endpoint_ids

    async def duties(self, duties: Sequence[str], seconds: float) -> bool:
        self.names += duties
        return True
