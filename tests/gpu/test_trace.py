"""A batch's trace goes with each of its requests, continuations included."""

from testing.waiting import eventually
from tests.gpu.world import World

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def test_every_call_of_an_engine_for_an_item_names_the_submits_trace(world: World) -> None:
    world.engine.token_seconds, world.engine.answer_tokens = 0.05, 20
    traced, plain = await world.submit(["traced"]), await world.submit(["plain"])
    async with world.database.durable() as conn:
        await conn.execute("update batch set traceparent = %s where batch_id = %s", (TRACE, traced))
    async with world.worker() as running:
        calls = running.worker._runner.ledger.calls
        await eventually(lambda: len(calls) >= 2 and all(call.transcript.output_ids for call in calls.values()))
        running.worker._puller.yield_requests(2)
        await world.finished(traced)
        await world.finished(plain)
    of_traced = [found[:36] for found in world.engine.traces if found]
    assert of_traced == [TRACE[:36]] * 2
    assert world.engine.traces.count(None) == 2
