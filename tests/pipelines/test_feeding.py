"""Claims about the hand-off beside its usual course: verbs in the middle, markers that fail, sealed batches, retries."""

import threading
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from app.db.pool import Connection, Database
from app.engines import catalogue
from app.errors import Conflict, KeysUnavailable, StorageError
from app.flows.counting import allowed
from app.flows.stages import INPUT, Stage
from app.pipelines import feeding, grouping, lifecycle, reading, reads, retrying, verbs, waiting, writing
from app.pipelines.running import Running
from app.pipelines.waiting import Pause
from app.queue import handoff_sql, retention_sql
from app.sealing.keyring import Keyring
from app.settings import Settings
from app.states import BatchState
from app.tenants.service import Tenant
from tests.flows.pipelines import Json, pipeline, stage
from tests.pipelines import support
from tests.pipelines.random_trees import Died
from tests.pipelines.support import Made, World
from tests.pipelines.test_trees import check

LINES: list[Json] = [{"id": f"line {n}"} for n in range(8)]
CHAIN = pipeline(
    stage("a", "{{item.id}}"), stage("b", "{{a.text}} {{item.id}}"), stage("c", "{{text}}", when="json.sure")
)


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    return support.with_models(settings, tmp_path)


@pytest.fixture
def world(database: Database, settings: Settings) -> World:
    return World(database, settings)


def by_batch(made: Made) -> dict[int, int]:
    return {batch_id: n for n, batch_id in enumerate(made.batches)}


async def move(database: Database, made: Made, verb: verbs.Verb) -> None:
    async with database.transaction() as conn:
        assert await verbs.transition(conn, verb, made.tenant, made.request_id) is not None


async def count(conn: Connection, query: str, *values: object) -> int:
    row = await (await conn.execute(query.encode(), values)).fetchone()
    assert row
    return int(row[0])


async def test_a_paused_pipeline_hands_nothing_on_until_it_is_resumed(
    database: Database, world: World, tenant: int
) -> None:
    made = await support.create(database, tenant, CHAIN, LINES)
    await world.feed()
    assert await world.work(by_batch(made), most=1) == 1
    await move(database, made, "pause")
    await world.feed()
    await world.settle()
    async with database.durable() as conn:
        assert await count(conn, "select count(*) from item_payload where batch_id = %s", made.batches[2]) == 0
        assert await count(conn, "select count(*) from handoff where due = 'infinity'") > 0
    assert await world.claim() is None
    await move(database, made, "resume")
    [ended] = await world.finish(made)
    assert ended.state == BatchState.COMPLETED
    await check(database, made)


async def test_a_cancelled_pipeline_ends_without_more_items_and_a_retry_goes_on_where_it_was(
    database: Database, settings: Settings, world: World, tenant: int
) -> None:
    made = await support.create(database, tenant, CHAIN, LINES)
    await world.feed()
    assert await world.work(by_batch(made), most=1) == 1  # its results are not handed on any more
    await move(database, made, "cancel")
    await world.feed()
    ended = await world.settle() + await world.settle()
    assert [each.state for each in ended] == [BatchState.CANCELLED]
    async with database.durable() as conn:
        assert await count(conn, "select count(*) from chunk") == 0
        assert await count(conn, "select count(*) from item_payload where batch_id = %s", made.batches[2]) == 0
        assert await count(conn, "select count(*) from batch where feeds and pipeline_id = %s", made.pipeline_id) == 0
    models = catalogue.load(settings.models_file)
    assert await retrying.retry(database, settings, models, Tenant(tenant, "acme"), made.request_id, 1) == 4
    [ended_again] = await world.finish(made)
    assert (ended_again.state, ended_again.run) == (BatchState.COMPLETED, 2)
    await check(database, made)


async def test_a_retry_runs_items_without_an_answer_and_what_comes_of_them(
    database: Database, settings: Settings, world: World, tenant: int
) -> None:
    made = await support.create(database, tenant, CHAIN, LINES)
    world.failing = {(1, 2), (2, 5)}
    await world.finish(made)
    before = await support.items(database, made)
    assert 2 not in before[2]
    assert before[2][5][2] == 0
    models, owner = catalogue.load(settings.models_file), Tenant(tenant, "acme")
    world.failing = set()
    failed = sum(ok == 0 for items in before for *_, ok, _ in items.values())
    assert await retrying.retry(database, settings, models, owner, made.request_id, 1) == failed
    await world.finish(made)
    after = await support.items(database, made)
    assert after[2][2][2] == after[2][5][2] == 1
    await check(database, made)
    assert (await support.batches(database, made))[1] == (len(LINES), len(LINES), 0)
    with pytest.raises(Conflict, match="nothing to retry"):
        await retrying.retry(database, settings, models, owner, made.request_id, 2)


async def test_an_expired_pipeline_gives_up_all_of_its_stages(database: Database, world: World, tenant: int) -> None:
    made = await support.create(database, tenant, CHAIN, LINES, expires=True)
    await world.feed()
    async with database.transaction() as conn:
        assert await verbs.expire(conn) == 0
        await conn.execute("update pipeline set expires_at = now() - interval '1 second'")
        assert await verbs.expire(conn) == 1
    await world.feed()
    ended = await world.settle() + await world.settle()
    assert [each.state for each in ended] == [BatchState.EXPIRED]
    async with database.durable() as conn:
        states = "select count(*) from batch where pipeline_id = %s and state = 'expired'"
        assert await count(conn, states, made.pipeline_id) == 3


async def test_a_feeder_that_dies_before_its_commit_has_made_nothing_and_leaves_its_markers(
    database: Database, world: World, tenant: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await support.create(database, tenant, CHAIN, LINES)

    async def die(*_: object) -> None:
        raise Died

    async def stored() -> tuple[int, int]:
        """Markers, and items of the first stage."""
        async with database.durable() as conn:
            markers = await count(conn, "select count(*) from handoff")
            return markers, await count(conn, "select count(*) from item_payload where batch_id = %s", made.batches[1])

    before = await stored()
    with monkeypatch.context() as patch:
        patch.setattr(writing, "_count_stages", die)
        with pytest.raises(Died):
            await world.feeder.step()
    assert before == await stored() == (1, 0)
    await world.finish(made)
    await check(database, made)


async def test_a_marker_that_fails_is_tried_alone_five_times_and_set_aside_until_the_pipeline_is_resumed(
    database: Database, settings: Settings, world: World, tenant: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    poisoned, sound = [await support.create(database, tenant, CHAIN, LINES) for _ in range(2)]
    pipelines_load = feeding.pipelines.load

    async def load(*args: object) -> object:
        found = await pipelines_load(*args)  # type: ignore[arg-type]
        if poisoned.pipeline_id in found:
            running, number = found[poisoned.pipeline_id]
            found[poisoned.pipeline_id] = replace(running, stages=()), number
        return found

    monkeypatch.setattr(feeding.pipelines, "load", load)
    for _ in range(handoff_sql.MOST_TRIES + 1):
        await world.feed()
        async with database.durable() as conn:
            await conn.execute("update handoff set due = now() where due < 'infinity'")
    await world.finish(sound)
    await check_alone(database, sound)
    assert world.feeder.set_aside == 1
    async with database.durable() as conn:
        tries = "select count(*) from handoff where batch_id = %s and tries = %s and due = 'infinity'"
        assert await count(conn, tries, poisoned.batches[INPUT], handoff_sql.MOST_TRIES) == 1
    monkeypatch.undo()
    await world.feed()
    shown = await reads.get(database, settings, Tenant(tenant, "acme"), poisoned.request_id)
    assert [stage.row.stuck for stage in shown.stages] == [True, True, False, False]
    link = waiting.of_stage(shown.row, shown.stages, shown.stages[1])
    assert link is not None
    assert "could not be handed on" in link.message
    for verb in ("pause", "resume"):
        await move(database, poisoned, verb)
    [ended] = await world.finish(poisoned)
    assert ended.state == BatchState.COMPLETED
    await check(database, poisoned)


@pytest.mark.parametrize("error", [KeysUnavailable("the key provider does not answer"), StorageError("not reachable")])
async def test_a_pipeline_whose_keys_or_objects_cannot_be_had_holds_up_no_other(
    database: Database, world: World, tenant: int, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    locked, sound = [await support.create(database, tenant, CHAIN, LINES) for _ in range(2)]
    pipelines_load = feeding.pipelines.load

    async def load(database: Database, keyring: Keyring, batch_ids: Collection[int]) -> object:
        if set(batch_ids) & set(locked.batches):
            raise error
        return await pipelines_load(database, keyring, batch_ids)

    monkeypatch.setattr(feeding.pipelines, "load", load)
    await world.finish(sound)
    await check_alone(database, sound)
    async with database.durable() as conn:
        assert (
            await count(conn, "select count(*) from handoff where tries = 0 and due > now() and due < 'infinity'") == 1
        )
        await conn.execute("update handoff set due = now()")
    monkeypatch.undo()
    await world.finish(locked)
    await check(database, locked)


BY_VALUE = pipeline(stage("a", "{{item.id}}"), stage("b", "{{parts.item.id}}", pack={"by": "item.id", "max": 2}))


async def test_a_pipeline_pauses_at_too_many_values_of_a_pack_and_makes_all_of_them_if_its_owner_wants(
    database: Database, world: World, tenant: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "MOST_GROUPS", 7)
    world.failing = set()
    await world.finish(await support.create(database, tenant, BY_VALUE, LINES[:7]))
    many = await support.create(database, tenant, BY_VALUE, LINES)
    for _ in range(4):
        await world.feed()
        await world.work(by_batch(many))
        await world.settle()
    row = await reads.row(database, Tenant(tenant, "acme"), many.request_id)
    assert (row.state, row.paused_for) == (BatchState.PAUSED, Pause.GROUPS)
    async with database.durable() as conn:
        told = await (await conn.execute("select data from event where kind = 'pipeline.paused'")).fetchall()
    assert [orjson.loads(data)["paused_for"] for (data,) in told] == ["groups"]
    await lifecycle.change_state(database, Tenant(tenant, "acme"), many.request_id, "resume")
    [ended] = await world.finish(many)
    assert ended.state == BatchState.COMPLETED
    await check(database, many)


async def test_the_items_of_a_pack_by_value_are_read_page_by_page_and_looked_at_beside_the_event_loop(
    database: Database, world: World, tenant: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    members = grouping._members

    def in_thread(running: Running, of: Stage, page: Sequence[reading.Item]) -> list[grouping.Member]:
        assert threading.current_thread() is not threading.main_thread()
        looked.append(len(page))
        return members(running, of, page)

    monkeypatch.setattr(reading, "_PAGE", 3)
    monkeypatch.setattr(grouping, "_members", in_thread)
    made = await support.create(database, tenant, BY_VALUE, LINES)
    await world.finish(made)
    assert looked == [3, 3, 2]
    await check(database, made)


@pytest.mark.parametrize("what", ["groups", "source"])
async def test_packs_and_inputs_that_cannot_be_read_hold_up_no_others(
    database: Database, world: World, tenant: int, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    definition = pipeline(stage("a", "{{item.id}}"), stage("b", "{{parts.text}}", pack={"by": "item.id", "max": 2}))
    locked, sound = [await support.create(database, tenant, definition, LINES) for _ in range(2)]
    tried: list[int] = []

    async def group(feeder: feeding.Feeder, batch_id: int) -> bool:
        tried.append(batch_id)
        if batch_id in locked.batches:
            raise ValueError("it cannot be read")
        return await true_group(feeder, batch_id)

    async def ready(_: Database, later: Sequence[int]) -> object:
        left = [each.pipeline_id for each in (locked, sound) if each.pipeline_id not in [*later, *tried[1:]]]
        return (left[0], 1, 0, True) if left else None

    async def copy(_: feeding.Feeder, pipeline_id: int, *rest: object) -> bool:
        tried.append(pipeline_id)
        if pipeline_id == locked.pipeline_id:
            raise ValueError("it cannot be read")
        return True

    true_group = feeding.Feeder._group
    monkeypatch.setattr(feeding.put_off, "SECONDS", 600)
    if what == "groups":
        monkeypatch.setattr(feeding.Feeder, "_group", group)
        ended = []
        for _ in range(4):
            await world.feed()
            await world.work(by_batch(locked) | by_batch(sound))
            ended += await world.settle()
        assert [each.pipeline_id for each in ended] == [sound.pipeline_id]
        assert sorted(tried) == [locked.batches[2], sound.batches[2]]
    else:
        monkeypatch.setattr(feeding.copying, "ready", ready)
        monkeypatch.setattr(feeding.Feeder, "_copy", copy)
        await world.feed()
        assert tried == [locked.pipeline_id, sound.pipeline_id]


@pytest.mark.parametrize(
    "lost", [KeysUnavailable("its key was destroyed", gone=True), StorageError("no such object", missing=True)], ids=str
)
async def test_a_pipeline_whose_key_or_object_is_gone_holds_up_no_other(
    database: Database, world: World, tenant: int, monkeypatch: pytest.MonkeyPatch, lost: Exception
) -> None:
    poisoned, sound = [await support.create(database, tenant, CHAIN, LINES) for _ in range(2)]
    pipelines_load = feeding.pipelines.load

    async def load(database: Database, keyring: object, batch_ids: Collection[int]) -> object:
        if poisoned.pipeline_id in batch_ids:
            raise lost
        return await pipelines_load(database, keyring, batch_ids)  # type: ignore[arg-type]

    monkeypatch.setattr(feeding.pipelines, "load", load)
    await world.finish(sound)
    await check_alone(database, sound)
    async with database.durable() as conn:
        assert await count(
            conn, "select count(*) from handoff where batch_id = %s and tries > 0", poisoned.batches[INPUT]
        )


@pytest.mark.parametrize(
    "lost", [KeysUnavailable("its key was destroyed", gone=True), StorageError("no such object", missing=True)], ids=str
)
async def test_what_is_gone_for_good_counts_as_a_failure_and_holds_up_no_other(
    database: Database, world: World, tenant: int, monkeypatch: pytest.MonkeyPatch, lost: Exception
) -> None:
    poisoned, sound = [await support.create(database, tenant, CHAIN, LINES) for _ in range(2)]
    pipelines_load = feeding.pipelines.load

    async def load(database: Database, keyring: Keyring, batch_ids: Collection[int]) -> object:
        if poisoned.pipeline_id in batch_ids:
            raise lost
        return await pipelines_load(database, keyring, batch_ids)

    monkeypatch.setattr(feeding.pipelines, "load", load)
    await world.finish(sound)
    await check_alone(database, sound)
    async with database.durable() as conn:
        assert await count(
            conn, "select count(*) from handoff where batch_id = %s and tries > 0", poisoned.batches[INPUT]
        )


async def check_alone(database: Database, made: Made) -> None:
    levels, found = await support.levels(database, made), await support.items(database, made)
    assert [set(each) for each in found] == [set(level.items) for level in levels]


async def test_a_stage_that_depends_on_another_starts_after_it(database: Database, world: World, tenant: int) -> None:
    definition = pipeline(
        stage("a", "{{item.id}}"), stage("b", "{{item.id}}", after="input", depends_on=["a"]), stage("c", "{{text}}")
    )
    made = await support.create(database, tenant, definition, LINES)
    await world.feed()
    await world.settle()
    leases = []
    while (lease := await world.claim()) is not None:
        leases.append(lease)
    assert {lease.batch_id for lease in leases} == {made.batches[1]}
    for lease in leases:
        await world.run(lease, by_batch(made))
    [ended] = await world.finish(made)
    assert ended.state == BatchState.COMPLETED
    await check(database, made)


async def test_a_pipeline_leaves_as_a_whole(database: Database, world: World, tenant: int) -> None:
    made = await support.create(database, tenant, CHAIN, LINES)
    await world.finish(made)
    async with database.transaction() as conn:
        for statement in retention_sql.FORGET:
            await conn.execute(statement, {"ids": list(made.batches)})
        for table in ("pipeline", "stage", "handoff", "gather", "batch"):
            assert await count(conn, f"select count(*) from {table}") == 0


async def test_a_request_that_is_not_valid_is_an_error_of_its_item_alone(
    database: Database, world: World, tenant: int
) -> None:
    definition = pipeline(stage("a") | {"body": {"messages": "{{item.messages}}"}})
    lines: list[Json] = [{"messages": [{"role": "user", "content": "a"}]}, {"messages": [{"role": "no\nbody"}]}, {}]
    made = await support.create(database, tenant, definition, lines)
    await world.finish(made)
    found = (await support.items(database, made))[1]
    assert [found[n][0] for n in range(3)] == [True, False, False]
    errors = [orjson.loads(found[n][3] or b"") for n in (1, 2)]
    assert [error["reason"] for error in errors] == ["not_valid", "missing_value"]


async def test_an_escalation_takes_its_share_of_what_has_come_to_it_at_every_moment(
    database: Database, world: World, tenant: int
) -> None:
    """Half of the lines are left out before, so a share of the input would be twice as much."""
    last = stage("b", "{{text}}", when="ok and not json.sure", escalate={"model": "large", "when": "true", "most": 0.2})
    lines: list[Json] = [{"id": f"line {n}"} for n in range(40)]
    made = await support.create(database, tenant, pipeline(stage("a", "{{item.id}}"), last), lines)
    query = "select taken, ran from stage where pipeline_id = %s and name = 'b.escalate'"

    async def counts() -> tuple[int, int]:
        async with database.relaxed() as conn:
            [(taken, ran)] = await (await conn.execute(query, (made.pipeline_id,))).fetchall()
        assert ran <= allowed(0.2, taken)
        return taken, ran

    while await world.feeder.step() or await world.work(by_batch(made), most=1):
        await counts()
    taken, ran = await counts()
    assert 5 < taken < 30
    assert ran == allowed(0.2, taken)
