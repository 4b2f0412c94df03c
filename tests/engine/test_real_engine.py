"""Claims about the real engine's death: nothing is lost, nothing doubled, nothing left behind."""

import os
import signal
from collections.abc import Callable

import pytest

from app import processes
from tests.engine.conftest import LOADING_SECONDS
from tests.system.stack import MODEL, Stack, wait_for

pytestmark = pytest.mark.engine


def engine_pids(stack: Stack) -> list[int]:
    """Every process of the managed engine."""
    mark = f"{os.path.realpath(stack.settings.data_dir)}:{stack.settings.engine_name}"
    return processes.marked("SLACKWATER_ENGINE", mark)


@pytest.mark.slow
def test_kill_9_of_the_engine_in_mid_batch_loses_and_doubles_nothing(
    stack: Stack, record_property: Callable[[str, object], None]
) -> None:
    items = [{"prompt": f"Count to {n}.", "max_tokens": 16, "ignore_eos": True} for n in range(60)]
    request_id = stack.submit(items)
    [(batch_id,)] = stack.query("select batch_id from batch where request_id = %s", request_id)
    wait_for(lambda: len(stack.query("select 1 from item_result where batch_id = %s", batch_id)) >= 10)
    flushed = dict(stack.query("select seq, finished_at from item_result where batch_id = %s", batch_id))
    victims = engine_pids(stack)
    assert victims
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    result = wait_for(lambda: stack.poll(request_id), LOADING_SECONDS)
    assert [response["id"] for response in result["responses"]] == list(range(60))
    assert all(response["success"] for response in result["responses"])
    after = dict(stack.query("select seq, finished_at from item_result where batch_id = %s", batch_id))
    assert {seq: after[seq] for seq in flushed} == flushed
    counts = {"items": 60, "flushed before": len(flushed), "lost": 0, "flushed re-run": 0}
    record_property(f"kill -9 of vLLM with {MODEL} in mid-batch", counts)


def test_stopping_leaves_no_engine_behind(stack: Stack) -> None:
    assert engine_pids(stack)
    assert stack.stop() == 0
    assert engine_pids(stack) == []
    assert stack.marked() == []


def test_kill_9_of_up_leaves_no_engine_that_the_next_start_would_not_find(stack: Stack) -> None:
    assert stack.process
    if stack.process.poll() is not None:  # another test has stopped it
        stack.start()
    old = wait_for(lambda: engine_pids(stack))
    stack.process.kill()
    stack.process.wait()
    stack.start()
    new = wait_for(lambda: set(engine_pids(stack)) - set(old), what="a new engine")
    assert new
    wait_for(lambda: not set(old) & set(engine_pids(stack)), what="the old engine gone")
    assert stack.stop() == 0
    assert engine_pids(stack) == []
