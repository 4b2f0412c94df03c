"""What a worker forgets once it was told of it must be on disk by then."""

from collections import Counter
from typing import Any

import pytest

from app.db.pool import Connection
from app.queue import service as queue
from app.queue.types import Finished, Lease, Result
from tests.gpu.conftest import World


async def test_results_and_the_end_of_a_lease_wait_for_the_disk(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finish that a server crash took back would leave its chunk leased to a worker that lives and has forgotten it."""
    flush, finish, seen = queue.flush, queue.finish, Counter[tuple[str, str]]()

    async def note(conn: Connection, verb: str) -> None:
        row = await (await conn.execute("show synchronous_commit")).fetchone()
        assert row is not None
        seen[verb, row[0]] += 1

    async def noted_flush(conn: Connection, lease: Lease, results: list[Result]) -> bool:
        await note(conn, "flush")
        return await flush(conn, lease, results)

    async def noted_finish(conn: Connection, lease: Lease, **how: Any) -> Finished | None:
        await note(conn, "finish")
        return await finish(conn, lease, **how)

    monkeypatch.setattr(queue, "flush", noted_flush)
    monkeypatch.setattr(queue, "finish", noted_finish)
    batch = await world.submit([f"prompt {n}" for n in range(16)])
    async with world.worker():
        await world.finished(batch)
    assert seen.keys() == {("flush", "on"), ("finish", "on")}
