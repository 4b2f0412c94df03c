"""Claims about the versions of the policy: how far a rollback goes, and who is told of a new one."""

import orjson
import pytest

from app.admission import policy_versions
from app.db.pool import Connection, Database
from app.engines import catalogue
from app.errors import NotFound
from app.settings import DEMO_MODELS
from tests.queue import support

MODELS = catalogue.load(DEMO_MODELS)
TEXT = '[[rule]]\nid = "short"\nmax_tokens = {}\n'


async def subscribe(conn: Connection, tenant_id: int, kind: str) -> None:
    """An endpoint of an account, whose events are fetched."""
    await conn.execute(
        "insert into endpoint (tenant_id, name, kinds, format, state, queue_id) values (%s, 'e', %s, 'standard', 'active', 'q')",
        (tenant_id, [kind]),
    )


async def test_every_account_that_subscribes_is_told_of_a_new_version_and_of_a_rollback(database: Database) -> None:
    async with database.transaction() as conn:
        for account, kind in (("acme", "policy.applied"), ("birch", "batch.queued"), ("coral", "policy.applied")):
            await subscribe(conn, await support.make_tenant(conn, account), kind)
    for number in (1, 2, 2):
        async with database.transaction() as conn:
            await policy_versions.apply(conn, TEXT.format(number), MODELS, "me")
    async with database.transaction() as conn:
        await policy_versions.roll_back(conn, None, MODELS, "me")
    async with database.relaxed() as conn:
        rows = await (
            await conn.execute("select data from event where kind = 'policy.applied' order by event_id")
        ).fetchall()
        [(deliveries,)] = await (await conn.execute("select count(*) from delivery")).fetchall()
    told = [orjson.loads(data) for (data,) in rows]
    assert [(each["account_id"], each["version"]) for each in told] == [
        *(("acme", 1), ("coral", 1)),
        *(("acme", 2), ("coral", 2)),
        *(("acme", 3), ("coral", 3)),
    ]
    assert told[-1]["message"] == "Version 3 of the policy is in force. It is version 1 again."
    assert deliveries == 6


async def test_each_rollback_goes_back_one_more_version_until_there_is_none(database: Database) -> None:
    async def apply(number: int) -> None:
        async with database.transaction() as conn:
            await policy_versions.apply(conn, TEXT.format(number), MODELS, "me")

    async def back(to: int | None = None) -> tuple[str, int | None]:
        async with database.transaction() as conn:
            version, _ = await policy_versions.roll_back(conn, to, MODELS, "me")
        return version.text, version.restores

    for number in (1, 2, 3):
        await apply(number)
    assert [await back(), await back()] == [(TEXT.format(2), 2), (TEXT.format(1), 1)]
    with pytest.raises(NotFound, match="There is no version before this one"):
        await back()
    assert await back(3) == (TEXT.format(3), 3)  # as version 6
    await apply(7)
    assert [await back(), await back()] == [(TEXT.format(3), 6), (TEXT.format(2), 2)]


async def test_a_version_that_is_not_stored_tells_nobody(database: Database) -> None:
    async with database.transaction() as conn:
        await subscribe(conn, await support.make_tenant(conn), "policy.applied")
    try:
        async with database.transaction() as conn:
            await policy_versions.apply(conn, TEXT.format(1), MODELS, "me")
            raise InterruptedError
    except InterruptedError:
        pass
    async with database.relaxed() as conn:
        assert await (
            await conn.execute("select (select count(*) from event), (select count(*) from policy)")
        ).fetchall() == [(0, 0)]
