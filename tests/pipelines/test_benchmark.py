"""Claims about benchmarks.pipelines: callers who chain batches ask what the pipeline asks, and every arm yields its figures."""

import json
import subprocess
import sys

import pytest

from app.flows.items import Asked
from app.pipelines import stored_flow
from benchmarks.pipelines.callers import Outcome, Step, text_of
from tests.flows import recomputation
from tests.flows.pipelines import completion
from tests.flows.recomputation import Stored

FIGURES = (
    "handoff_idle_ms_p50",
    "flush_server_cpu_ratio",
    "flush_wal_ratio",
    "feed_items_s",
    "three_models_speedup",
    "one_model_speedup",
    "cached_share_ratio",
    "turn_begin_ms_p50",
    "turn_added_ttft_ms_p50",
)
VIOLATIONS = ("kill_lost", "kill_doubled", "kill_wrong_lineage")


def test_a_caller_by_hand_asks_what_a_pipeline_asks() -> None:
    line, answer = {"custom_id": "a", "text": "one two"}, completion("yes")
    step = Step("s", "m", [{"role": "user", "content": "{{item.custom_id}}: {{item.text}}"}])
    later = Step("t", "m", [{"role": "user", "content": "{{item.text}}, {{text}}"}])
    stages = [{"id": each.name, "model": each.model, "body": {"messages": each.messages}} for each in (step, later)]
    flow = stored_flow.read(stored_flow.of_definition({"input": {"items": True}, "stages": stages}))
    levels = recomputation.recompute(flow, [line], {(1, 0): Stored(ok=True, body=json.dumps(answer).encode())})
    asked = [level.items[0].child for level in levels[1:]]
    assert all(isinstance(each, Asked) for each in asked)
    assert asked[0].body["messages"] == step.filled(line, "")
    assert asked[1].body["messages"] == later.filled(line, text_of(answer))


def test_the_cached_share_is_that_of_all_prompt_tokens() -> None:
    cached = completion("yes") | {"usage": {"prompt_tokens": 300, "prompt_tokens_details": {"cached_tokens": 100}}}
    new = completion("yes") | {"usage": {"prompt_tokens": 100}}
    assert Outcome(1.0, {"a": cached, "b": new}).cached_share == 0.25


@pytest.mark.slow
def test_small_arms_measure_the_real_thing() -> None:
    command = [sys.executable, "-m", "benchmarks.pipelines", "--json", "--quick"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    assert {name: found[name] for name in VIOLATIONS} == dict.fromkeys(VIOLATIONS, 0)
    assert found["kill_pipeline_items"] > 0
    assert all(found[name] > 0 for name in FIGURES if name != "turn_added_ttft_ms_p50")
    assert set(FIGURES) <= found.keys()
    assert found["flush_wal_ratio"] < 1.5
    assert found["cached_share_ratio"] > 1
