"""Freeze and evict on the real engine, through the page: two layers of dummy weights in float32, so that greedy output
does not depend on who shares the batch. The scheduler is the AsyncScheduler subclass, but vLLM switches overlapping
steps off on a CPU: steps in flight are covered by the bare scheduler's tests."""

import asyncio
import os
import random
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from testing.bare_scheduler import BATCH, SYNC, tiny_model_dir
from tests.harvest.support import COMMANDS
from workers.engine.control_page import Report, Weights
from workers.engine.page_folder import VARIABLE
from workers.engine.step_stats_receiver import VARIABLE as SOCKET
from workers.engine.step_stats_receiver import StepReceiver, StepStats
from workers.engine.step_stats_sender import StepLogger
from workers.gpu.engine_pages import EnginePages

pytestmark = pytest.mark.slow

SLOTS = 8
# Beside synchronous work, batch work gets nothing.
STRICT = replace(COMMANDS, itl_budget=0.0, itl_stretch=0.0, tolerance=0.0, error=1.0)


@dataclass
class Facts:
    calm: list[tuple[int, ...]]
    frozen: list[tuple[int, ...]]
    evicted: list[tuple[int, ...]]
    before: Report
    after_freeze: Report
    after_evict: Report
    learnt: Weights
    steps: list[StepStats]


@pytest.fixture(scope="module")
def facts() -> Iterator[Facts]:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, f"{folder}/pages")
        patch.setenv(SOCKET, f"{folder}/steps")
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        patch.setenv("VLLM_NO_USAGE_STATS", "1")
        patch.setenv("PYTHONPATH", os.getcwd())
        yield asyncio.run(scenario(Path(folder)))


@asynccontextmanager
async def commanded(pages: EnginePages) -> AsyncIterator[None]:
    """A worker that is heard."""

    async def beat() -> None:
        while True:
            pages.command(STRICT)
            await asyncio.sleep(0.2)

    task = asyncio.create_task(beat())
    yield
    task.cancel()


def start() -> Any:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    arguments = AsyncEngineArgs(
        model=tiny_model_dir(),
        skip_tokenizer_init=True,
        load_format="dummy",
        dtype="float32",
        max_model_len=2048,
        max_num_seqs=SLOTS,
        max_num_batched_tokens=512,
        enforce_eager=True,
        scheduling_policy="priority",
        enable_prefix_caching=True,
        scheduler_cls="workers.engine.scheduler.HarvestScheduler",
    )
    return AsyncLLM.from_engine_args(arguments, stat_loggers=[StepLogger])


async def generate(engine: Any, rid: str, prompt: list[int], output: int, priority: int) -> tuple[int, ...]:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    params = SamplingParams(
        max_tokens=output, ignore_eos=True, detokenize=False, temperature=0, output_kind=RequestOutputKind.DELTA
    )
    ids: list[int] = []
    async for out in engine.generate({"prompt_token_ids": prompt}, params, rid, priority=priority):
        ids += out.outputs[0].token_ids
    return tuple(ids)


async def scenario(folder: Path) -> Facts:
    pages, steps, rng = EnginePages(folder / "pages"), list[StepStats](), random.Random(0)
    receiver = StepReceiver(folder / "steps", steps.append)
    await receiver.open()
    prompts = [[rng.randint(3, 31_000) for _ in range(200)] for _ in range(SLOTS)]

    async def batch(name: str, count: int, bursts: int, width: int) -> list[tuple[int, ...]]:
        """`count` batch requests, cut `bursts` times by `width` synchronous ones; fresh cache for each round."""
        await engine.reset_prefix_cache()
        running = [
            asyncio.create_task(generate(engine, f"b-{name}-{i}", p, 120, BATCH)) for i, p in enumerate(prompts[:count])
        ]
        for k in range(bursts):
            await asyncio.sleep(0.15)
            burst = [generate(engine, f"s-{name}-{k}-{i}", [7 + k + i] * 60, 20, SYNC) for i in range(width)]
            await asyncio.gather(*burst)
        return list(await asyncio.gather(*running))

    async with commanded(pages):
        engine = await asyncio.to_thread(start)
        try:
            calm = await batch("calm", SLOTS, 0, 0)
            before = pages.report()
            frozen = await batch("freeze", SLOTS - 2, 4, 2)
            after_freeze = pages.report()
            evicted = await batch("evict", SLOTS, 3, 4)
            after_evict, learnt = pages.report(), pages.folder.pages[0].learnt()
        finally:
            engine.shutdown()
            receiver.close()
            pages.close()
    assert before is not None
    assert after_freeze is not None
    assert after_evict is not None
    assert learnt is not None
    return Facts(calm, frozen, evicted, before, after_freeze, after_evict, learnt, steps)


def test_frozen_requests_say_exactly_what_they_say_undisturbed(facts: Facts) -> None:
    assert facts.after_freeze.freezes > facts.before.freezes
    assert facts.after_freeze.evictions == facts.before.evictions == 0
    assert facts.frozen == facts.calm[: len(facts.frozen)]


def test_evicted_requests_say_exactly_what_they_say_undisturbed(facts: Facts) -> None:
    assert facts.after_evict.evictions > 0
    assert facts.evicted == facts.calm


def test_the_page_shows_a_healthy_scheduler_that_has_learnt(facts: Facts) -> None:
    report = facts.after_evict
    print(f"error {report.model_error:.2f}, {facts.learnt}, plan {report.plan_seconds * 1e6:.0f} us; {report}")
    assert report.supported
    assert (report.tripped, report.faults) == (False, 0)
    assert report.batch_running <= SLOTS
    assert report.model_samples > 100
    assert facts.learnt.base + facts.learnt.below > 0


def test_every_step_was_pushed_to_the_worker(facts: Facts) -> None:
    assert len(facts.steps) >= facts.after_evict.steps * 0.9
    assert max(step.running for step in facts.steps) == SLOTS
