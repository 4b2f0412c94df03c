"""A worker writes the events of items with their results, where somebody asked for them."""

from app.settings import Settings
from tests.gpu.world import World
from tests.webhooks.support import subscribe


async def test_every_result_has_its_event_and_none_comes_twice(world: World, settings: Settings) -> None:
    world.engine.script({"match": "bad", "mode": "status", "status": 400})
    async with world.database.durable() as conn:
        await subscribe(
            conn, settings, "http://127.0.0.1:9/x", tenant_id=world.tenant, kinds=["item.succeeded", "item.failed"]
        )
    batch = await world.submit([*(f"question {n}" for n in range(20)), "bad one"])
    async with world.database.durable() as conn:
        await conn.execute("update batch set tells_items = true")
    async with world.worker():
        await world.finished(batch)
    rows = await world.fetch("select kind, n from event where kind like 'item.%%' order by n")
    assert rows == [*(("item.succeeded", n) for n in range(20)), ("item.failed", 20)]
    assert await world.fetch("select count(*) from delivery") == [(21,)]
    together = (
        "select distinct r.xmin = e.xmin from event e join item_result r on (r.batch_id, r.seq) = (e.batch_id, e.n)"
    )
    assert await world.fetch(f"{together} where kind like 'item.%%'") == [(True,)]
