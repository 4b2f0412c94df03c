"""Each step reaches the worker as one datagram; telemetry never harms the engine."""

import asyncio
from pathlib import Path

import pytest
from vllm.v1.metrics.loggers import StatLoggerBase
from vllm.v1.metrics.stats import IterationStats, SchedulerStats

from testing.waiting import LIMIT_SECONDS
from workers.engine.step_stats_receiver import VARIABLE, StepReceiver, StepStats
from workers.engine.step_stats_sender import StepLogger

pytestmark = pytest.mark.slow


def stats() -> tuple[SchedulerStats, IterationStats]:
    iteration = IterationStats()
    iteration.num_generation_tokens = 12
    iteration.inter_token_latencies_iter = [0.01, 0.04]
    return SchedulerStats(
        num_running_reqs=3, num_waiting_reqs=1, num_skipped_waiting_reqs=1, kv_cache_usage=0.5
    ), iteration


async def test_a_step_arrives_as_vllm_recorded_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: asyncio.Queue[StepStats] = asyncio.Queue()
    receiver = StepReceiver(tmp_path / "steps", seen.put_nowait)
    await receiver.open()
    monkeypatch.setenv(VARIABLE, str(receiver.path))
    StepLogger(None).record(*stats(), engine_idx=2)
    step = await asyncio.wait_for(seen.get(), LIMIT_SECONDS)
    assert (step.engine, step.running, step.waiting, step.kv_usage) == (2, 3, 2, 0.5)
    assert (step.prompt_tokens, step.generation_tokens, step.longest_gap) == (0, 12, 0.04)
    receiver.close()
    assert not receiver.path.exists()


def test_nobody_listening_a_full_socket_or_odd_statistics_are_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nobody"))
    logger = StepLogger(None)
    logger.record(*stats())
    logger.record(object(), None)  # type: ignore[arg-type]
    logger.record(None, None)


def test_without_the_variable_it_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    logger = StepLogger(None)
    logger.record(*stats())
    assert logger._socket is None
    assert issubclass(StepLogger, StatLoggerBase)


def test_a_foreign_datagram_is_no_step() -> None:
    assert StepStats.of(b"hello") is None
