"""The entry point of vLLM: an environment variable switches the scheduler on, in an engine that nobody else configures."""

import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.needs import module

module("vllm")

from vllm.engine.arg_utils import EngineArgs  # noqa: E402

from testing.bare_scheduler import tiny_model_dir  # noqa: E402
from workers.engine import plugin  # noqa: E402
from workers.engine.plugin import SCHEDULER, VARIABLE, register  # noqa: E402
from workers.engine.scheduler import HarvestScheduler  # noqa: E402

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def unchanged() -> Iterator[None]:
    """vLLM's own method afterwards."""
    original = EngineArgs.create_engine_config
    yield
    EngineArgs.create_engine_config = original  # type: ignore[method-assign]


def configured(**arguments: Any) -> Any:
    """The scheduler's configuration of an engine with these arguments."""
    common = {"model": tiny_model_dir(), "skip_tokenizer_init": True, "enforce_eager": True, "max_model_len": 512}
    return EngineArgs(**common, **arguments).create_engine_config().scheduler_config


@pytest.mark.parametrize("value", ["on", "On", "1", "true"])
def test_the_variable_switches_scheduler_and_policy_on(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(VARIABLE, value)
    register()
    register()  # vLLM may call it more than once
    scheduler = configured()
    assert (scheduler.scheduler_cls, scheduler.policy) == (SCHEDULER, "priority")
    assert scheduler.get_scheduler_cls() is HarvestScheduler


def logger_of(caplog: pytest.LogCaptureFixture) -> logging.Logger:
    """A logger that no other test's configuration has switched off."""
    logger = logging.Logger("plugin", logging.INFO)
    logger.addHandler(caplog.handler)
    return logger


def ours(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if line.startswith("HARVEST")]


@pytest.mark.parametrize("value", [None, "", "off", "0"])
def test_without_the_variable_nothing_changes(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)
    before = EngineArgs.create_engine_config
    register()
    assert EngineArgs.create_engine_config is before
    assert (configured().scheduler_cls, configured().policy) == (None, "fcfs")


def test_a_scheduler_that_was_named_stays_with_its_policy(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(VARIABLE, "on")
    monkeypatch.setattr(plugin, "logger", logger_of(caplog))
    register()
    other = "vllm.v1.core.sched.scheduler.Scheduler"
    scheduler = configured(scheduler_cls=other)
    assert (scheduler.scheduler_cls, scheduler.policy) == (other, "fcfs")
    assert "HARVEST_OFF" in caplog.text


def test_a_vllm_that_cannot_load_the_scheduler_starts_without_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(VARIABLE, "on")
    monkeypatch.setattr(plugin, "logger", logger_of(caplog))
    monkeypatch.setitem(sys.modules, SCHEDULER.rpartition(".")[0], None)
    register()
    scheduler = configured()
    assert (scheduler.scheduler_cls, scheduler.policy) == (None, "fcfs")
    [line] = ours(caplog)
    assert line.startswith("HARVEST_UNSUPPORTED: vLLM schedules alone: ModuleNotFoundError")


def test_one_line_of_the_log_says_what_was_changed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(VARIABLE, "on")
    monkeypatch.setattr(plugin, "logger", logger_of(caplog))
    register()
    configured()
    configured(scheduling_policy="priority")
    assert ours(caplog) == [
        f"HARVEST_ON: scheduler {SCHEDULER}; scheduling policy priority instead of fcfs",
        f"HARVEST_ON: scheduler {SCHEDULER}",
    ]
