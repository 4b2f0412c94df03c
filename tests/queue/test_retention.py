"""Retention: a day is dropped as a whole when all its batches are old enough, and nothing else is."""

from datetime import date

import pytest

from app.clock import now
from app.errors import StorageError
from app.queue import retention
from app.settings import Settings
from app.storage import object_names
from app.storage.store import Store
from tests.maintenance.support import work
from tests.queue import support
from tests.queue.past import KEEP, TABLES, Past, deliver
from workers.maintenance import duties


async def test_a_day_that_is_over_goes_with_all_its_rows_and_its_partitions(past: Past) -> None:
    day = await past.day(ago=40)
    for _ in range(3):
        await past.batch(day, final_ago=35)
    await deliver(past)
    assert all(count >= 3 for count in (await past.counts()).values())
    outcome = await past.retire()
    assert (outcome.dropped, outcome.left) == ({day: 3}, [])
    assert await past.counts() == dict.fromkeys(TABLES, 0)
    assert await past.tables(day) == set()
    assert (await past.retire()).dropped == {}


async def test_more_batches_than_one_slice_are_deleted_in_one_run(past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_SLICE", 2)
    day = await past.day(ago=40)
    for _ in range(5):
        await past.batch(day, final_ago=35)
    await deliver(past)
    assert (await past.retire()).dropped == {day: 5}


async def test_other_days_are_left_untouched(past: Past) -> None:
    gone, young, today = await past.day(ago=50), await past.day(ago=29), now().date()
    await past.batch(gone, final_ago=49)
    kept = [await past.batch(young, final_ago=28), await past.batch(today, final_ago=0), await past.batch(today)]
    await deliver(past)
    before = await past.counts()
    stock = await past.one("select count(*) from pg_inherits where inhparent = 'item_payload'::regclass")
    assert list((await past.retire()).dropped) == [gone]
    after = await past.counts()
    assert after["item_payload"] == before["item_payload"] - 5
    assert after["item_result"] == before["item_result"] - 5
    assert {row[0] for row in await (await past.conn.execute("select request_id from batch")).fetchall()} == set(kept)
    assert await past.tables(young) == {f"item_payload_{young:%Y%m%d}", f"item_result_{young:%Y%m%d}"}
    assert await past.one("select count(*) from pg_inherits where inhparent = 'item_payload'::regclass") == stock - 1


async def test_an_open_batch_holds_its_day(past: Past) -> None:
    day = await past.day(ago=40)
    await past.batch(day, final_ago=35)
    await past.batch(day)
    await deliver(past)
    assert (await past.retire()).dropped == {}
    assert await past.one("select count(*) from batch") == 2
    assert len(await past.tables(day)) == 2


async def test_retention_counts_from_the_end_of_a_batch_not_from_its_submit(past: Past) -> None:
    day = await past.day(ago=40)
    await past.batch(day, final_ago=29)
    await deliver(past)
    assert (await past.retire()).dropped == {}
    assert (await past.retire(days=28)).dropped == {day: 1}


async def test_an_unfolded_count_or_a_remaining_chunk_keeps_the_day(past: Past) -> None:
    day = await past.day(ago=40)
    await past.batch(day, final_ago=35)
    await deliver(past)
    columns = "batch_id, ok, failed, prompt_tokens, cached_tokens, completion_tokens"
    await past.conn.execute(f"insert into batch_delta ({columns}) select batch_id, 0, 0, 0, 0, 0 from batch")
    assert (await past.retire()).dropped == {}
    await past.conn.execute("delete from batch_delta")
    await past.conn.execute(
        """insert into chunk (batch_id, run, tenant_id, pool_id, lo, hi, n, est_tokens, deadline)
           select batch_id, 1, tenant_id, 1, 0, 0, 1, 1, now() from batch"""
    )
    assert (await past.retire()).dropped == {}
    await past.conn.execute("delete from chunk")
    assert (await past.retire()).dropped == {day: 1}


async def test_an_outstanding_delivery_keeps_the_day_unless_its_endpoint_is_disabled(past: Past) -> None:
    day = await past.day(ago=40)
    await past.batch(day, final_ago=35)
    assert await past.one("select state from delivery") == "pending"
    assert (await past.retire()).dropped == {}
    await past.conn.execute("update delivery set state = 'sending', lease_until = now()")
    await past.conn.execute("update endpoint set state = 'disabled'")
    assert (await past.retire()).dropped == {}
    await past.conn.execute("update delivery set state = 'pending', lease_until = null")
    assert (await past.retire()).dropped == {day: 1}
    assert await past.counts() == dict.fromkeys(TABLES, 0)


async def test_a_tenant_that_wants_its_batches_kept_longer_holds_their_days_only(past: Past) -> None:
    async with past.database.durable() as conn:
        archive = await support.make_tenant(conn, "archive")
        brief = await support.make_tenant(conn, "brief")
    await past.conn.execute("update tenant set retention_days = 60 where tenant_id = %s", (archive,))
    await past.conn.execute("update tenant set retention_days = 1 where tenant_id = %s", (brief,))
    longer, usual = await past.day(ago=45), await past.day(ago=44)
    await past.batch(longer, final_ago=44, tenant=archive)
    await past.batch(longer, final_ago=44)
    await past.batch(usual, final_ago=43)
    await past.batch(usual, final_ago=29.5, tenant=brief)  # fewer days than the setting has no effect
    await deliver(past)
    assert (await past.retire()).dropped == {}
    await past.conn.execute("update batch set finalized_at = finalized_at - interval '1 day'")
    assert (await past.retire()).dropped == {usual: 2}
    await past.conn.execute("update batch set finalized_at = finalized_at - interval '20 days'")
    assert (await past.retire()).dropped == {longer: 2}


async def test_zero_days_keep_everything_for_ever(past: Past) -> None:
    day = await past.day(ago=900)
    await past.batch(day, final_ago=899)
    await deliver(past)
    assert (await past.retire(days=0)).dropped == {}
    assert await past.one("select count(*) from batch") == 1


async def test_while_one_run_is_active_another_does_nothing(past: Past) -> None:
    await past.day(ago=40)
    async with past.database.durable() as other:
        await other.execute(retention.queries.TRY_LOCK)
        assert (await past.retire()).dropped == {}
        await other.execute("select pg_advisory_unlock_all()")
    assert len((await past.retire()).dropped) == 1


async def test_a_dropped_day_takes_its_objects_and_those_of_failed_submits_and_no_others(past: Past) -> None:
    gone, kept = await past.day(ago=40), await past.day(ago=10)
    await past.batch(gone, final_ago=35)
    await past.batch(kept, final_ago=9)
    await deliver(past)
    orphan = ((gone - date(2024, 1, 1)).days << 36) + 10**6
    ids = [row[0] for row in await (await past.conn.execute("select batch_id from batch order by 1")).fetchall()]
    for batch_id in (*ids, orphan):
        await past.store.put(object_names.payload(batch_id, 0), b"x")
        await past.store.put(object_names.result(batch_id, 1, 0, (1, 1, 1)), b"x")
    assert (await past.retire()).dropped == {gone: 1}
    left = {key async for key, _ in past.store.list("")}
    assert left == {object_names.payload(ids[1], 0), object_names.result(ids[1], 1, 0, (1, 1, 1))}


async def test_a_store_that_fails_leaves_the_day_to_the_next_run(past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    day = await past.day(ago=40)
    await past.batch(day, final_ago=35)
    await deliver(past)

    async def away(*_: object) -> int:
        raise StorageError("away")

    with monkeypatch.context() as patched, pytest.raises(StorageError):
        patched.setattr(Store, "delete_prefix", away)
        await past.retire()
    assert len(await past.tables(day)) == 2
    assert list((await past.retire()).dropped) == [day]


async def test_with_days_of_grace_the_objects_of_a_dropped_day_stay_for_a_restored_database(past: Past) -> None:
    day = await past.day(ago=40)
    await past.batch(day, final_ago=35)
    await deliver(past)
    keys = {f"{prefix}7/0" for prefix in object_names.of_day(day)}
    for key in keys:
        await past.store.put(key, b"x")
    outcome = await retention.run(past.database.url, KEEP, past.store, grace_days=7)
    assert outcome.dropped == {day: 1}
    assert {key async for key, _ in past.store.list("payload/")} | {
        key async for key, _ in past.store.list("result/")
    } == keys
    assert await past.one("select count(*) from object_removal where due_at > now() + interval '6 days'") == 2


async def test_the_duties_freeze_the_last_days_and_drop_the_old_ones(past: Past, settings: Settings) -> None:
    old, yesterday = await past.day(ago=40), await past.day(ago=1)
    await past.batch(old, final_ago=35)
    await deliver(past)
    await duties.freeze(work(past.database, settings))
    await duties.days(work(past.database, settings))
    assert not await past.tables(old)
    frozen = f"select age(relfrozenxid) < 100 from pg_class where relname = 'item_result_{yesterday:%Y%m%d}'"
    assert await past.one(frozen)
