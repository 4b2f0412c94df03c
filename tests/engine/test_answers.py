"""The answers of the real vLLM: text, usage, cached tokens, schemas and refusals. The first runs while it still loads."""

import subprocess
import sys
from pathlib import Path

import pytest

from testing.waiting import LIMIT_SECONDS, LOADING_SECONDS, wait_for
from tests.system.stack import ACCOUNT, Stack

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_capital_of_france_is_paris(stack: Stack) -> None:
    """Submitted while the engine still loads: it waits, then the real model answers."""
    request_id = stack.submit(
        [
            {"prompt": "What is the capital of France?", "temperature": 0, "max_tokens": 24},
            {"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0, "n": 1},
        ]
    )
    result = wait_for(lambda: stack.poll(request_id), seconds=LOADING_SECONDS)
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
    assert totals[0] <= totals[1] > 0  # an item whose first try was cut off has cached tokens in the first batch, too


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
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert done.returncode == 0, done.stderr
    assert "queued" in done.stdout
