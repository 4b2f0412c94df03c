"""The GPU worker end to end: real queue, scripted engine."""

import asyncio
import json
from dataclasses import replace

import psycopg
import pytest

from app.db.pool import Connection
from app.engines import service as engines
from app.queue import service as queue
from app.queue.types import Lease
from testing.waiting import eventually
from tests.clock import Clock
from tests.gpu.world import World
from tests.queue import support
from workers.gpu.tuning import WorkerTuning


def prompts(n: int) -> list[str]:
    return [f"question {i}." for i in range(n)]


async def test_every_item_is_run_once_and_stored_once_with_its_tokens(world: World) -> None:
    batch = await world.submit(prompts(100))
    async with world.worker():
        await world.finished(batch)
    results = await world.results(batch)
    assert [results[i][2]["choices"][0]["message"]["content"] for i in range(100)] == [
        f"echo: question {i}." for i in range(100)
    ]
    assert world.engine.count == dict.fromkeys(prompts(100), 1)
    [totals] = await world.fetch(
        "select ok, failed, prompt_tokens, cached_tokens, completion_tokens from batch where batch_id = %s", batch
    )
    assert totals[:2] == (100, 0)
    assert totals[2] > totals[3] > 0
    assert totals[4] == 400


async def test_requests_carry_the_batch_class_the_served_name_and_the_tenants_salt(world: World) -> None:
    batch = await world.submit(["hi"])
    async with world.worker():
        await world.finished(batch)
    [body] = world.engine.bodies
    assert (body["priority"], body["model"], body["stream"]) == (10, "smollm2-135m-instruct", True)
    assert len(body["cache_salt"]) == 43
    assert "external_reference" not in body


async def test_prompts_of_two_accounts_never_share_a_salt_and_those_of_one_do(world: World) -> None:
    async with world.database.durable() as conn:
        other = replace(world, tenant=await support.make_tenant(conn, "birch"))
    async with world.worker():
        for owner in (world, other, world):
            await owner.finished(await owner.submit(["hi"]))
    first, others, again = (body["cache_salt"] for body in world.engine.bodies)
    assert first == again != others


async def test_the_row_of_an_engine_has_its_items_by_batch_and_none_once_the_worker_has_left(world: World) -> None:
    world.engine.script({"match": "slow", "mode": "hang"})
    batch = await world.submit([f"slow {n}" for n in range(6)])
    async with world.worker(batch_max_in_flight=4, drain_seconds=0):
        await world.until(f"exists (select from engine where in_engine = '{{\"{batch}\": 4}}')")
    assert await world.fetch("select in_engine from engine") == [({},)]


async def test_no_more_than_the_cap_is_in_the_engine(world: World) -> None:
    batch = await world.submit(prompts(40))
    async with world.worker(batch_max_in_flight=3):
        await world.finished(batch)
    assert world.engine.peak == 3


@pytest.mark.parametrize("rule", [{"status": 500}, {"status": 429}, {"mode": "error"}])
async def test_a_passing_failure_is_retried_until_it_succeeds(world: World, rule: dict[str, object]) -> None:
    world.engine.script({"match": "question 3.", "mode": "status", "times": 2, **rule})
    batch = await world.submit(prompts(8))
    async with world.worker():
        await world.finished(batch)
    results = await world.results(batch)
    assert [results[i][0] for i in range(8)] == [1] * 8
    assert world.engine.count["question 3."] == 3
    assert world.engine.count.total() == 10
    assert results[3][1] == 3


async def test_a_lasting_failure_becomes_the_items_error_after_the_attempts(world: World) -> None:
    world.engine.script({"match": "question 3.", "mode": "status", "status": 500, "message": "oops"})
    batch = await world.submit(prompts(8))
    async with world.worker(request_attempts=2, item_retries=0):
        await world.finished(batch)
    results = await world.results(batch)
    assert results[3] == (0, 2, {"code": 5001, "message": "engine answered 500: oops"})
    assert sum(ok for ok, _, _ in results.values()) == 7
    assert world.engine.count["question 3."] == 2


async def test_a_failure_that_outlasts_one_round_of_tries_is_tried_again_later_without_its_neighbours(
    world: World,
) -> None:
    world.engine.script({"match": "question 3.", "mode": "status", "status": 500, "times": 3})
    batch = await world.submit(prompts(8))
    async with world.worker(tuning=WorkerTuning(item_retry_seconds=(0.1, 1)), request_attempts=2, item_retries=1):
        await world.finished(batch)
    results = await world.results(batch)
    assert [results[i][0] for i in range(8)] == [1] * 8
    assert results[3][1] == 3
    assert world.engine.count["question 3."] == 4
    assert world.engine.count.total() - world.engine.count["0"] == 11  # without a one-token request of the worker's own


async def test_a_request_the_engine_refuses_is_the_items_error_at_once(world: World) -> None:
    world.engine.script({"match": "question 3.", "mode": "status", "status": 400, "message": "bad temperature"})
    batch = await world.submit(prompts(8))
    async with world.worker():
        await world.finished(batch)
    assert (await world.results(batch))[3] == (0, 1, {"code": 5006, "message": "bad temperature"})
    assert world.engine.count["question 3."] == 1


async def test_an_engine_that_is_full_fails_no_item_it_comes_back_later(world: World) -> None:
    world.engine.script({"match": "question 3.", "mode": "status", "status": 429, "times": 2})
    batch = await world.submit(prompts(4))
    async with world.worker(tuning=WorkerTuning(full_engine_seconds=0.5), request_attempts=2):
        await world.finished(batch)
    results = await world.results(batch)
    assert [results[i][0] for i in range(4)] == [1] * 4
    assert world.engine.count["question 3."] == 3
    assert world.engine.count["question 0."] == 1


async def test_a_connection_lost_by_a_living_engine_costs_only_its_own_item_a_retry(world: World) -> None:
    world.engine.script({"match": "question 3.", "mode": "die", "times": 1})
    batch = await world.submit(prompts(8))
    async with world.worker():
        await world.finished(batch)
    assert all(ok for ok, _, _ in (await world.results(batch)).values())
    assert world.engine.count.total() == 9


async def test_a_request_that_hangs_times_out_and_is_tried_again(world: World) -> None:
    world.engine.script({"match": "question 3.", "mode": "hang"})
    batch = await world.submit(prompts(4))
    async with world.worker(request_timeout_seconds=0.3, request_attempts=2, item_retries=0):
        await world.finished(batch)
    assert (await world.results(batch))[3][2]["code"] == 3007
    assert world.engine.count["question 3."] == 2


async def test_while_the_engine_is_dead_nothing_fails_and_after_its_return_all_is_done(world: World) -> None:
    world.engine.latency = 0.2
    batch = await world.submit(prompts(40))
    async with world.worker():
        await world.until("count(*) > 0 from item_result")
        before = set(await world.results(batch))
        await world.engine.__aexit__()
        await world.until("not exists (select from chunk where state = 'leased')")
        await world.until("exists (select from engine where state = 'down' and allowance = 0)")
        assert not await world.fetch("select 1 from item_result where ok = 0")
        done = dict(world.engine.finished)
        await world.engine.__aenter__()
        await world.finished(batch)
    results = await world.results(batch)
    assert len(results) == 40
    assert all(ok for ok, _, _ in results.values())
    assert all(world.engine.count[f"question {seq}."] == 1 for seq in before)
    assert done


async def test_an_engine_that_dies_charges_exactly_the_items_that_were_in_it(world: World) -> None:
    world.engine.script({"mode": "hang"})
    await world.submit(prompts(24), chunk=8)
    async with world.worker(batch_max_in_flight=8):
        await eventually(lambda: world.engine.running >= 8)
        await world.until("count(*) = 2 from chunk where state = 'leased'")
        await world.engine.__aexit__()
        await world.until("not exists (select from chunk where state = 'leased')")
        assert await world.fetch("select deaths, n, attempt from chunk order by lo") == [
            *[(1, 1, 0)] * 8,
            *[(0, 8, 0)] * 2,
        ]


async def test_lost_database_connections_lose_and_repeat_nothing(world: World) -> None:
    world.engine.latency = 0.05
    batch = await world.submit(prompts(200))
    async with world.worker():
        for _ in range(8):
            await asyncio.sleep(0.15)
            await world.fetch(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'slackwater gpu test'"
            )
        await world.finished(batch)
    results = await world.results(batch)
    assert len(results) == 200
    assert all(ok for ok, _, _ in results.values())
    print(f"requests for 200 items: {world.engine.finished.total()}")


async def test_a_claim_whose_answer_was_lost_does_not_stay_leased(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, failures = queue.claim, [psycopg.OperationalError("the connection is lost")]

    async def losing(conn: Connection, pool_id: int, worker_id: int, **how: bool) -> Lease | None:
        lease = await claim(conn, pool_id, worker_id, **how)
        if lease is not None and failures:
            raise failures.pop()
        return lease

    monkeypatch.setattr(queue, "claim", losing)
    batch = await world.submit(prompts(16))
    async with world.worker(lease_seconds=1, heartbeat_seconds=0.2):
        await world.finished(batch)
    assert not failures
    assert world.engine.count == dict.fromkeys(prompts(16), 1)


async def test_synchronous_requests_in_the_engines_queue_close_the_gate(world: World) -> None:
    world.engine.extra_waiting = 1
    batch = await world.submit(prompts(4))
    async with world.worker():
        await world.until("exists (select from engine where reason = 'closed_sync_waiting')")
        assert not world.engine.count
        world.engine.extra_waiting = 0
        await world.finished(batch)


async def test_without_telemetry_nothing_is_pulled(world: World) -> None:
    world.engine.metrics_text = "nothing here"
    await world.submit(prompts(4))
    async with world.worker():
        await world.until("exists (select from engine where state = 'ready' and reason = 'closed_unknown')")
        assert await world.fetch("select count(*) from chunk where state = 'leased'") == [(0,)]


async def test_work_in_hand_goes_back_when_the_gate_stays_closed(world: World) -> None:
    world.engine.script({"mode": "hang"})
    await world.submit(prompts(32))
    async with world.worker(lease_seconds=1, heartbeat_seconds=0.2, batch_max_in_flight=8, drain_seconds=0):
        while world.engine.running < 8:
            await world.until("true")
        world.engine.kv = 0.99
        await world.until("count(*) = 1 from chunk where state = 'leased'")
        assert world.engine.running == 8


async def test_a_worker_whose_lease_lapsed_aborts_its_requests_and_another_finishes(world: World) -> None:
    world.engine.script({"mode": "slow", "seconds": 30})
    batch = await world.submit(prompts(8))
    async with world.worker():
        while world.engine.running < 8:
            await world.until("true")
        world.engine.script()
        await world.fetch("update worker set lease_until = now() - interval '1 second' returning 1")
        await world.finished(batch)
        left = "select coalesce((data->>'lapsed')::bool, false) from change where kind = 'engine.released'"
        assert await world.fetch(left) == [(True,)], "it has not stopped, and incidents say so"
    assert world.engine.finished == dict.fromkeys(prompts(8), 1)
    assert (
        world.engine.aborted == sum(world.engine.count.values()) - 8
    )  # the first eight, and what yielded on a busy machine
    assert all(world.engine.count[prompt] > 1 for prompt in prompts(8))


async def test_a_second_worker_of_the_same_engine_stands_by_and_takes_over(world: World, clock: Clock) -> None:
    async with world.worker(lease_seconds=60) as first:
        await world.until("exists (select from engine where state = 'ready')")
        [(holder,)] = await world.fetch("select worker_id from engine")
        async with world.worker(lease_seconds=60):
            await world.until("count(*) = 2 from worker")
            await clock.sleep(2 * world.settings.heartbeat_seconds)
            assert await world.fetch("select worker_id from engine") == [(holder,)]
            await first.stop()
            await world.until(f"exists (select from engine where worker_id <> {holder} and state = 'ready')")
            batch = await world.submit(prompts(8))
            await world.finished(batch)


async def test_a_worker_that_is_stopped_while_it_stands_by_leaves_no_trace(world: World) -> None:
    async with world.worker():
        await world.until("exists (select from engine where state = 'ready')")
        async with world.worker() as second:
            await world.until("count(*) = 2 from worker")
            await second.stop()
            assert await world.fetch("select count(*) from worker") == [(1,)]


async def test_a_stopping_worker_ends_what_runs_hands_back_the_rest_and_leaves_no_trace(world: World) -> None:
    world.engine.latency = 0.5
    batch = await world.submit(prompts(64), chunk=32)
    async with world.worker(batch_max_in_flight=8):
        await world.until("exists (select from chunk where state = 'leased')")
        await eventually(lambda: world.engine.running >= 8)
    finished = world.engine.finished.total()
    assert len(await world.results(batch)) == finished >= 8
    assert world.engine.aborted == 0
    assert await world.fetch("select count(*) from worker") == [(0,)]
    assert await world.fetch(
        "select sum(n)::int, max(attempt), count(*) filter (where state = 'leased') from chunk"
    ) == [(64 - finished, 0, 0)]
    async with world.database.durable() as conn:
        [engine] = await engines.list_engines(conn)
    assert (engine.state, engine.controlled) == ("down", False)


async def test_a_stop_does_not_wait_for_a_hanging_engine_beyond_the_drain_time(world: World) -> None:
    world.engine.script({"mode": "hang"})
    await world.submit(prompts(8))
    async with world.worker(drain_seconds=0.3) as running:
        while world.engine.running < 8:
            await world.until("true")
        await running.stop()
    assert await world.fetch("select sum(n)::int from chunk") == [(8,)]
    assert world.engine.aborted == 8


async def test_results_of_a_slow_chunk_are_visible_while_it_runs(world: World) -> None:
    world.engine.script({"match": "question 7.", "mode": "slow", "seconds": 3600})
    batch = await world.submit(prompts(8))
    async with world.worker(drain_seconds=0.1):
        await world.until(f"count(*) = 7 from item_result where batch_id = {batch}")
        assert world.engine.running == 1


async def test_an_attached_engine_that_serves_an_alias_is_asked_by_it(world: World) -> None:
    world.engine.serves = ["HuggingFaceTB/SmolLM2-135M-Instruct"]
    batch = await world.submit(["hi"])
    async with world.worker():
        await world.finished(batch)
    assert world.engine.bodies[0]["model"] == "HuggingFaceTB/SmolLM2-135M-Instruct"


async def test_an_item_that_cannot_be_sent_is_an_error_and_disturbs_no_other(world: World) -> None:
    batch = await world.submit(prompts(4))
    await world.fetch("update item_payload set body = '[1]' where seq = 2 returning 1")
    async with world.worker():
        await world.finished(batch)
    results = await world.results(batch)
    assert results[2][2]["code"] == 5006
    assert json.dumps(results[2][2])
    assert sum(ok for ok, _, _ in results.values()) == 3


async def test_a_prompt_that_is_too_long_is_counted_so_that_its_error_has_both_numbers(world: World) -> None:
    said = (
        "This model's maximum context length is 8192 tokens. However, your prompt contains at least 7937 input tokens"
    )
    world.engine.script({"match": "question 3.", "mode": "status", "status": 400, "message": said})
    batch = await world.submit(["word " * 8000 + text if "question 3." in text else text for text in prompts(8)])
    async with world.worker():
        await world.finished(batch)
    error = (await world.results(batch))[3][2]
    assert (error["code"], error["reason"]) == (5006, "context_length_exceeded")
    assert error["message"] == (
        "the prompt has 8003 tokens, and 256 are asked for the answer: together beyond the context window of 8192"
    )


async def test_without_a_count_the_error_is_what_the_engine_said(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(*_: object) -> None:
        return None

    monkeypatch.setattr("app.engines.client.EngineClient.count", silent)
    said = "This model's maximum context length is 4 tokens."
    world.engine.script({"mode": "status", "status": 400, "message": said})
    batch = await world.submit(["question"])
    async with world.worker():
        await world.finished(batch)
    assert (await world.results(batch))[0][2]["message"] == said


async def test_an_item_that_asks_for_token_ids_has_them_in_its_answer(world: World) -> None:
    batch = await world.submit([{"prompt": "question", "return_token_ids": True}])
    async with world.worker():
        await world.finished(batch)
    assert (await world.results(batch))[0][0] == 1
    assert (world.engine.bodies[-1]["return_token_ids"], world.engine.bodies[-1]["stream"]) == (True, False)
