"""Claims about the real engine's death: no result is lost or doubled, and no process is left."""

import os
import signal
import time
from collections.abc import Callable

import pytest

from app import processes
from testing.waiting import LOADING_SECONDS, wait_for
from tests.engine.support import engine_pids
from tests.system.stack import MODEL, RUN, Stack
from tests.timing import note

pytestmark = pytest.mark.slow


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
    result = wait_for(lambda: stack.poll(request_id), seconds=LOADING_SECONDS)
    assert [response["id"] for response in result["responses"]] == list(range(60))
    assert all(response["success"] for response in result["responses"])
    after = dict(stack.query("select seq, finished_at from item_result where batch_id = %s", batch_id))
    assert {seq: after[seq] for seq in flushed} == flushed
    counts = {"items": 60, "flushed before": len(flushed), "lost": 0, "flushed re-run": 0}
    record_property(f"kill -9 of vLLM with {MODEL} in mid-batch", counts)


def test_kill_9_of_the_core_alone_is_noticed_at_once_and_callers_hear_when_to_come_back(stack: Stack) -> None:
    wait_for(
        lambda: stack.query("select 1 from engine where state = 'ready'"), "the engine loaded", seconds=LOADING_SECONDS
    )
    [core] = processes.titled(engine_pids(stack), "VLLM::EngineCor")
    before = stack.log.read_text().count("engine.starting")
    began = time.monotonic()
    os.kill(core, signal.SIGKILL)
    wait_for(lambda: stack.log.read_text().count("engine.starting") > before, "a new start")
    restarted = time.monotonic() - began
    assert f"its process {core} has died" in stack.log.read_text()
    told = "select 1 from engine where state = 'down' and expected_at > now() + interval '5 seconds'"
    wait_for(lambda: stack.query(told), "the time of the new start in the database")
    [(expected,)] = stack.query("select extract(epoch from expected_at - now())::float8 from engine")
    asked = time.monotonic()
    answer = stack.client.post(RUN, json={"prompt": "Hello", "max_tokens": 4}, timeout=LOADING_SECONDS)
    heard = time.monotonic() - asked
    assert answer.status_code in (200, 503)
    if answer.status_code == 503:  # the start takes longer than the line's time
        assert abs(int(answer.headers["retry-after"]) - expected) < 10
    wait_for(
        lambda: stack.query("select 1 from engine where state = 'ready'"), "the engine is back", seconds=LOADING_SECONDS
    )
    note(
        f"kill -9 of vLLM's core: a new start after {restarted:.1f} s, a caller heard {answer.status_code} in {heard:.1f} s"
    )


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
    new = wait_for(lambda: set(engine_pids(stack)) - set(old), "a new engine")
    assert new
    wait_for(lambda: not set(old) & set(engine_pids(stack)), "the old engine gone")
    assert stack.stop() == 0
    assert engine_pids(stack) == []
