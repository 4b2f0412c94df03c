"""Claims about the checker of pipelines: what is left over at the end of a run is found, except what waits for a retry."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app.db.pool import Database
from app.pipelines import verbs
from app.settings import Settings
from tests.crash.history import History
from tests.crash.pipeline_verdict import judge_left_over
from tests.flows.pipelines import Json, pipeline, stage
from tests.pipelines import support
from tests.pipelines.support import World
from tests.queue.support import make_tenant

LINES: list[Json] = [{"id": f"line {n}"} for n in range(8)]
PACKS = pipeline(stage("a", "{{item.id}}"), stage("b", "{{parts.text}}", pack={"size": 8}), stage("c", "{{text}}"))


@pytest.mark.parametrize("verb", [None, "cancel"])
async def test_markers_and_packs_of_a_cancelled_pipeline_wait_for_its_retry(
    database: Database, settings: Settings, tmp_path: Path, verb: verbs.Verb | None
) -> None:
    async with database.durable() as conn:
        tenant = await make_tenant(conn)
    world, history = World(database, support.with_models(settings, tmp_path)), History()
    made = await support.create(database, tenant, PACKS, LINES)
    by_batch = {batch_id: n for n, batch_id in enumerate(made.batches)}
    await world.feed()
    await world.work(by_batch, most=1)
    await world.feed()  # the pack has some of its inputs
    await world.work(by_batch, most=1)  # these results are not handed on any more
    if verb is not None:
        async with database.transaction() as conn:
            assert await verbs.transition(conn, verb, made.tenant, made.request_id) is not None
        await world.feed()
        assert await world.settle() + await world.settle()

    async def rows(query: str) -> Sequence[tuple[Any, ...]]:
        async with database.durable() as conn:
            return await (await conn.execute(query.encode())).fetchall()

    await judge_left_over(history, rows)
    assert history.counts["kill_lost"] == (0 if verb else 2), history.details
    assert await rows("select from handoff")
