"""A GPU worker and a database that is not fit for its code."""

from collections.abc import Callable

from structlog.testing import capture_logs

from testing.waiting import eventually
from tests.gpu.world import World


async def test_a_worker_registers_only_with_a_schema_for_its_code_and_goes_on_as_soon_as_it_is(world: World) -> None:
    batch = await world.submit(["hi"])
    [(floor,)] = await world.fetch(
        "update schema_floor set revision = '9999' returning (select revision from schema_floor)"
    )
    with capture_logs() as logs:
        async with world.worker():
            await eventually(lambda: {line["event"] for line in logs} & {"worker.waits_for_schema", "worker.joined"})
            assert await world.fetch("select count(*) from worker") == [(0,)]
            await world.fetch("update schema_floor set revision = %s returning 1", floor)
            await world.finished(batch)


async def test_a_worker_registers_only_with_a_server_that_keeps_what_it_confirms(
    world: World, administer: Callable[[str], None]
) -> None:
    administer("create role plain login superuser")
    try:
        url = world.settings.database_url.replace("postgres@", "plain@")
        with capture_logs() as logs:
            async with world.worker(database_url=url):
                said = await eventually(lambda: [line for line in logs if line["event"].startswith("worker.")])
                assert "alter role" in said[0].get("error", "")
                assert await world.fetch("select count(*) from worker") == [(0,)]
    finally:
        administer("drop role plain")
