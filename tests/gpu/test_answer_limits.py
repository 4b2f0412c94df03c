"""A worker asks its engine for as long an answer as the batch's rule has it, however late and however often."""

from testing.waiting import eventually
from tests.gpu.world import World

LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")


async def test_items_of_open_ended_batches_are_sent_without_a_limit_and_all_others_with_the_default(
    world: World,
) -> None:
    batches = [await world.submit(["of openai"], open_ended=True), await world.submit(["of workers ai"])]
    async with world.worker():
        for batch in batches:
            await world.finished(batch)
    sent = {body["messages"][0]["content"]: [body.get(name) for name in LIMITS] for body in world.engine.bodies}
    assert sent == {"of openai": [None, None, None], "of workers ai": [256, None, None]}


async def test_a_retry_does_as_the_first_try_did(world: World) -> None:
    world.engine.script({"mode": "status", "status": 500, "times": 2})
    batch = await world.submit(["hello"], open_ended=True)
    async with world.worker(request_attempts=3):
        await world.finished(batch)
    assert len(world.engine.bodies) == 3
    assert not any(name in body for body in world.engine.bodies for name in LIMITS)


async def test_an_open_ended_answer_that_yielded_goes_on_to_its_end(world: World) -> None:
    world.engine.token_seconds, world.engine.answer_tokens = 0.02, 30
    batch = await world.submit(["a long question about the sea"], open_ended=True)
    async with world.worker() as running:
        ledger = running.worker._runner.ledger
        await eventually(lambda: any(call.transcript.output_ids for call in ledger.calls.values()))
        running.worker._puller.yield_requests(1)
        await world.finished(batch)
        assert running.worker._runner.resumes == 1
    [first, second] = world.engine.bodies
    assert "max_tokens" not in first
    assert second["max_tokens"] + len(second["prompt"]) == 8192
    [(ok, _, body)] = (await world.results(batch)).values()
    assert ok
    assert body["choices"][0]["message"]["content"] == "echo: a long question about the sea"
