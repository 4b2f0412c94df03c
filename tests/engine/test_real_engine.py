"""Claims that need the real vLLM with a real model: right answers, usage, and life after the engine's death."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app import processes
from app.settings import PACKAGE
from tests.system.stack import ACCOUNT, MODEL, Stack, running, wait_for
from tests.timing import note

pytestmark = pytest.mark.engine

EXAMPLES = Path(__file__).parents[2] / "examples"
LOADING_SECONDS = 400  # the first run on a machine also fetches and converts the model


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """`slackwater up` with an engine of its own."""
    with running(real_engine=True) as stack:
        yield stack


def engine_pids(stack: Stack) -> list[int]:
    """Every process of the managed engine."""
    mark = f"{os.path.realpath(stack.settings.data_dir)}:{stack.settings.engine_name}"
    return processes.marked("SLACKWATER_ENGINE", mark)


def test_the_capital_of_france_is_paris(stack: Stack) -> None:
    """Submitted while the engine still loads: it waits, then the real model answers."""
    request_id = stack.submit(
        [
            {"prompt": "What is the capital of France?", "temperature": 0, "max_tokens": 24},
            {"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0, "n": 1},
        ]
    )
    result = wait_for(lambda: stack.poll(request_id), LOADING_SECONDS)
    for response in result["responses"]:
        assert "Paris" in response["result"]["response"]
        usage = response["result"]["usage"]
        assert usage["prompt_tokens"] > 5
        assert usage["completion_tokens"] > 3
    assert result["usage"]["total_tokens"] > 20


def test_cached_prompt_tokens_are_reported(stack: Stack) -> None:
    prompt = "Slack water is the short time when the tide does not move. " * 12
    totals = []
    for _ in range(2):
        request_id = stack.submit([{"prompt": prompt, "max_tokens": 4, "temperature": 0}])
        totals.append(wait_for(lambda r=request_id: stack.poll(r))["usage"]["prompt_tokens_details"]["cached_tokens"])  # type: ignore[misc]
    assert totals[1] > totals[0]


def test_a_schema_is_kept_and_a_refusal_of_the_engine_is_one_items_error(stack: Stack) -> None:
    schema = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}
    request_id = stack.submit(
        [
            {
                "prompt": "Which city is the capital of Italy?",
                "max_tokens": 40,
                "temperature": 0,
                "response_format": {"type": "json_schema", "json_schema": schema},
            },
            {"prompt": "x", "logit_bias": {"999999999": 1}, "max_tokens": 2},
        ]
    )
    good, bad = wait_for(lambda: stack.poll(request_id))["responses"]
    assert good["result"]["response"]["city"] in ("Paris", "Rome")
    assert (bad["success"], bad["result"], bad["error"]["code"]) == (False, None, 5006)


def test_the_snippet_of_the_launch_post_runs_through_the_env_ai_adapter(stack: Stack) -> None:
    key = stack.client.headers["authorization"].removeprefix("Bearer ")
    command = [
        sys.executable,
        str(EXAMPLES / "env_ai.py"),
        "--url",
        str(stack.client.base_url),
        "--account",
        ACCOUNT,
        "--key",
        key,
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "queued" in done.stdout


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


def test_an_item_that_really_crashes_vllm_costs_two_restarts_and_its_neighbours_nothing(stack: Stack) -> None:
    """On CPU vLLM 0.32 dies of a seed whose prompt takes several steps, unless the catalogue's mending is left out."""
    assert stack.process
    if stack.process.poll() is None:
        stack.stop()
    models = (PACKAGE / "models.toml").read_text()
    mending = re.compile(r'^ *"--worker-extension-cls".*\n', re.MULTILINE)
    assert mending.search(models)
    unmended = stack.settings.data_dir / "models.toml"
    unmended.write_text(mending.sub("", models))
    stack.settings = stack.settings.model_copy(update={"models_file": unmended})
    stack.start()
    items: list[dict[str, object]] = [{"prompt": f"Count to {n}.", "max_tokens": 8} for n in range(12)]
    items[5] = {"prompt": "tide " * 600, "seed": 7, "max_tokens": 4}
    before = stack.log.read_text().count("engine.died")
    request_id = stack.submit(items)
    result = wait_for(lambda: stack.poll(request_id), 2 * LOADING_SECONDS)
    assert [response["id"] for response in result["responses"] if not response["success"]] == [5]
    assert "the engine died 2 times while this item was running" in result["responses"][5]["error"]["message"]
    deaths = stack.log.read_text().count("engine.died") - before
    note(f"an item that crashes vLLM among 12: {deaths} engine deaths, 11 answers")
    assert deaths == 2


def test_kill_9_of_up_leaves_no_engine_that_the_next_start_would_not_find(stack: Stack) -> None:
    old = wait_for(lambda: engine_pids(stack))
    assert stack.process
    stack.process.kill()
    stack.process.wait()
    stack.start()
    new = wait_for(lambda: set(engine_pids(stack)) - set(old), what="a new engine")
    assert new
    wait_for(lambda: not set(old) & set(engine_pids(stack)), what="the old engine gone")
    assert stack.stop() == 0
    assert engine_pids(stack) == []
