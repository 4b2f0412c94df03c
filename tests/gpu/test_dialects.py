"""The same claims for every kind of engine: attach, work beside synchronous requests, yield, resume, restart, telemetry.

vLLM is also run for real (tests/engine). The other engines are fakes that were written from their sources.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
import pytest

from app.db.pool import Database
from app.engines import adoption, catalogue
from app.engines import service as engines
from app.engines.adoption import SLOTS
from app.engines.client import EngineClient
from app.engines.dialects import DIALECTS, Terms
from app.engines.requests import CHAT, EngineRequest, Target, build
from app.headroom.gate_rules import BLIND_CAP, CLOSED_BY_FAILURE, Reason
from app.headroom.slot_search import FIRST
from app.settings import Settings
from testing.fakes.engine import FakeEngine
from testing.fakes.other_engines import FakeOpenAI, FakeSGLang, FakeTrtllm
from testing.waiting import eventually, in_time
from tests.clock import Clock
from tests.gpu.world import MODEL, Running, World, tend
from tests.queue import support
from workers.gpu.tuning import WorkerTuning

FAKES: dict[str, type[FakeEngine]] = {
    "vllm": FakeEngine,
    "sglang": FakeSGLang,
    "trtllm": FakeTrtllm,
    "openai": FakeOpenAI,
}
RESUMES = ("vllm", "sglang")
BLIND = ("openai",)
QUICK = WorkerTuning(health_seconds=0.1, inspection_seconds=0.1)
PROMPTS = [f"a long question, number {n}, about the sea" for n in range(6)]

every = pytest.mark.parametrize("name", FAKES)
# vLLM is the engine of all other tests. A stranger's OpenAI server is the hardest case: it continues no answer, as TensorRT-LLM,
# and says nothing of its load.
MOST = [*(pytest.param(name, marks=pytest.mark.slow) for name in ("vllm", "trtllm", "sglang")), "openai"]
most = pytest.mark.parametrize("name", MOST)


@asynccontextmanager
async def attached(name: str, settings: Settings, database: Database, **options: Any) -> AsyncIterator[World]:
    """A world with an engine of this kind, of 32 slots."""
    async with database.durable() as conn:
        tenant = await support.make_tenant(conn)
        pool = await engines.ensure_pool(conn, MODEL)
    async with FAKES[name](latency=0.01, slots=32, **options) as engine:
        changes = {"engine_url": engine.url, "sample_seconds": 0.05, "drain_seconds": 5, "request_timeout_seconds": 5}
        steward = asyncio.create_task(tend(database))
        try:
            yield World(settings.model_copy(update=changes), database, engine, tenant, pool)
        finally:
            steward.cancel()


async def answers(world: World, batch: int) -> dict[int, Any]:
    """The choices by item; every item has succeeded."""
    found = await world.results(batch)
    assert all(ok for ok, _, _ in found.values()), found
    return {seq: [_said(choice) for choice in body["choices"]] for seq, (_, _, body) in found.items()}


def _said(choice: dict[str, Any]) -> tuple[str, str]:
    return choice["message"]["content"], choice["finish_reason"]


async def ask(world: World, name: str, prompt: str) -> int:
    """The status of a synchronous request, as the gateway builds it for such an engine."""
    async with world.database.durable() as conn:
        [engine] = await engines.list_engines(conn)
    assert engine.dialect == name
    item = {"messages": [{"role": "user", "content": prompt}], "max_tokens": 4}
    request = build(item, CHAT, Target(MODEL, 256, 8192, terms=engine.terms), "salt", synchronous=True)
    async with aiohttp.ClientSession() as session, session.post(world.engine.url + CHAT, data=request.body) as answer:
        await answer.read()
        return answer.status


def control(running: Running) -> Any:
    return running.worker._control


@every
async def test_the_engine_is_found_out_and_fits_the_catalogue(name: str, settings: Settings) -> None:
    async with FAKES[name](slots=32) as engine, EngineClient(engine.url, timeout_seconds=2) as client:
        seen = await client.look()
        assert seen.terms.dialect is DIALECTS[name]
        assert adoption.model_for(catalogue.load(settings.models_file), seen, None).name.endswith(MODEL)
        assert await client.healthy()
        assert adoption.shortcomings(seen) == ()


@most
async def test_a_batch_runs_beside_synchronous_requests_and_the_engine_refuses_nothing(
    name: str, settings: Settings, database: Database
) -> None:
    async with attached(name, settings, database) as world:
        world.engine.token_seconds, world.engine.answer_tokens = 0.01, 20
        batch = await world.submit([f"question {n}" for n in range(40)])
        async with world.worker(tuning=QUICK) as running:
            await eventually(lambda: world.engine.running > 0)
            await world.until("exists (select from engine where state = 'ready')")  # before, no gateway asks it
            statuses = [await ask(world, name, f"now {n}") for n in range(10)]
            await world.finished(batch)
            assert not control(running).inside
            assert await world.fetch("select distinct layer from decision") in ([], [("l1",)])
        assert statuses == [200] * 10
        assert world.engine.refused == []
        assert len(await answers(world, batch)) == 40


@most
async def test_yielded_requests_are_aborted_and_say_the_same_in_the_end(
    name: str, settings: Settings, database: Database
) -> None:
    async with attached(name, settings, database) as world:
        world.engine.token_seconds, world.engine.answer_tokens = 0.03, 30
        calm = await world.submit(PROMPTS)
        async with world.worker(tuning=QUICK):
            await world.finished(calm)
        batch = await world.submit(PROMPTS)
        async with world.worker(tuning=QUICK) as running:
            worker = running.worker
            calls = worker._runner.ledger.calls
            await eventually(lambda: len(calls) >= 3 and all(call.received for call in calls.values()))
            aborted = world.engine.aborted
            worker._puller.yield_requests(2)
            await eventually(lambda: world.engine.aborted == aborted + 2)
            await world.finished(batch)
            resumes, wasted = worker._runner.resumes, worker._puller.wasted_tokens
        assert await answers(world, batch) == await answers(world, calm)
        assert (resumes > 0, wasted == 0) == (name in RESUMES, name in RESUMES)
        assert world.engine.refused == []


@every
async def test_the_slots_are_those_that_the_engine_reports_and_the_cap_is_small_if_it_reports_none(
    name: str, settings: Settings, database: Database
) -> None:
    async with attached(name, settings, database) as world:
        batch = await world.submit(["hello"])
        async with world.worker(tuning=QUICK, batch_max_in_flight=0) as running:
            await world.finished(batch)
            known = name in ("sglang", "trtllm")  # vLLM reports them in development mode only
            believed = 32 if known else BLIND_CAP + 2 if name in BLIND else FIRST
            await eventually(lambda: control(running)._limits.slots == believed)
            assert control(running)._limits.cap == believed - 2
            assert [each.code for each in control(running).problems] == ([] if known else [SLOTS])
            where = f"slots = {believed} and dialect = '{name}'"
            await world.until(f"exists (select from engine where {where})")


@most
async def test_an_engine_that_restarts_gets_its_work_again(name: str, settings: Settings, database: Database) -> None:
    async with attached(name, settings, database) as world:
        world.engine.token_seconds, world.engine.answer_tokens = 0.02, 20
        batch = await world.submit(PROMPTS)
        async with world.worker(tuning=QUICK) as running:
            await eventually(lambda: world.engine.running > 0)
            await world.engine.__aexit__()
            await eventually(lambda: running.worker._health.fault is not None)
            await world.engine.__aenter__()
            await world.finished(batch)
        assert len(await answers(world, batch)) == len(PROMPTS)


@every
async def test_missing_metrics_are_a_fault_only_where_the_gate_needs_them(
    name: str, settings: Settings, database: Database, clock: Clock
) -> None:
    async with attached(name, settings, database) as world:
        engine = world.engine
        if isinstance(engine, FakeSGLang):
            engine.info["enable_metrics"] = False
        elif isinstance(engine, FakeTrtllm):
            engine.perf_metrics = False
        elif name == "vllm":
            engine.metrics_fault = "error"
        batch = await world.submit(["hello", "again"])
        async with world.worker(tuning=QUICK, probe_seconds=60, lease_seconds=600) as running:
            if DIALECTS[name].load == "needed":
                await eventually(lambda: control(running).decision.reason in CLOSED_BY_FAILURE)
                await clock.sleep(2)
                assert engine.count.total() == 0
                assert control(running).decision.reason in CLOSED_BY_FAILURE
                return
            await world.finished(batch)
            assert control(running).blind
            assert control(running).decision.reason not in CLOSED_BY_FAILURE
            await world.until("(select position('by a cap and by latency only' in detail) > 0 from engine)")


async def test_nothing_is_sent_if_the_lease_lapsed_while_the_prompt_was_tokenized(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with attached("sglang", settings, database) as world:
        lapsed = asyncio.Event()
        async with world.worker() as running:
            runner = running.worker._runner
            tokens_of = runner._client.tokens_of

            async def stopped(request: EngineRequest) -> list[int] | None:
                found = await tokens_of(request)
                lapsed.set()
                return found

            monkeypatch.setattr(runner._client, "tokens_of", stopped)
            monkeypatch.setattr(runner, "_may_send", lambda: not lapsed.is_set())
            batch = await world.submit([{"messages": [{"role": "user", "content": "one question"}]}])
            async with in_time():
                await lapsed.wait()
            await asyncio.sleep(0.2)
            assert world.engine.bodies == []
            monkeypatch.undo()
            await world.finished(batch)


async def test_sglang_counts_the_waiting_of_others_by_their_priority(settings: Settings, database: Database) -> None:
    async with attached("sglang", settings, database) as world:
        world.engine.token_seconds, world.engine.answer_tokens = 0.02, 200
        await world.submit(PROMPTS)
        async with world.worker(tuning=QUICK) as running:
            await eventually(lambda: world.engine.running > 0)
            assert {body["priority"] for body in world.engine.bodies} == {20}
            await eventually(lambda: control(running).sampler.latest.gauges.sync == (0, 0))
            world.engine.extra_waiting = 1
            await eventually(lambda: control(running).decision.reason is Reason.CLOSED_SYNC_WAITING)


async def test_an_engine_that_shows_no_load_gets_nothing_new_while_first_tokens_are_late(
    settings: Settings, database: Database, clock: Clock
) -> None:
    async with attached("openai", settings, database) as world:
        world.engine.script({"match": "stuck", "seconds": 4.0})
        world.engine.token_seconds = 0.02
        first = await world.submit(["stuck"])
        async with world.worker(tuning=QUICK, lease_seconds=600) as running:
            await eventually(lambda: control(running).decision.reason is Reason.CLOSED_LATENCY)
            assert control(running).decision.allowance == 0
            second = await world.submit(["quick"])
            await clock.sleep(0.5)
            assert world.engine.count["quick"] == 0
            await clock.sleep(4)
            await world.finished(first)
            await world.finished(second)


@pytest.mark.parametrize(
    "name", [*(pytest.param(name, marks=pytest.mark.slow) for name in ("sglang", "trtllm")), "openai"]
)
async def test_step_times_are_learned_from_our_own_streams_if_the_engine_counts_none(
    name: str, settings: Settings, database: Database
) -> None:
    async with attached(name, settings, database) as world:
        world.engine.token_seconds, world.engine.answer_tokens = 0.03, 600
        await world.submit([{"prompt": prompt, "max_tokens": 600} for prompt in PROMPTS])
        async with world.worker(tuning=QUICK, request_timeout_seconds=60) as running:
            await eventually(lambda: control(running).signals().steps is not None)
            assert control(running).signals().steps.measured >= 0.03
            assert control(running).decision.signal in ("step_seconds", "context_tokens", "load")


async def test_a_server_that_streams_no_usage_is_asked_for_whole_answers(
    settings: Settings, database: Database
) -> None:
    async with attached("openai", settings, database) as world:
        world.engine.stream_usage = False
        batch = await world.submit(["hello", "again"])
        async with world.worker(tuning=QUICK):
            await world.finished(batch)
        assert len(await answers(world, batch)) == 2
        assert len(world.engine.bodies) == 2, "what came without usage is kept"


async def test_no_field_of_an_engine_is_sent_to_a_server_that_may_refuse_it() -> None:
    item = {"prompt": "hi", "max_tokens": 3, "rid": "x", "custom_logit_processor": "code", "input_ids": [1]}
    for name, dialect in DIALECTS.items():
        terms = Terms(dialect, 10 if name == "vllm" else None)
        body = orjson.loads(build(item, CHAT, Target(MODEL, 8, 100, terms=terms), "salt").body)
        extra = {"vllm": {"priority", "cache_salt"}, "sglang": {"cache_salt"}}.get(name, set())
        assert body.keys() == {"messages", "max_tokens", "model", "stream"} | extra
